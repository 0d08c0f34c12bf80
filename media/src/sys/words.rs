//! Words in a file, mapped shared: a stored word survives the process.

use std::fs::File;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering::*};

use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The words; zeros at first.
#[derive(Debug)]
pub(crate) struct SharedWords {
    start: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: all access is atomic.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// Makes an empty file so long and maps it. Its space is reserved now where the file system can
    /// do so: a store to a page without space ends the process.
    pub(crate) fn reserve(file: &File, len_bytes: u64) -> Result<Self, Errno> {
        match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, len_bytes)) {
            Err(Errno::OPNOTSUPP) => retry_on_intr(|| ftruncate(file, len_bytes))?,
            outcome => outcome?,
        }
        let len = usize::try_from(len_bytes).map_err(|_| Errno::OVERFLOW)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: fresh addresses that the kernel chooses.
        let start = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, len: len / size_of::<u64>() })
    }

    #[inline]
    fn at(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.len, "a word outside the mapping");
        // SAFETY: inside the mapping (just checked), which lives as long as `self`; any bytes are a
        // valid word.
        unsafe { self.start.add(index).as_ref() }
    }

    #[inline]
    pub(crate) fn load(&self, index: usize) -> u64 {
        self.at(index).load(Acquire)
    }

    #[inline]
    pub(crate) fn store(&self, index: usize, value: u64) {
        self.at(index).store(value, Release);
    }

    /// Adds to a word, and returns its value before.
    #[inline]
    pub(crate) fn add(&self, index: usize, value: u64) -> u64 {
        self.at(index).fetch_add(value, AcqRel)
    }

    /// Raises a word to at least `value`.
    #[inline]
    pub(crate) fn raise(&self, index: usize, value: u64) {
        // The word hardly ever changes, so it is read first: a write would take its cache line.
        if self.at(index).load(Relaxed) < value {
            self.at(index).fetch_max(value, AcqRel);
        }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: mapped by `reserve`, and no reference into it is left.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len * size_of::<u64>()) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own");
    }
}
