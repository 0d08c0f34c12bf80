//! Who else of the machine's users can read what `serve` and `guard` keep.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::Mode;

/// Lets all files, directories and sockets that this process makes be its owner's only, and those
/// of the holder or guard that it starts. What was there before keeps its permissions.
pub fn begin() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Warns of what others can read: the directory of the data, and files with secrets, each with the
/// name of what is in it.
pub fn remark(dir: &Path, secrets: &[(&str, Option<&Path>)]) {
    if let Some(mode) = open_to_others(dir) {
        tracing::warn!(
            "{} has mode {mode:o}: other users can look into it; `chmod 700` ends that",
            dir.display()
        );
    }
    for (what, path) in secrets {
        if let Some((path, mode)) = path.and_then(|path| Some((path, open_to_others(path)?))) {
            tracing::warn!(
                "{} has mode {mode:o}: other users can read {what} there; `chmod 600` ends that",
                path.display()
            );
        }
    }
}

/// The permissions of a file of this user's, if others have any.
fn open_to_others(path: &Path) -> Option<u32> {
    let metadata = std::fs::metadata(path).ok()?;
    let mode = metadata.permissions().mode() & 0o777;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    (is_own && mode & 0o077 != 0).then_some(mode)
}
