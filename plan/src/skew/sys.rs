//! The seam to the processor and the system: prefetching, huge pages, a mapped file without a name.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// Bytes below which huge pages are not asked for.
const HUGE_BYTES: usize = 4 << 20;

/// Brings the cache line of `slice[at]` nearer, if there is such an element.
#[inline]
pub fn prefetch<T>(slice: &[T], at: usize) {
    if at >= slice.len() {
        return;
    }
    let address = slice.as_ptr().wrapping_add(at).cast::<i8>();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching has no effect on memory and faults nowhere; the address is of an element of the slice.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks for huge pages below a large slice: a random access then misses the cache only, not also the page tables. A system
/// that has none refuses, and nothing is lost but speed.
pub fn prefer_huge_pages<T>(slice: &mut [T]) {
    const PAGE: usize = 4096;
    let bytes = size_of_val(slice);
    if bytes < HUGE_BYTES {
        return;
    }
    let start = slice.as_mut_ptr() as usize;
    let first = start.next_multiple_of(PAGE);
    let len = (start + bytes - first) / PAGE * PAGE;
    // SAFETY: the range is whole pages inside the slice, which this call borrows; the advice changes no content.
    // A refusal is the documented outcome without huge pages.
    let _ = unsafe { madvise(first as *mut _, len, Advice::LinuxHugepage) };
}

/// Numbers in a temporary file that has no name: the system may write them out and take their memory.
pub struct MappedCounts {
    base: *mut u32,
    len: usize,
}

// SAFETY: the mapping is owned by this value alone and reached through its borrows only.
unsafe impl Send for MappedCounts {}

impl MappedCounts {
    /// `len` zeros.
    pub fn new(len: usize, dir: &Path) -> io::Result<Self> {
        let bytes = len * size_of::<u32>();
        let file: File = tempfile::tempfile_in(dir)?;
        // Reserved, not only made longer: a full file system refuses here, in the place of SIGBUS at a store.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64)?;
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; nobody else has the file.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, both, MapFlags::SHARED, &file, 0)? };
        Ok(Self { base: base.cast(), len })
    }
}

impl std::ops::Deref for MappedCounts {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        // SAFETY: `base` maps `len` zeroed or written `u32` until drop, aligned to a page; borrows follow `self`'s.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }
}

impl std::ops::DerefMut for MappedCounts {
    fn deref_mut(&mut self) -> &mut [u32] {
        // SAFETY: as for `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }
}

impl Drop for MappedCounts {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, unmapped once; no borrow outlives `self`. Unmapping it whole cannot fail.
        let _ = unsafe { munmap(self.base.cast(), self.len * size_of::<u32>()) };
    }
}
