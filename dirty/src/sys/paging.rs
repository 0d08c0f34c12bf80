//! Calls for paged memory: giving pages memory, taking them out of the page table, and finding
//! those that are in it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use super::mapping::{Mapping, SharedMemory};

const PAGE_BYTES: u64 = 4096;

impl SharedMemory {
    /// Gives a range of the file pages of zeros where it has none. Async-signal-safe.
    pub fn provide(&self, offset: u64, len_bytes: u64) -> Result<(), Errno> {
        loop {
            match fallocate(self.fd(), FallocateFlags::empty(), offset, len_bytes) {
                Err(Errno::INTR) => {}
                outcome => return outcome,
            }
        }
    }
}

impl Mapping {
    /// Takes whole pages of a shared mapping out of the page table; the file keeps their bytes.
    /// Async-signal-safe.
    pub fn take_out(&self, offset: u64, len_bytes: u64) -> Result<(), Errno> {
        assert!(offset + len_bytes <= self.len_bytes(), "a range leaves its mapping");
        let at = self.base().wrapping_add(offset as usize);
        // SAFETY: inside this mapping, which is of a file: no byte changes, the next touch faults.
        unsafe { madvise(at.cast(), len_bytes as usize, Advice::LinuxDontNeed) }
    }

    /// Says of each page of the mapping whether it is in the page table.
    pub fn entered_pages(&self) -> std::io::Result<Vec<bool>> {
        const PRESENT: u64 = 1 << 63;
        let mut words = vec![0; (self.len_bytes() / PAGE_BYTES * 8) as usize];
        let at = self.base() as u64 / PAGE_BYTES * 8;
        File::open("/proc/self/pagemap")?.read_exact_at(&mut words, at)?;
        let (words, _) = words.as_chunks::<8>();
        Ok(words.iter().map(|word| u64::from_ne_bytes(*word) & PRESENT != 0).collect())
    }

    /// Stores zeros to a range.
    ///
    /// # Safety
    /// Nobody else uses them meanwhile.
    pub unsafe fn clear(&self, offset: u64, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.bytes_mut(offset, len) }.fill(0);
    }
}
