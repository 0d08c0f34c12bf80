//! Names of files: opening, creating and replacing files so that their names survive a loss of
//! power.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::sys::{FileSystem, OpenFile, Source};

/// The use for which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
    /// Reading and writing of a new file, which must not exist yet.
    New,
}

/// Opens a file. A file that is created is private to its owner (0600).
pub(super) fn open<S: FileSystem>(
    files: &S,
    path: &Path,
    access: Access,
) -> Result<S::File, Errno> {
    let flags = match access {
        Access::Read => OFlags::RDONLY,
        Access::Write => OFlags::RDWR,
        Access::New => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
    };
    retry_on_intr(|| files.open(path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR))
}

/// The folder that a path lies in.
#[must_use]
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes the name of a new file or folder durable.
///
/// # Errors
/// The folder that it lies in cannot be opened or synced.
pub fn sync_parent(files: &impl FileSystem, path: &Path) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = retry_on_intr(|| files.open(parent(path), flags, Mode::empty()))?;
    retry_on_intr(|| dir.fsync())
}

/// Replaces the contents of the file at `path`, or creates it. A loss of power leaves the old
/// contents or all of the new ones, and of a file that is new perhaps nothing: the name is not made
/// durable. The bytes go through a file beside it, whose name has `.new` at its end.
///
/// # Errors
/// Any call fails; the file at `path` is then as it was.
pub fn replace(files: &impl FileSystem, path: &Path, bytes: &[u8]) -> Result<(), Errno> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    match files.unlink(&beside) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = retry_on_intr(|| files.open(&beside, flags, Mode::from_raw_mode(0o666)))?;
    let mut done = 0;
    while done < bytes.len() {
        let rest = Source::borrowed(&bytes[done..]);
        match retry_on_intr(|| file.pwritev2(rest, done as u64, 0))? {
            0 => return Err(Errno::IO),
            taken => done += taken,
        }
    }
    // Without the sync, a loss of power could leave the name and no bytes.
    retry_on_intr(|| file.fsync())?;
    files.rename(&beside, path)
}
