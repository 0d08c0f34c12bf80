//! The functions that are replaced. They treat `errno`, null pointers and sizes of zero as the C
//! library does.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};

use perdura_heap::Heap;

use crate::malloc::{elsewhere, heap, passed};
use crate::{next, say};

/// Bytes from which on a growing block gets a fifth more than was asked for, because no block can
/// grow in place.
const GROWS_BYTES: usize = 64 << 10;

/// Bytes from which on `calloc` gives pages back to the kernel instead of writing zeros.
const EMPTIED_BYTES: usize = 1 << 20;

/// Allocates `bytes` at a multiple of `align`, a power of two.
#[inline]
fn take(bytes: usize, align: usize) -> *mut c_void {
    if let Some(heap) = heap::heap()
        && let Ok(memory) = heap.cap_alloc_aligned(bytes.max(1) as u64, align.max(16) as u64)
    {
        return memory.as_ptr().cast();
    }
    take_elsewhere(bytes, align)
}

#[cold]
fn take_elsewhere(bytes: usize, align: usize) -> *mut c_void {
    let memory = elsewhere::alloc(bytes, align);
    if memory.is_null() {
        set_errno(libc::ENOMEM);
    }
    memory
}

/// The heap, if the memory comes from the heap.
#[inline]
fn heap_of(memory: *mut c_void) -> Option<&'static Heap> {
    heap::heap().filter(|heap| heap.offset_of(memory.cast()).is_some())
}

/// Allocates `bytes`; returns null and sets `ENOMEM` if there is no memory.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn malloc(bytes: usize) -> *mut c_void {
    if passed::is_on() {
        // SAFETY: any size may be asked for.
        return unsafe { next::malloc(bytes) };
    }
    take(bytes, 16)
}

/// Allocates zeroed memory for `count` times `bytes`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    if passed::is_on() {
        // SAFETY: any size may be asked for.
        return unsafe { next::calloc(count, bytes) };
    }
    let Some(all) = count.checked_mul(bytes) else {
        set_errno(libc::ENOMEM);
        return ptr::null_mut();
    };
    let memory = take(all, 16);
    if !memory.is_null() && !empty(memory, all) {
        // SAFETY: just taken, at least this long.
        unsafe { memory.cast::<u8>().write_bytes(0, all) };
    }
    memory
}

/// Zeros a large block by giving the block's pages back, because programs allocate large tables and
/// touch little of them. Returns false for a small block, for memory of another allocator, and for
/// a heap in a file, whose space in the file system must not be given up.
fn empty(memory: *mut c_void, bytes: usize) -> bool {
    if bytes < EMPTIED_BYTES || heap::dir().is_some() || heap_of(memory).is_none() {
        return false;
    }
    // SAFETY: a block of this size is whole spans of the heap's private memory, at a multiple of a
    // page. It was just allocated, so nobody relies on its bytes up to the end of its last page.
    unsafe { libc::madvise(memory, bytes, libc::MADV_DONTNEED) == 0 }
}

/// Frees memory; null is ignored. `errno` stays, because callers free memory between a failure and
/// reading `errno`.
///
/// # Safety
/// Nobody uses the memory any more.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn free(memory: *mut c_void) {
    if passed::is_on() {
        // SAFETY: the caller's promise.
        return unsafe { passed::free(memory) };
    }
    let Some(some) = NonNull::new(memory.cast::<u8>()) else { return };
    let errno = errno();
    match heap_of(memory) {
        Some(heap) => {
            if let Err(error) = heap.cap_free(some) {
                say::abort(format_args!("free({memory:p}): {error}"));
            }
        }
        None => {
            if !elsewhere::free(memory) {
                foreign("free", memory);
            }
        }
    }
    // Waiting for a lock may have changed `errno`.
    set_errno(errno);
}

/// Changes the size of memory, perhaps by moving it; returns null if the memory is unchanged.
///
/// # Safety
/// Nobody uses the old address after that.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
    if passed::is_on() {
        // SAFETY: the caller's promise.
        return unsafe { passed::realloc(memory, bytes) };
    }
    if memory.is_null() {
        return malloc(bytes);
    }
    if bytes == 0 {
        // SAFETY: the caller's promise.
        unsafe { free(memory) };
        return ptr::null_mut();
    }
    let usable_bytes = usable("realloc", memory);
    let is_in_heap = heap_of(memory).is_some();
    if is_in_heap && bytes <= usable_bytes && bytes > usable_bytes / 2 {
        return memory;
    }
    let roomy_bytes = match bytes > usable_bytes && usable_bytes >= GROWS_BYTES {
        true => bytes.saturating_add(bytes / 5),
        false => bytes,
    };
    let mut moved = take(roomy_bytes, 16);
    if moved.is_null() && roomy_bytes > bytes {
        moved = take(bytes, 16);
    }
    if moved.is_null() {
        return moved;
    }
    let len = usable_bytes.min(bytes);
    // SAFETY: two objects, both at least this long; the caller gives the old one up.
    unsafe {
        moved.cast::<u8>().copy_from_nonoverlapping(memory.cast(), len);
        free(memory);
    }
    moved
}

