//! Files and folders that opening a directory makes. A failed open removes them again.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use perdura_media::FileDevice;

use super::error::DirectoryError;

/// Files and folders that this open has made. Unless they are kept, dropping this removes them as
/// far as possible, so that a failed open leaves none behind: nothing can have been stored in them
/// yet.
#[derive(Default)]
pub(super) struct Made {
    /// Folders in the order in which they were made, the innermost last.
    pub(super) dirs: Vec<PathBuf>,
    pub(super) files: Vec<PathBuf>,
    /// Holds the image's lock until the image's name is removed: another process that gets the
    /// lock afterwards sees that the name is gone.
    pub(super) image: Option<FileDevice>,
}

impl Made {
    /// Leaves everything where it is.
    pub(super) fn keep(mut self) {
        self.dirs.clear();
        self.files.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // Failures are ignored: the caller returns the first error.
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
        for dir in self.dirs.iter().rev() {
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Creates a directory and its missing parents, and makes the name of each durable. Creating the
/// image later makes only the image's own name durable.
pub(super) fn create_dir(dir: &Path, made: &mut Made) -> Result<(), DirectoryError> {
    use std::os::unix::fs::DirBuilderExt;
    if dir.is_dir() {
        return Ok(());
    }
    let above = match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    create_dir(above, made)?;
    match std::fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => made.dirs.push(dir.to_owned()),
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
        Err(source) => return Err(DirectoryError::File { path: dir.to_owned(), source }),
    }
    File::open(above)
        .and_then(|above| above.sync_all())
        .map_err(|source| DirectoryError::File { path: dir.to_owned(), source })
}
