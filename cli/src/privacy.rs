//! Warns if other users of the machine can read or change what `serve` and `guard` keep.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::Mode;

/// Lets all files, directories and sockets that this process makes be its owner's only, and those
/// of the holder or guard that it starts. What was there before keeps its permissions.
pub fn begin() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Warns of what others can read or change: the directory of the data, files of settings, and files
/// with secrets, each with the name of what is in it.
pub fn remark(dir: &Path, settings: [Option<&Path>; 2], secrets: &[(&str, Option<&Path>)]) {
    if let Some(how) = changed_by_others(dir) {
        tracing::warn!("{} {how} can replace and delete the data", dir.display());
    } else if let Some(mode) = open_to_others(dir) {
        tracing::warn!(
            "{} has mode {mode:o}: other users can look into it; `chmod 700` ends that",
            dir.display()
        );
    }
    for file in settings.into_iter().flatten() {
        if let Some(how) = changed_by_others(file) {
            tracing::warn!(
                "{} {how} can change the settings, and have the server start programs",
                file.display()
            );
        }
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

/// How others than this user and root can change a file or directory, up to the verb of a sentence
/// that says what they can do then.
fn changed_by_others(path: &Path) -> Option<String> {
    let metadata = std::fs::metadata(path).ok()?;
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != own && owner != 0 {
        return Some(format!("belongs to user {owner}: `chown {own}` it, for that user"));
    }
    let mode = metadata.permissions().mode() & 0o777;
    // A directory of root's may be this user's by its group alone.
    let is_by_group = metadata.is_dir() && owner != own;
    let writable = if is_by_group { 0o002 } else { 0o022 };
    let right = if metadata.is_dir() { "700" } else { "go-w" };
    (mode & writable != 0)
        .then(|| format!("has mode {mode:o}: `chmod {right}` it, for other users"))
}
