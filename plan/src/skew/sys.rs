//! The seam to the processor and the system: prefetching, huge pages, and a mapped file without a
//! name.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::File;
use std::io;
use std::path::Path;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use zerocopy::FromZeros;

/// Larger memory is mapped by itself, so that it goes back to the system when it is freed and
/// leaves no hole in the heap.
const MAPPED_BYTES: usize = 64 << 10;
/// The bytes of a huge page.
const HUGE_BYTES: usize = 2 << 20;
/// The bytes that mappings are multiples of.
const PAGE_BYTES: usize = 4096;

/// Brings the cache line of `slice[at]` nearer, if there is such an element.
#[inline]
pub fn prefetch<T>(slice: &[T], at: usize) {
    if at >= slice.len() {
        return;
    }
    let address = slice.as_ptr().wrapping_add(at).cast::<i8>();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching has no effect on memory and faults nowhere; the address is of an element
    // of the slice.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// A slice that begins as zeros. Large ones are mapped by themselves, in huge pages where the
/// system has them: a random access then misses the cache only, not also the page tables, and what
/// is given up goes back to the system at once.
pub struct Zeroed<T> {
    base: *mut T,
    len: usize,
}

// SAFETY: the memory is owned by this value alone and reached through its borrows only.
unsafe impl<T: Send> Send for Zeroed<T> {}
// SAFETY: shared borrows only read.
unsafe impl<T: Sync> Sync for Zeroed<T> {}

impl<T: FromZeros + Copy> Zeroed<T> {
    /// Maps `len` elements of zeros; `len` is not 0.
    pub fn new(len: usize) -> Self {
        let Ok(layout) = Layout::array::<T>(len.max(1)) else {
            handle_alloc_error(Layout::new::<T>())
        };
        let base = if layout.size() < MAPPED_BYTES {
            // SAFETY: the layout has a size above zero.
            unsafe { alloc_zeroed(layout) }.cast::<T>()
        } else {
            // Aligned by hand: a system gives zeroed pages, but to allocate them aligned is to
            // write the zeros once more.
            map_zeros(layout.size()).cast::<T>()
        };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        Self { base, len: len.max(1) }
    }

    /// The bytes that the mapping takes.
    pub fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }
}

/// Zeros, at a multiple of a huge page if they are as large; null if there is no memory. What is
/// left over of the last huge page is small pages.
fn map_zeros(bytes: usize) -> *mut u8 {
    let bytes = bytes.next_multiple_of(PAGE_BYTES);
    let room = bytes + HUGE_BYTES;
    let both = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private mapping at an address of the kernel's choice.
    let Ok(start) =
        (unsafe { mmap_anonymous(std::ptr::null_mut(), room, both, MapFlags::PRIVATE) })
    else {
        return std::ptr::null_mut();
    };
    let align = if bytes < HUGE_BYTES { PAGE_BYTES } else { HUGE_BYTES };
    let before = start.align_offset(align);
    let base = start.wrapping_byte_add(before);
    // SAFETY: what lies before and after the aligned range is of this mapping and was given to
    // nobody. What cannot be unmapped stays reserved, untouched; the advice changes no content, and
    // is refused where there are no huge pages.
    unsafe {
        if before > 0 {
            let _ = munmap(start, before);
        }
        if before < HUGE_BYTES {
            let _ = munmap(base.wrapping_byte_add(bytes), HUGE_BYTES - before);
        }
        if bytes >= HUGE_BYTES {
            let _ = madvise(base, bytes, Advice::LinuxHugepage);
        }
    }
    base.cast()
}

impl<T> std::ops::Deref for Zeroed<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements from `base`, zeroed or written, live until drop; borrows follow
        // `self`'s.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }
}

impl<T> std::ops::DerefMut for Zeroed<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }
}

impl<T> Drop for Zeroed<T> {
    fn drop(&mut self) {
        let Ok(layout) = Layout::array::<T>(self.len) else { return };
        if layout.size() < MAPPED_BYTES {
            // SAFETY: allocated by `new` with this layout; elements are `Copy`, so there is nothing
            // to drop.
            unsafe { dealloc(self.base.cast(), layout) };
        } else {
            // SAFETY: mapped by `new` with this length; no borrow outlives `self`. Unmapping it
            // whole cannot fail.
            let _ = unsafe { munmap(self.base.cast(), layout.size().next_multiple_of(PAGE_BYTES)) };
        }
    }
}

/// Numbers in a temporary file that has no name: the system may write them out and take their
/// memory.
pub struct MappedCounts {
    base: *mut u32,
    len: usize,
}

// SAFETY: the mapping is owned by this value alone and reached through its borrows only.
unsafe impl Send for MappedCounts {}

impl MappedCounts {
    /// Maps a file of `len` zeros in `dir`.
    pub fn new(len: usize, dir: &Path) -> io::Result<Self> {
        let bytes = len * size_of::<u32>();
        let file: File = tempfile::tempfile_in(dir)?;
        // Reserved, not only made longer: a full file system refuses here, in the place of SIGBUS
        // at a store.
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
        // SAFETY: `base` maps `len` zeroed or written `u32` until drop, aligned to a page; borrows
        // follow `self`'s.
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
        // SAFETY: the mapping of `new`, unmapped once; no borrow outlives `self`. Unmapping it
        // whole cannot fail.
        let _ = unsafe { munmap(self.base.cast(), self.len * size_of::<u32>()) };
    }
}
