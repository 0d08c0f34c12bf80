//! The extended attributes of a file, which its rewritten one gets, too: access control lists,
//! capabilities, and those of users.

use std::fs::File;
use std::path::Path;

use rustix::fs::{XattrFlags, flistxattr, fremovexattr, fsetxattr, getxattr, listxattr};
use rustix::io::Errno;

/// The longest list of names, and the longest attribute, that Linux has.
const LONGEST: usize = 64 << 10;

/// Gives `to` the attributes of the file at `from`, and no others: a new file may have some of its
/// directory. Those that cannot be had or set, for whatever reason, are left out, with a warning.
pub fn copy(from: &Path, to: &File) {
    let lost = |name: &[u8], error: Errno| {
        let name = String::from_utf8_lossy(name);
        tracing::warn!(%name, path = %from.display(), %error, "an attribute is lost");
    };
    let mut names = vec![0; LONGEST];
    let mut value = vec![0; LONGEST];
    let wanted = match listxattr(from, &mut names) {
        Ok(len) => &names[..len],
        Err(Errno::OPNOTSUPP) => return,
        Err(error) => return lost(b"all", error),
    };
    let mut had = vec![0; LONGEST];
    let had_len = flistxattr(to, &mut had).unwrap_or(0);
    for name in each(&had[..had_len]).filter(|name| !each(wanted).any(|one| one == *name)) {
        fremovexattr(to, name).unwrap_or_else(|error| lost(name, error));
    }
    for name in each(wanted) {
        let got = getxattr(from, name, &mut value);
        let set = got.and_then(|len| fsetxattr(to, name, &value[..len], XattrFlags::empty()));
        set.unwrap_or_else(|error| lost(name, error));
    }
}

/// The names of a list, each of which ends with a zero byte.
fn each(names: &[u8]) -> impl Iterator<Item = &[u8]> {
    names.split(|byte| *byte == 0).filter(|name| !name.is_empty())
}
