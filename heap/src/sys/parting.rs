//! A forked child and its parent: memory that both have mapped becomes the child's own.

use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, pwrite};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::mapping::Mapping;

/// Bytes copied at a time.
const PIECE_BYTES: u64 = 1 << 20;

impl Mapping {
    /// Copies a range to the same place of another file.
    ///
    /// # Errors
    /// The file system has no room.
    pub fn copy_to(&self, file: &OwnedFd, range: Range<u64>) -> Result<(), Errno> {
        assert!(range.end <= self.len_bytes(), "a range leaves its mapping");
        match fallocate(file, FallocateFlags::KEEP_SIZE, range.start, range.end - range.start) {
            // Writing then says whether there is room.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(PIECE_BYTES) as usize;
            // SAFETY: inside this mapping. Other threads of the parent may be storing to it: this child may not look
            // at what they were changing, by the rules of `fork`, and the kernel copies bytes whatever they are.
            let bytes =
                unsafe { std::slice::from_raw_parts(self.base().wrapping_add(at as usize), len) };
            match pwrite(file, bytes, at)? {
                0 => return Err(Errno::IO),
                written => at += written as u64,
            }
        }
        Ok(())
    }

    /// Maps another file of the same length at the same addresses.
    ///
    /// # Errors
    /// The system refuses; the mapping is as it was.
    pub fn replace(&self, file: &OwnedFd) -> Result<(), Errno> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let (at, len) = (self.base().cast(), self.len_bytes() as usize);
        // SAFETY: the addresses are this mapping's own, and what is mapped there now holds the bytes that were there
        // wherever anybody relies on them: the caller copied them.
        unsafe { mmap(at, len, protection, flags, file, 0) }.map(|_| ())
    }
}
