//! A mapped file.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// A shared mapping of a whole file.
#[derive(Debug)]
pub(crate) struct Map {
    start: NonNull<u8>,
    len_bytes: usize,
}

impl Map {
    pub(crate) fn shared(file: &File, len_bytes: usize) -> io::Result<Self> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a fresh range that the kernel chooses, of the file's length. If another program
        // shortens the file, an access raises SIGBUS.
        let start = unsafe { mmap(std::ptr::null_mut(), len_bytes, prot, flags, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let map = Self { start, len_bytes };
        // Requests have random offsets. Without this advice a miss reads megabytes on a disk with a
        // long read-ahead. SAFETY: advice about this mapping changes no bytes.
        unsafe { madvise(map.start.as_ptr().cast(), len_bytes, Advice::Random) }?;
        Ok(map)
    }

    pub(crate) fn read(&self, offset: usize, buf: &mut [u8]) {
        self.check(offset, buf.len());
        // SAFETY: within the mapping (checked), which no reference points into, and apart from
        // `buf`.
        unsafe {
            let from = self.start.as_ptr().add(offset);
            std::ptr::copy_nonoverlapping(from, buf.as_mut_ptr(), buf.len());
        }
    }

    pub(crate) fn write(&self, offset: usize, buf: &[u8]) {
        self.check(offset, buf.len());
        // SAFETY: as in `read`.
        unsafe {
            let to = self.start.as_ptr().add(offset);
            std::ptr::copy_nonoverlapping(buf.as_ptr(), to, buf.len());
        }
    }

    fn check(&self, offset: usize, len: usize) {
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.len_bytes);
        assert!(fits, "{len} bytes at {offset} of a mapping of {}", self.len_bytes);
    }
}

// SAFETY: plain memory of the process, which belongs to no thread.
unsafe impl Send for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped in `shared` with this length, and no reference points into it. If it
        // fails, the range stays mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len_bytes) };
    }
}
