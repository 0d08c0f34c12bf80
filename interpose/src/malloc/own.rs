//! The C library's own allocator, by the names under which it is never replaced.
//!
//! `dlsym(RTLD_NEXT, "malloc")` would find it, too, but may itself allocate, and not before the
//! library is loaded.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_void;

unsafe extern "C" {
    fn __libc_malloc(bytes: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, bytes: usize) -> *mut c_void;
    fn __libc_realloc(memory: *mut c_void, bytes: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, bytes: usize) -> *mut c_void;
    fn __libc_free(memory: *mut c_void);
}

/// Allocates memory from the C library; null if there is none.
pub fn alloc(bytes: usize, align: usize) -> *mut c_void {
    // SAFETY: any size and any power of two may be asked for.
    unsafe {
        match align <= 16 {
            true => __libc_malloc(bytes),
            false => __libc_memalign(align, bytes),
        }
    }
}

/// Frees memory of the C library.
///
/// # Safety
/// The memory is the C library's, and nobody uses it any more.
pub unsafe fn free(memory: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { __libc_free(memory) };
}

/// The allocator of this library's own memory.
pub struct CLibrary;

#[global_allocator]
static OWN: CLibrary = CLibrary;

// SAFETY: the C library's allocator keeps this trait's contract, and aligns to 16 by itself.
unsafe impl GlobalAlloc for CLibrary {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        alloc(layout.size(), layout.align()).cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 16 {
            // SAFETY: any size may be asked for.
            return unsafe { __libc_calloc(1, layout.size()).cast() };
        }
        let memory: *mut u8 = alloc(layout.size(), layout.align()).cast();
        if !memory.is_null() {
            // SAFETY: just allocated with this size.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if layout.align() <= 16 {
            // SAFETY: it came from here.
            return unsafe { __libc_realloc(memory.cast(), bytes).cast() };
        }
        let moved: *mut u8 = alloc(bytes, layout.align()).cast();
        if !moved.is_null() {
            // SAFETY: two objects, both at least this long; the old one came from here.
            unsafe {
                moved.copy_from_nonoverlapping(memory, layout.size().min(bytes));
                free(memory.cast());
            }
        }
        moved
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: it came from here.
        unsafe { free(memory.cast()) };
    }
}
