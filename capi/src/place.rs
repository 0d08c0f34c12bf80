//! Offsets, which may be stored in persistent memory, and addresses, which a program works with.

use std::ffi::c_void;
use std::ptr;

use ::perdura_heap::{Heap, HeapError, Offset};

use crate::error::{Refusal, address, guard};
use crate::open::{heap_of, perdura_heap};

/// The offset of an address in the heap. Store offsets in persistent memory instead of pointers,
/// because the heap may lie at other addresses after a restart. Returns 0 if the address is null or
/// not in this heap (PERDURA_FOREIGN).
///
/// # Safety
/// `heap` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_offset(heap: *const perdura_heap, memory: *const c_void) -> u64 {
    guard("perdura_offset", || {
        if memory.is_null() {
            return Ok(0);
        }
        // SAFETY: the caller's promise.
        offset_of(unsafe { heap_of(heap)? }, memory).map(Offset::get)
    })
    .unwrap_or(0)
}

/// The address of an offset; null if the offset is 0 or beyond this heap (PERDURA_FOREIGN). The
/// memory is the heap's.
///
/// # Safety
/// `heap` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_pointer(heap: *const perdura_heap, offset: u64) -> *mut c_void {
    address("perdura_pointer", || {
        // SAFETY: the caller's promise.
        let heap = unsafe { heap_of(heap)? };
        match Offset::new(offset) {
            None => Ok(ptr::null_mut()),
            Some(at) if offset < heap.memory().len_bytes() => Ok(heap.pointer(at).cast()),
            Some(_) => Err(HeapError::Foreign {
                address: heap.memory().base().wrapping_add(offset as usize).addr(),
            }
            .into()),
        }
    })
}

/// The offset of an address that must be this heap's.
pub(crate) fn offset_of(heap: &Heap, memory: *const c_void) -> Result<Offset, Refusal> {
    let foreign = || match memory.is_null() {
        true => HeapError::Null,
        false => HeapError::Foreign { address: memory.addr() },
    };
    Ok(heap.offset_of(memory.cast()).ok_or_else(foreign)?)
}

/// The offset of a range that must lie in this heap, so that a slice can have `len` bytes.
pub(crate) fn range_of(heap: &Heap, memory: *const c_void, len: usize) -> Result<Offset, Refusal> {
    let offset = offset_of(heap, memory)?;
    let len_bytes = len as u64;
    if len_bytes > heap.memory().len_bytes() - offset.get() {
        return Err(HeapError::OutOfObject { offset, len_bytes }.into());
    }
    Ok(offset)
}
