//! Changes to a mapping that trapped tracking needs besides write-protection, and copies beside
//! threads that use the same bytes.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;
use rustix::mm::{Advice, MprotectFlags, madvise, mprotect};

use super::mapping::Mapping;

/// The access that a mapped range allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No access: any touch is a SIGSEGV.
    None,
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
}

impl Mapping {
    /// Leaves the mapping out of forked children, because a store by a child would not be trapped.
    pub fn dont_fork(&self) -> Result<(), Errno> {
        // SAFETY: changes only what a later fork copies.
        unsafe { madvise(self.base().cast(), self.len_bytes() as usize, Advice::LinuxDontFork) }
    }

    /// Sets the access that a range of whole pages allows. Async-signal-safe.
    pub(crate) fn set_access(&self, offset: u64, len: usize, access: Access) -> Result<(), Errno> {
        let flags = match access {
            Access::None => MprotectFlags::empty(),
            Access::Read => MprotectFlags::READ,
            Access::Write => MprotectFlags::READ | MprotectFlags::WRITE,
        };
        assert!(offset + len as u64 <= self.len_bytes(), "a range leaves its mapping");
        // SAFETY: the range lies in this mapping; no byte changes. Threads that store into a range
        // that became read-only get a signal, which is what the caller is after.
        unsafe { mprotect(self.base().wrapping_add(offset as usize).cast(), len, flags) }
    }

    /// Gives a page its memory as a store would, or returns why a store would fail.
    pub(crate) fn populate(&self, offset: u64, len: usize) -> Result<(), Errno> {
        assert!(offset + len as u64 <= self.len_bytes(), "a range leaves its mapping");
        // SAFETY: the range lies in this mapping; no byte changes.
        unsafe {
            let start = self.base().wrapping_add(offset as usize);
            madvise(start.cast(), len, Advice::LinuxPopulateWrite)
        }
    }

    /// Forbids `mremap`, `munmap` and `mprotect` of a range until the process ends, which also
    /// keeps its memory until then. `ENOSYS` before Linux 6.10.
    pub(crate) fn seal(&self, offset: u64, len: usize) -> Result<(), Errno> {
        assert!(offset + len as u64 <= self.len_bytes(), "a range leaves its mapping");
        let start = self.base().wrapping_add(offset as usize);
        // SAFETY: mseal takes a range and flags, and changes no byte.
        let outcome = unsafe { libc::syscall(libc::SYS_mseal, start, len, 0usize) };
        if outcome == 0 {
            return Ok(());
        }
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }

    /// Copies bytes out that other threads may be changing. Each byte copied is one that was there.
    pub fn copy_out(&self, offset: u64, out: &mut [u8]) {
        let (head, words) = split(offset, out.len());
        let (first, rest) = out.split_at_mut(head);
        let (middle, last) = rest.split_at_mut(words * 8);
        let octets = |at: u64, out: &mut [u8]| {
            let bytes = self.octets(at, out.len());
            for (place, byte) in out.iter_mut().zip(bytes) {
                *place = AtomicU8::load(byte, Relaxed);
            }
        };
        octets(offset, first);
        if words == 0 {
            return octets(offset + head as u64, last);
        }
        let at = offset + head as u64;
        for (place, word) in middle.chunks_exact_mut(8).zip(self.words(at, words)) {
            place.copy_from_slice(&AtomicU64::load(word, Relaxed).to_ne_bytes());
        }
        octets(at + words as u64 * 8, last);
    }

    /// Copies bytes in that other threads may be reading or changing.
    pub fn copy_in(&self, offset: u64, bytes: &[u8]) {
        let (head, words) = split(offset, bytes.len());
        let (first, rest) = bytes.split_at(head);
        let (middle, last) = rest.split_at(words * 8);
        let octets = |at: u64, bytes: &[u8]| {
            for (byte, place) in bytes.iter().zip(self.octets(at, bytes.len())) {
                place.store(*byte, Relaxed);
            }
        };
        octets(offset, first);
        if words == 0 {
            return octets(offset + head as u64, last);
        }
        let at = offset + head as u64;
        for (chunk, place) in middle.chunks_exact(8).zip(self.words(at, words)) {
            let word = chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            place.store(u64::from_le(word), Relaxed);
        }
        octets(at + words as u64 * 8, last);
    }
}

/// The number of bytes before the first aligned word, and of whole words after them.
fn split(offset: u64, len: usize) -> (usize, usize) {
    let head = ((offset.wrapping_neg() & 7) as usize).min(len);
    (head, (len - head) / 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::SharedMemory;

    #[test]
    fn what_is_copied_in_or_out_is_the_range_and_no_byte_beside_it() {
        let map = SharedMemory::create("test", 4096).unwrap().map().unwrap();
        let all = || Vec::from_iter(map.octets(0, 64).iter().map(|byte| byte.load(Relaxed)));
        for offset in 8..24_usize {
            for len in 0..=40 {
                map.octets(0, 64).iter().for_each(|byte| byte.store(0, Relaxed));
                let bytes: Vec<u8> = (1..=len as u8).collect();
                map.copy_in(offset as u64, &bytes);
                let mut expected = vec![0; 64];
                expected[offset..offset + len].copy_from_slice(&bytes);
                assert_eq!(all(), expected, "{len} bytes at {offset}");
                let mut out = vec![77; len];
                map.copy_out(offset as u64, &mut out);
                assert_eq!(out, bytes, "{len} bytes at {offset}");
            }
        }
    }
}
