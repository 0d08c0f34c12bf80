//! The program's own allocator, to which all calls are passed on where no heap is asked for: the C
//! library's, or that of another library.
//!
//! The loader allocates before the start, when nothing is known yet: that memory is the C library's
//! ([`crate::malloc::elsewhere`]). It is little, and is never given back, so that no lock is needed
//! for it. The program's allocator is not called before the program calls it: it could not read its
//! own environment variables yet.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use crate::malloc::elsewhere::{self, Table};
use crate::next;

/// The table of memory that was allocated before the start; null: calls are not passed on.
static EARLY: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

/// Passes calls on from now on.
pub fn begin() {
    EARLY.store(ptr::from_ref(elsewhere::freeze()).cast_mut(), Release);
}

/// Whether calls are passed on.
#[inline]
pub fn is_on() -> bool {
    !EARLY.load(Relaxed).is_null()
}

/// The bytes of memory that was allocated before the start; `None`: it was not.
fn early_bytes(memory: *mut c_void) -> Option<usize> {
    // SAFETY: null, or the table for good.
    unsafe { EARLY.load(Acquire).as_ref() }?.bytes_of(memory as usize)
}

/// Frees memory of any origin.
///
/// # Safety
/// The contract is that of `free`.
pub unsafe fn free(memory: *mut c_void) {
    if early_bytes(memory).is_none() {
        // SAFETY: the caller's promise.
        unsafe { next::free(memory) };
    }
}

/// Changes the size of memory of any origin.
///
/// # Safety
/// The contract is that of `realloc`.
pub unsafe fn realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(had_bytes) = early_bytes(memory) else {
        // SAFETY: the caller's promise.
        return unsafe { next::realloc(memory, bytes) };
    };
    // SAFETY: any size may be asked for.
    let moved = unsafe { next::malloc(bytes) };
    if !moved.is_null() {
        // SAFETY: two objects, both at least this long.
        unsafe {
            ptr::copy_nonoverlapping(memory.cast::<u8>(), moved.cast(), had_bytes.min(bytes))
        };
    }
    moved
}

/// The usable bytes of memory of any origin.
///
/// # Safety
/// The memory is in use.
pub unsafe fn usable_bytes(memory: *mut c_void) -> usize {
    // SAFETY: the caller's promise.
    early_bytes(memory).unwrap_or_else(|| unsafe { next::malloc_usable_size(memory) })
}
