//! A disk as a file: a mounted directory holds one file, `disk`, of the disk's size. Root can put a
//! file system on it through a loop device.
//!
//! The file neither grows nor shrinks. By default it bypasses the page cache, so that each access
//! reaches the modelled medium and waits for it; [`WORKERS`] requests do so at a time. `fsync` is a
//! flush; punching a hole is a discard. Failure rule: a mount whose server died is recognised, and
//! never mounted over.

mod files;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{BackgroundSession, Config, MountOption, Session};
use parking_lot::Mutex;
use perdura_media::emulator::TimingError;

use crate::disk::Disk;
use files::Files;

/// The name of the file.
pub const FILE_NAME: &str = "disk";

/// Threads that serve the file, and so the number of requests that overlap.
pub const WORKERS: usize = 8;

/// Why a directory cannot be mounted, or a mount cannot be ended.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The mount of a server that died is still there.
    #[error(
        "{path}: the mount of a server that died is still there; end what uses it (umount of the \
         file system on it, losetup -d), then: fusermount3 -u {path} (or umount -l {path})",
        path = .0.display()
    )]
    Stale(PathBuf),
    /// Another file system is mounted on the directory.
    #[error(
        "{path}: something is mounted there; unmount it, or choose another directory",
        path = .0.display()
    )]
    Taken(PathBuf),
    /// The path is not a directory.
    #[error("{path}: no directory; make it first", path = .0.display())]
    NotADirectory(PathBuf),
    /// The directory has entries, which the mount would hide.
    #[error("{path}: not empty; a mount would hide what is there", path = .0.display())]
    NotEmpty(PathBuf),
    /// The system refused the mount.
    #[error(
        "{path}: mount failed: {source} (root, or fusermount3 and /dev/fuse, are needed)",
        path = path.display()
    )]
    Mount {
        /// Path of the directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The directory cannot be read, or the mount cannot be ended.
    #[error("{path}: {source}", path = path.display())]
    System {
        /// Path of the directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

/// A mounted disk.
pub struct Mount {
    path: PathBuf,
    session: BackgroundSession,
    timing_error: Arc<Mutex<TimingError>>,
}

/// The end of a mount.
#[derive(Clone, Copy, Debug)]
pub struct Unmounted {
    /// Whether the mount was still in use. Programs that use it get errors from now on.
    pub was_busy: bool,
    /// Modelled against measured time of the accesses.
    pub timing_error: TimingError,
}

impl Mount {
    /// Mounts the disk. With `cached`, accesses go through the page cache, which answers some of
    /// them without the medium.
    ///
    /// # Errors
    /// The directory is not free, or the system refuses.
    pub fn new(path: &Path, disk: Arc<dyn Disk>, cached: bool) -> Result<Self, MountError> {
        let path = free_directory(path)?;
        let timing_error = Arc::new(Mutex::new(TimingError::default()));
        let read_only = disk.is_read_only();
        let files = Files::new(disk, cached, Arc::clone(&timing_error));
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("perdura".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoExec,
            if read_only { MountOption::RO } else { MountOption::RW },
        ];
        config.n_threads = Some(WORKERS);
        config.clone_fd = true;
        let failed = |source| MountError::Mount { path: path.clone(), source };
        let session = Session::new(files, &path, &config).map_err(failed)?;
        let session = session.spawn().map_err(failed)?;
        Ok(Self { path, session, timing_error })
    }

    /// Path of the file that has the disk's bytes.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.path.join(FILE_NAME)
    }

    /// Ends the mount, even while programs still use it.
    ///
    /// # Errors
    /// The system refuses.
    pub fn unmount(self) -> Result<Unmounted, MountError> {
        let Self { path, session, timing_error } = self;
        let system = |source| MountError::System { path: path.clone(), source };
        let busy = rustix::io::Errno::BUSY.raw_os_error();
        let was_busy = match session.umount_and_join() {
            Ok(()) => false,
            Err(error) if error.raw_os_error() == Some(busy) => {
                // The workers end with the process; programs that still use the mount then get
                // errors.
                let detach = rustix::mount::UnmountFlags::DETACH;
                rustix::mount::unmount(&path, detach).map_err(|error| system(error.into()))?;
                true
            }
            Err(error) => return Err(system(error)),
        };
        let timing_error = *timing_error.lock();
        Ok(Unmounted { was_busy, timing_error })
    }
}

/// Returns the directory's full path if it can be mounted on.
fn free_directory(path: &Path) -> Result<PathBuf, MountError> {
    use std::os::unix::fs::MetadataExt;
    let system = |source| MountError::System { path: path.to_owned(), source };
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(MountError::NotADirectory(path.to_owned()));
        }
        Err(error) => return Err(dead_or(path, error)),
    };
    if !found.is_dir() {
        return Err(MountError::NotADirectory(path.to_owned()));
    }
    // The kernel may still remember what a dead server said of the directory, so its entries are
    // read.
    let mut entries = std::fs::read_dir(path).map_err(|error| dead_or(path, error))?;
    let full = path.canonicalize().map_err(system)?;
    let parent = full.parent().unwrap_or(&full).metadata().map_err(system)?;
    if parent.dev() != found.dev() {
        return match entries.next() {
            Some(Err(error)) => Err(dead_or(&full, error)),
            _ => Err(MountError::Taken(full)),
        };
    }
    match entries.next() {
        None => Ok(full),
        Some(_) => Err(MountError::NotEmpty(full)),
    }
}

/// Recognises the error that a mount gives whose server died.
fn dead_or(path: &Path, source: io::Error) -> MountError {
    match source.raw_os_error() {
        Some(code) if code == rustix::io::Errno::NOTCONN.raw_os_error() => {
            MountError::Stale(path.to_owned())
        }
        _ => MountError::System { path: path.to_owned(), source },
    }
}
