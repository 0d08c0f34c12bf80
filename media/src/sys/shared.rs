//! Memory for a medium's bytes, shared by threads that copy in and out.

use std::fs::File;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Mapped bytes, zeros at first or a file's. Copies that overlap at the same time mix, as on a
/// device.
pub(crate) struct SharedBytes {
    start: NonNull<u8>,
    len_bytes: usize,
    /// How pages become zeros again: a hole in a shared file, fresh pages in private memory.
    give_back: Advice,
}

impl SharedBytes {
    /// Zeros that take memory only when they are first written.
    pub(crate) fn anonymous(len_bytes: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address the system chooses.
        let start = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        }?;
        Self::at(start, len_bytes, Advice::LinuxDontNeed)
    }

    /// The first `len_bytes` of a file. If a program makes the file shorter, the next access ends
    /// this process.
    pub(crate) fn of_file(file: &File, len_bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address the system chooses.
        let start = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), len_bytes, protection, MapFlags::SHARED, file, 0)
        }?;
        Self::at(start, len_bytes, Advice::LinuxRemove)
    }

    fn at(start: *mut std::ffi::c_void, len_bytes: usize, give_back: Advice) -> io::Result<Self> {
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len_bytes, give_back })
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Asks for huge pages where the system has them: a random access then misses only the caches,
    /// not the page tables.
    pub(crate) fn gather(&self) {
        // SAFETY: advice about this mapping only; refused advice changes nothing.
        let _ = unsafe {
            rustix::mm::madvise(self.start.as_ptr().cast(), self.len_bytes, Advice::LinuxHugepage)
        };
    }

    #[inline]
    pub(crate) fn read(&self, offset_bytes: usize, buf: &mut [u8]) {
        self.assert_within(offset_bytes, buf.len());
        // SAFETY: within the mapping (asserted); `buf` is exclusive and so elsewhere. Bytes that
        // other threads write meanwhile are plain bytes whatever their values.
        unsafe {
            self.start
                .as_ptr()
                .add(offset_bytes)
                .copy_to_nonoverlapping(buf.as_mut_ptr(), buf.len())
        };
    }

    #[inline]
    pub(crate) fn write(&self, offset_bytes: usize, buf: &[u8]) {
        self.assert_within(offset_bytes, buf.len());
        // SAFETY: as in `read`, in the other direction.
        unsafe {
            self.start.as_ptr().add(offset_bytes).copy_from_nonoverlapping(buf.as_ptr(), buf.len())
        };
    }

    /// Makes a range zeros; whole pages of it take no memory any more.
    pub(crate) fn zero(&self, offset_bytes: usize, len_bytes: usize) -> io::Result<()> {
        self.assert_within(offset_bytes, len_bytes);
        let end = offset_bytes + len_bytes;
        let (pages_start, pages_end) =
            (offset_bytes.next_multiple_of(PAGE_BYTES).min(end), end / PAGE_BYTES * PAGE_BYTES);
        let fill = |from: usize, to: usize| {
            // SAFETY: within the mapping, as asserted above.
            unsafe { self.start.as_ptr().add(from).write_bytes(0, to - from) };
        };
        if pages_start >= pages_end {
            fill(offset_bytes, end);
            return Ok(());
        }
        fill(offset_bytes, pages_start);
        fill(pages_end, end);
        // SAFETY: within the mapping; only bytes that become zeros are dropped.
        unsafe {
            let start = self.start.as_ptr().add(pages_start).cast();
            let len = pages_end - pages_start;
            if rustix::mm::madvise(start, len, self.give_back).is_err() {
                fill(pages_start, pages_end);
            }
        }
        Ok(())
    }

    fn assert_within(&self, offset_bytes: usize, len_bytes: usize) {
        let end = offset_bytes.checked_add(len_bytes);
        assert!(
            end.is_some_and(|end| end <= self.len_bytes),
            "{len_bytes} bytes at {offset_bytes} of {}",
            self.len_bytes
        );
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        // SAFETY: mapped in `anonymous` or `of_file`, released only here; no reference into it is
        // ever given out.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len_bytes) };
    }
}

// SAFETY: plain bytes; each access is a copy that allows for others (see the type).
unsafe impl Send for SharedBytes {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes {}

const PAGE_BYTES: usize = 4096;
