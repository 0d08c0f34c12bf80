//! The system calls by which files become durable, as traits. The kernel answers them, or in tests
//! the simulated files, which lose what was not synced.
//!
//! The implementations over the kernel choose nothing: flags, offsets and lengths come from the
//! caller. So the simulation judges every choice that a program on a real disk depends on.

use std::fmt::Debug;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::Source;

/// Calls that take a path.
pub trait FileSystem {
    /// An open file or folder.
    type File: OpenFile;

    /// Opens or creates a file, or opens a folder, as `open(2)`.
    fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<Self::File, Errno>;
    /// Creates a folder.
    fn mkdir(&self, path: &Path, mode: Mode) -> Result<(), Errno>;
    /// Gives a file another name, in the place of the file that has that name.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Errno>;
    /// Removes the name of a file.
    fn unlink(&self, path: &Path) -> Result<(), Errno>;
}

/// Calls on an open file or folder. Each is made once: the caller repeats an interrupted one.
pub trait OpenFile: Debug + Send + Sync + Sized + 'static {
    /// A submission ring for writes to such files.
    type Ring: WriteRing<Self>;

    /// The kind of file.
    fn kind(&self) -> Result<FileKind, Errno>;
    /// Size of a file or of a block device, bytes.
    fn end_bytes(&self) -> Result<u64, Errno>;
    /// The flags of the open file description.
    fn flags(&self) -> Result<OFlags, Errno>;
    /// Changes the flags of the open file description, for every process that shares it.
    fn set_flags(&self, flags: OFlags) -> Result<(), Errno>;
    /// Reserves space for the first `len_bytes` and makes the file at least that long.
    fn fallocate(&self, len_bytes: u64) -> Result<(), Errno>;
    /// Reads some bytes; 0 at the end of the file.
    fn pread(&self, buf: &mut [u8], offset_bytes: u64) -> Result<usize, Errno>;
    /// Makes several reads, together if that can be done: each fills its bytes from its offset, as
    /// far as one call does. Returns the bytes read by each.
    fn pread_many(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<usize, Errno>> {
        reads.iter_mut().map(|(offset_bytes, buf)| self.pread(buf, *offset_bytes)).collect()
    }
    /// Writes some bytes, with flags of `pwritev2(2)`.
    fn pwritev2(&self, source: Source<'_>, offset_bytes: u64, flags: i32) -> Result<usize, Errno>;
    /// Makes completed writes and the size durable.
    fn fdatasync(&self) -> Result<(), Errno>;
    /// Makes a file, or the names in a folder, durable.
    fn fsync(&self) -> Result<(), Errno>;
}

/// Calls on a submission ring. The caller bounds the writes in flight by the ring's size.
pub trait WriteRing<F>: Send + Sized {
    /// A ring for at most `entries` writes at a time.
    fn new(entries: u32) -> Result<Self, Errno>;
    /// Queues a write; [`WriteRing::enter`] hands it to the kernel.
    fn push_write(&mut self, file: &F, offset_bytes: u64, source: Source<'static>, user_data: u64);
    /// Whether some pushed writes have not reached the kernel yet.
    fn unsubmitted(&mut self) -> bool;
    /// Submits pushed writes and waits until `at_least` completions can be reaped. Returns early,
    /// without error, when interrupted or when the kernel is short of memory: the caller tries
    /// again.
    fn enter(&mut self, at_least: usize) -> Result<(), Errno>;
    /// The next completion: the number given to `push_write`, and the bytes written or the error.
    fn reap(&mut self) -> Option<(u64, Result<usize, Errno>)>;
}

/// The kind of file behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    BlockDevice,
    /// Anything else: a folder, a terminal.
    Other,
}
