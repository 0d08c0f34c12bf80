//! The extended attributes of a file, which its rewritten one gets, too: access control lists,
//! capabilities, and those of users.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{XattrFlags, fsetxattr, getxattr, listxattr};
use rustix::io::Errno;

/// The longest list of names, and the longest attribute, that Linux has.
const LONGEST: usize = 64 << 10;

/// Gives `to` the attributes of the file at `from`. Those that this user may not set, or that the
/// file system does not have, are left out, with a warning.
///
/// # Errors
/// An attribute cannot be read or written for another reason.
pub fn copy(from: &Path, to: &File) -> io::Result<()> {
    let mut names = vec![0; LONGEST];
    let len = match listxattr(from, &mut names) {
        Err(Errno::OPNOTSUPP) => 0,
        listed => listed?,
    };
    let mut value = vec![0; LONGEST];
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let got = getxattr(from, name, &mut value);
        match got.and_then(|len| fsetxattr(to, name, &value[..len], XattrFlags::empty())) {
            Err(error @ (Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP)) => {
                let name = String::from_utf8_lossy(name);
                tracing::warn!(%name, path = %from.display(), %error, "an attribute is lost");
            }
            outcome => outcome?,
        }
    }
    Ok(())
}
