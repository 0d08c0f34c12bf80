//! Persistent memory that is allocated and freed together with the word that names it.

use std::ffi::c_void;
use std::slice;

use ::perdura_heap::{Heap, HeapError, Offset};

use crate::error::{Refusal, address, code, perdura_code};
use crate::open::{heap_of, perdura_heap};
use crate::place::range_of;

/// Allocates persistent memory of `size` bytes and stores its offset in `*place`, whatever was
/// there. Both are durable on return, by one fence, and after a crash both are there or neither is:
/// the memory cannot leak. `place` lies in other persistent memory of the heap, at a multiple of 8.
/// With `contents` (`size` bytes, which stay the caller's) the memory has these bytes, durably,
/// before `*place` names it, for a second fence; without (null) its bytes are arbitrary. Threads
/// that change one place must exclude each other.
///
/// Returns the memory, which stays allocated until perdura_free_from, perdura_replace_at or
/// persistfree; or null: then nothing was changed.
///
/// # Safety
/// `heap` is open; `contents` is null or has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_alloc_into(
    heap: *mut perdura_heap,
    place: *mut u64,
    size: usize,
    contents: *const c_void,
) -> *mut c_void {
    address("perdura_alloc_into", || {
        // SAFETY: the caller's promise.
        let heap = unsafe { heap_of(heap)? };
        let at = place_of(heap, place)?;
        // SAFETY: the caller's promise.
        let made = match unsafe { contents_of(size, contents)? } {
            None => heap.alloc_into(at, size as u64)?,
            Some(contents) => heap.put_into(at, contents)?,
        };
        Ok(heap.pointer(made).cast())
    })
}

/// Frees the persistent memory whose offset `*place` holds, and stores 0 there. Both are durable on
/// return, and after a crash both are done or neither. Nothing is done if `*place` is 0. If the
/// call fails, nothing was changed.
///
/// # Safety
/// `heap` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_free_from(
    heap: *mut perdura_heap,
    place: *mut u64,
) -> perdura_code {
    code("perdura_free_from", || {
        // SAFETY: the caller's promise.
        let heap = unsafe { heap_of(heap)? };
        heap.free_from(place_of(heap, place)?)?;
        Ok(())
    })
}

/// Frees the persistent memory whose offset `*place` holds, if it is not 0, and allocates other
/// memory into `*place` as perdura_alloc_into does, all under one fence: after a crash `*place`
/// names the old memory or the new, and only that is allocated.
///
/// Returns the new memory, or null: then nothing was changed.
///
/// # Safety
/// `heap` is open; `contents` is null or has `size` bytes, and does not lie in the memory that is
/// freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_replace_at(
    heap: *mut perdura_heap,
    place: *mut u64,
    size: usize,
    contents: *const c_void,
) -> *mut c_void {
    address("perdura_replace_at", || {
        // SAFETY: the caller's promise.
        let heap = unsafe { heap_of(heap)? };
        let at = place_of(heap, place)?;
        // SAFETY: the caller's promise.
        let made = match unsafe { contents_of(size, contents)? } {
            None => heap.replace_at(at, size as u64)?,
            Some(contents) => heap.replace_with(at, contents)?,
        };
        Ok(heap.pointer(made).cast())
    })
}

fn place_of(heap: &Heap, place: *mut u64) -> Result<Offset, Refusal> {
    range_of(heap, place.cast_const().cast(), size_of::<u64>())
}

/// # Safety
/// `contents` is null or has `size` bytes that nobody changes during the call.
unsafe fn contents_of<'c>(
    size: usize,
    contents: *const c_void,
) -> Result<Option<&'c [u8]>, Refusal> {
    if contents.is_null() {
        return Ok(None);
    }
    if size > isize::MAX as usize {
        let (bytes, most_bytes) = (size as u64, isize::MAX as u64);
        return Err(HeapError::Size { what: "an object", bytes, least_bytes: 1, most_bytes }.into());
    }
    // SAFETY: the caller's promise, and a length that a slice may have.
    Ok(Some(unsafe { slice::from_raw_parts(contents.cast::<u8>(), size) }))
}
