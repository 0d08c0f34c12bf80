//! Capacity memory.

use std::ffi::c_void;
use std::ptr::NonNull;

use ::perdura_heap::HeapError;

use crate::error::{Refusal, address, code, perdura_code};
use crate::open::{heap_of, perdura_heap};

/// Allocates capacity memory of `size` bytes, at a multiple of 16, with arbitrary contents.
/// Capacity memory costs no persistence and is gone after a restart.
///
/// Returns memory that the caller frees with capfree, or null: then nothing was allocated.
///
/// # Safety
/// `heap` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn capmalloc(heap: *mut perdura_heap, size: usize) -> *mut c_void {
    // SAFETY: the caller's promise.
    address("capmalloc", || Ok(unsafe { heap_of(heap)? }.cap_alloc(size as u64)?.as_ptr().cast()))
}

/// Allocates capacity memory as capmalloc does, at a multiple of `alignment`, a power of two.
///
/// # Safety
/// `heap` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn capmemalign(
    heap: *mut perdura_heap,
    alignment: usize,
    size: usize,
) -> *mut c_void {
    address("capmemalign", || {
        // SAFETY: the caller's promise.
        let heap = unsafe { heap_of(heap)? };
        Ok(heap.cap_alloc_aligned(size as u64, alignment as u64)?.as_ptr().cast())
    })
}

/// Frees capacity memory. Null is ignored. If the call fails, the memory is unchanged.
///
/// # Safety
/// `heap` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn capfree(heap: *mut perdura_heap, memory: *mut c_void) -> perdura_code {
    code("capfree", || {
        let Some(memory) = NonNull::new(memory.cast()) else { return Ok(()) };
        // SAFETY: the caller's promise.
        Ok(unsafe { heap_of(heap)? }.cap_free(memory)?)
    })
}

/// Changes the size of capacity memory, in place or by a copy that replaces the old memory. Returns
/// null if the memory is unchanged. `memory` must not be null.
///
/// # Safety
/// `heap` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn caprealloc(
    heap: *mut perdura_heap,
    memory: *mut c_void,
    size: usize,
) -> *mut c_void {
    address("caprealloc", || {
        // SAFETY: the caller's promise.
        let heap = unsafe { heap_of(heap)? };
        let memory = NonNull::new(memory.cast()).ok_or(Refusal::Heap(HeapError::Null))?;
        Ok(heap.cap_realloc(memory, size as u64)?.as_ptr().cast())
    })
}
