//! Files and folders that opening a directory makes. A failed open removes them again.

use std::path::{Path, PathBuf};

use perdura_media::FileDevice;
use perdura_media::file::{FileSystem, parent, sync_parent};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

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
pub(super) fn create_dir(
    files: &impl FileSystem,
    dir: &Path,
    made: &mut Made,
) -> Result<(), DirectoryError> {
    if is_dir(files, dir) {
        return Ok(());
    }
    create_dir(files, parent(dir), made)?;
    let failed = |errno: Errno| DirectoryError::File { path: dir.to_owned(), source: errno.into() };
    match files.mkdir(dir, Mode::RWXU) {
        Ok(()) => made.dirs.push(dir.to_owned()),
        // Another process was faster.
        Err(Errno::EXIST) if is_dir(files, dir) => {}
        Err(errno) => return Err(failed(errno)),
    }
    sync_parent(files, dir).map_err(failed)
}

fn is_dir(files: &impl FileSystem, path: &Path) -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    files.open(path, flags, Mode::empty()).is_ok()
}

#[cfg(test)]
mod tests {
    use perdura_media::SimFiles;
    use perdura_media::file::Kernel;

    use super::*;

    /// Paths that no real file has: a failed creation removes what it made.
    const DIR: &str = "/simulated/above/dir";

    /// Durable operations of creating [`DIR`]: three folders are made, and three are synced.
    const OPS: u64 = 6;

    #[test]
    fn a_directory_that_was_made_is_there_after_every_power_cut() {
        for outcome in 0..32 {
            let (files, mut made) = (SimFiles::new(outcome), Made::default());
            let created = create_dir(&files, Path::new(DIR), &mut made);
            made.keep();
            created.unwrap();
            assert_eq!(files.ops(), OPS);
            assert!(is_dir(&files.power_cycle(outcome), Path::new(DIR)), "seed {outcome}");
        }
    }

    #[test]
    fn a_file_in_the_place_of_a_folder_is_an_error_and_stays() {
        let above = tempfile::tempdir().unwrap();
        let file = above.path().join("file");
        std::fs::write(&file, "mine").unwrap();
        for dir in [file.clone(), file.join("dir")] {
            let mut made = Made::default();
            let created = create_dir(&Kernel, &dir, &mut made);
            assert!(matches!(created, Err(DirectoryError::File { .. })), "{}", dir.display());
            assert!(made.dirs.is_empty());
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    }

    #[test]
    fn a_directory_whose_name_is_not_made_durable_is_an_error() {
        for op in 0..OPS {
            let (files, mut made) = (SimFiles::new(op), Made::default());
            files.fail_at(op);
            let created = create_dir(&files, Path::new(DIR), &mut made);
            made.keep();
            assert!(matches!(created, Err(DirectoryError::File { .. })), "operation {op}");
        }
    }
}
