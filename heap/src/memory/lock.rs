//! The lock of a heap's file, so that one heap has it at a time.

use std::fs::File;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::sys::forks;

/// A heap's file, locked (`flock`) until this is dropped.
///
/// The lock belongs to the open file, of which a forked child has a descriptor, too: a process that
/// another thread starts keeps it until it executes its program. Closing the own descriptor would
/// leave the file in use for as long, so the lock is released by name. A child that drops its copy
/// of a heap releases nothing: its parent goes on with the heap.
#[derive(Debug)]
pub(super) struct LockedFile {
    file: File,
    /// The process that took the lock, as [`forks::forks`] numbers it.
    process: u32,
}

impl LockedFile {
    /// Locks a file without waiting.
    ///
    /// # Errors
    /// [`Errno::WOULDBLOCK`] if another heap has the file; others if the system refuses.
    pub(super) fn lock(file: File, how: FlockOperation) -> Result<Self, Errno> {
        forks::watch()?;
        flock(&file, how)?;
        Ok(Self { file, process: forks::forks() })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if self.process == forks::forks() {
            // If this fails, the lock ends with the last descriptor.
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_took_the_lock_releases_it_and_no_copy_of_a_descriptor_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("heap");
        std::fs::write(&path, "").unwrap();
        let lock = || {
            LockedFile::lock(File::open(&path).unwrap(), FlockOperation::NonBlockingLockExclusive)
        };
        let mut first = lock().unwrap();
        // A process has such a descriptor between its fork and its exec.
        let inherited = first.file.try_clone().unwrap();
        first.process += 1;
        drop(first);
        assert_eq!(lock().err(), Some(Errno::WOULDBLOCK), "a child has released the lock");
        drop(inherited);
        let second = lock().unwrap();
        let inherited = second.file.try_clone().unwrap();
        drop(second);
        lock().unwrap();
        drop(inherited);
    }
}
