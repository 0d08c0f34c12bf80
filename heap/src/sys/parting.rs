//! Parting a forked child from its parent: memory that both have mapped becomes the child's own.

use std::mem;
use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, pwrite};
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap, mremap_fixed};

use super::copy::copy_out;
use super::mapping::Mapping;

/// Bytes that are copied at a time.
const PIECE_BYTES: u64 = 1 << 20;

impl Mapping {
    /// Copies a range to the same place of another file.
    ///
    /// # Errors
    /// The file system has no room.
    pub fn copy_to(&self, file: &OwnedFd, range: Range<u64>) -> Result<(), Errno> {
        assert!(range.end <= self.len_bytes(), "a range leaves its mapping");
        match fallocate(file, FallocateFlags::KEEP_SIZE, range.start, range.end - range.start) {
            // Writing the bytes then shows whether there is room.
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(PIECE_BYTES) as usize;
            let from = self.base().wrapping_add(at as usize);
            // SAFETY: inside this mapping. Other threads of the parent may be storing to it: this
            // child may not look at what they were changing, by the rules of `fork`, and the kernel
            // copies bytes whatever they are.
            let bytes = unsafe { std::slice::from_raw_parts(from, len) };
            match pwrite(file, bytes, at)? {
                0 => return Err(Errno::IO),
                written => at += written as u64,
            }
        }
        Ok(())
    }

    /// Copies a range to the same place of private memory of the same length, which no other thread
    /// has yet.
    pub fn copy_to_private(&self, copy: &Self, range: Range<u64>) {
        let len = (range.end - range.start) as usize;
        assert!(
            range.end <= self.len_bytes() && range.end <= copy.len_bytes(),
            "a range leaves its mapping"
        );
        let at = |mapping: &Self| mapping.base().wrapping_add(range.start as usize);
        // SAFETY: inside both mappings (just checked), of which the copy is the caller's alone.
        // What other threads store meanwhile nobody may look at in the child, as above.
        unsafe { copy_out(at(self), std::slice::from_raw_parts_mut(at(copy), len)) };
    }

    /// Puts private memory of the same length in the place of this mapping's memory, which is
    /// private from now on.
    ///
    /// # Errors
    /// The system refuses; the mapping is as it was.
    pub fn replace_by_private(&self, copy: Self) -> Result<(), Errno> {
        assert_eq!(self.len_bytes(), copy.len_bytes(), "a copy is of all");
        let len = self.len_bytes() as usize;
        let flags = MremapFlags::MAYMOVE;
        // SAFETY: as in `replace`; the copy's own addresses are given up with it.
        unsafe { mremap_fixed(copy.base().cast(), len, len, flags, self.base().cast()) }?;
        mem::forget(copy);
        self.become_private();
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
        // SAFETY: the addresses are this mapping's own, and what is mapped there now holds the
        // bytes that were there wherever anybody relies on them: the caller copied them.
        unsafe { mmap(at, len, protection, flags, file, 0) }.map(|_| ())
    }
}
