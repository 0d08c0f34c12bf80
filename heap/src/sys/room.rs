//! Room in the file system for a file without a name, in a process whose other code does not know
//! the file.
//!
//! Other code may close any descriptor and get the same number again; shells and daemons do. So the
//! file's descriptor has a number out of the way, and is used only while it still means this file;
//! otherwise pages get their room by being written to. Either way no store meets a full file
//! system, which would end the program.

use std::ops::Range;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::*};

use rustix::fs::{FallocateFlags, fallocate, fstat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};

use super::mapping::{Advice, Backed, Mapping};

/// Least number of the file's descriptor. Programs that count on certain numbers use lower ones,
/// and a table of descriptors of this length is still short.
const NUMBER_LEAST: u64 = 1000;

/// The descriptor of a file without a name, as long as it can be found.
#[derive(Debug)]
pub struct Room {
    /// Number of the descriptor; -1 for none.
    number: AtomicI32,
    /// The file's device, which with its inode tells it from all other files while it is mapped.
    device: AtomicU64,
    inode: AtomicU64,
}

impl Room {
    /// Keeps a file's descriptor under another number. The file must be mapped as long as this
    /// lives.
    pub fn of(file: OwnedFd) -> Self {
        let room = Self { number: (-1).into(), device: 0.into(), inode: 0.into() };
        room.keep(file);
        room
    }

    /// Gives a range of whole pages of the mapping its room.
    ///
    /// # Errors
    /// The file system has no room.
    pub fn reserve(&self, mapping: &Mapping, range: Range<u64>) -> Result<(), Errno> {
        if mapping.backed() == Backed::Nothing {
            return Ok(());
        }
        let (offset, len) = (range.start, range.end - range.start);
        if let Some(file) = self.descriptor() {
            match fallocate(file, FallocateFlags::KEEP_SIZE, offset, len) {
                Err(Errno::OPNOTSUPP) => {}
                outcome => return outcome,
            }
        }
        // SAFETY: this changes no byte.
        match unsafe { mapping.advise(offset, len as usize, Advice::Populate) } {
            // A store there would have met a full file system.
            Err(Errno::FAULT) => Err(Errno::NOSPC),
            outcome => outcome,
        }
    }

    /// Goes on with another file, which is mapped in the place of this one.
    pub fn replace(&self, file: OwnedFd) {
        self.let_go();
        self.keep(file);
    }

    /// Closes the descriptor, if it is still the file's.
    pub fn let_go(&self) {
        if let Some(number) = self.is_found() {
            // SAFETY: the descriptor is this file's (just compared), so nobody else's to close.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
        self.number.store(-1, Relaxed);
    }

    fn keep(&self, file: OwnedFd) {
        let soft = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let least = NUMBER_LEAST.min(soft / 4 * 3) as RawFd;
        let kept = fstat(&file).and_then(|found| {
            self.device.store(found.st_dev, Relaxed);
            self.inode.store(found.st_ino, Relaxed);
            fcntl_dupfd_cloexec(&file, least)
        });
        self.number.store(kept.map_or(-1, IntoRawFd::into_raw_fd), Relaxed);
    }

    /// The file's descriptor, if it still means the file.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: it is open now. If another thread closes and opens so many meanwhile that a file
        // of its own gets this number, that gets room beyond its end, and no other byte.
        self.is_found().map(|number| unsafe { BorrowedFd::borrow_raw(number) })
    }

    fn is_found(&self) -> Option<RawFd> {
        let number = self.number.load(Relaxed);
        if number < 0 {
            return None;
        }
        // SAFETY: asks about a number, which may mean nothing.
        let found = fstat(unsafe { BorrowedFd::borrow_raw(number) }).ok()?;
        let is_same =
            found.st_dev == self.device.load(Relaxed) && found.st_ino == self.inode.load(Relaxed);
        is_same.then_some(number)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.let_go();
    }
}