/// Changes the size of memory to `count` times `bytes`, as [`realloc`] does.
///
/// # Safety
/// As for [`realloc`].
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn reallocarray(
    memory: *mut c_void,
    count: usize,
    bytes: usize,
) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: the caller's promise.
        Some(all) => unsafe { realloc(memory, all) },
        None => {
            set_errno(libc::ENOMEM);
            ptr::null_mut()
        }
    }
}

/// Allocates memory at a multiple of `align`, a power of two and a multiple of a pointer's size.
/// Returns 0 or the number of the error.
///
/// # Safety
/// `out` may be written.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn posix_memalign(
    out: *mut *mut c_void,
    align: usize,
    bytes: usize,
) -> c_int {
    if passed::is_on() {
        // SAFETY: the caller's promise.
        return unsafe { next::posix_memalign(out, align, bytes) };
    }
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    let errno = errno();
    let memory = take(bytes, align);
    if memory.is_null() {
        // The result names the error, and `errno` must not change.
        set_errno(errno);
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { out.write(memory) };
    0
}

/// Allocates memory at a multiple of `align`, a power of two.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    if passed::is_on() {
        // SAFETY: any size and alignment may be asked for.
        return unsafe { next::aligned_alloc(align, bytes) };
    }
    if !align.is_power_of_two() {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    take(bytes, align)
}

/// Allocates memory at a multiple of `align`, which is rounded up to a power of two.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    if passed::is_on() {
        // SAFETY: any size and alignment may be asked for.
        return unsafe { next::memalign(align, bytes) };
    }
    match align.checked_next_power_of_two() {
        Some(align) => take(bytes, align),
        None => {
            set_errno(libc::EINVAL);
            ptr::null_mut()
        }
    }
}

/// Allocates memory at a multiple of a page.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn valloc(bytes: usize) -> *mut c_void {
    if passed::is_on() {
        // SAFETY: any size may be asked for.
        return unsafe { next::valloc(bytes) };
    }
    take(bytes, page_bytes())
}

/// Allocates whole pages.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    if passed::is_on() {
        // SAFETY: any size may be asked for.
        return unsafe { next::pvalloc(bytes) };
    }
    match bytes.max(1).checked_next_multiple_of(page_bytes()) {
        Some(bytes) => take(bytes, page_bytes()),
        None => {
            set_errno(libc::ENOMEM);
            ptr::null_mut()
        }
    }
}

/// The usable bytes of memory; 0 for null.
///
/// # Safety
/// The memory is in use.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn malloc_usable_size(memory: *mut c_void) -> usize {
    if passed::is_on() {
        // SAFETY: the caller's promise.
        return unsafe { passed::usable_bytes(memory) };
    }
    if memory.is_null() { 0 } else { usable("malloc_usable_size", memory) }
}

fn usable(call: &str, memory: *mut c_void) -> usize {
    let Some(heap) = heap_of(memory) else {
        return elsewhere::bytes_of(memory).unwrap_or_else(|| foreign(call, memory));
    };
    let found = NonNull::new(memory.cast()).map(|memory| heap.cap_usable_bytes(memory));
    match found {
        Some(Ok(bytes)) => bytes as usize,
        Some(Err(error)) => say::abort(format_args!("{call}({memory:p}): {error}")),
        None => 0,
    }
}

#[cold]
fn foreign(call: &str, memory: *mut c_void) -> ! {
    say::abort(format_args!(
        "{call}({memory:p}): this address is neither in capacity memory nor from the C library: \
         freed before, or never allocated"
    ));
}

fn page_bytes() -> usize {
    // SAFETY: the call only returns a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn errno() -> c_int {
    // SAFETY: `errno` is this thread's own.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: c_int) {
    // SAFETY: `errno` is this thread's own.
    unsafe { *libc::__errno_location() = value };
}
