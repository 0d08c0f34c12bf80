//! Persistent memory.

use std::ffi::{c_char, c_void};

use crate::error::{address, code, guard, perdura_code, text_of};
use crate::open::{heap_of, perdura_heap};
use crate::place::{offset_of, range_of};

/// Takes persistent memory of `size` bytes, at a multiple of 16; its contents are arbitrary. That
/// it is taken is durable on return. With a name (1 to 39 bytes) it is also a root, both or
/// neither: perdura_root finds it after a restart. Without one (`name` is null) nothing leads to it
/// until something is stored that does.
///
/// Returns memory that stays taken until persistfree, across restarts, or null: then nothing was
/// taken.
///
/// # Safety
/// `heap` is open; `name` is null or ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persistmalloc(
    heap: *mut perdura_heap,
    size: usize,
    name: *const c_char,
) -> *mut c_void {
    address("persistmalloc", || {
        // SAFETY: the caller's promise.
        let heap = unsafe { heap_of(heap)? };
        let object = match name.is_null() {
            true => heap.persist_alloc(size as u64)?,
            // SAFETY: the caller's promise.
            false => heap.persist_alloc_named(size as u64, unsafe { text_of("name", name)? })?,
        };
        Ok(heap.pointer(object).cast())
    })
}

/// Gives persistent memory back. That it is free is durable with this thread's next durable call,
/// and before anybody else gets it: a loss of power before leaves it taken. Remove its name first,
/// if it has one. Null is nothing. If it fails, the memory is as it was.
///
/// # Safety
/// `heap` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persistfree(heap: *mut perdura_heap, memory: *mut c_void) -> perdura_code {
    code("persistfree", || {
        if memory.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let heap = unsafe { heap_of(heap)? };
        Ok(heap.persist_free(offset_of(heap, memory)?)?)
    })
}

/// Gives persistent memory another size, in place or by a durable copy; then the old memory is
/// free. Whatever leads to it must be changed to the result. Null: it is as it was. `memory` must
/// not be null.
///
/// # Safety
/// `heap` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn persistrealloc(
    heap: *mut perdura_heap,
    memory: *mut c_void,
    size: usize,
) -> *mut c_void {
    address("persistrealloc", || {
        // SAFETY: the caller's promise.
        let heap = unsafe { heap_of(heap)? };
        let moved = heap.persist_realloc(offset_of(heap, memory)?, size as u64)?;
        Ok(heap.pointer(moved).cast())
    })
}

/// Makes bytes durable that were changed by plain stores. They must lie in the heap.
///
/// # Safety
/// `heap` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_persist(
    heap: *mut perdura_heap,
    memory: *const c_void,
    len: usize,
) -> perdura_code {
    code("perdura_persist", || {
        // SAFETY: the caller's promise.
        let heap = unsafe { heap_of(heap)? };
        heap.persist(range_of(heap, memory, len)?, len as u64);
        Ok(())
    })
}

/// Bytes that memory of either kind may use: at least those asked for. 0: no object begins there.
///
/// # Safety
/// `heap` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_usable_size(
    heap: *const perdura_heap,
    memory: *const c_void,
) -> usize {
    guard("perdura_usable_size", || {
        // SAFETY: the caller's promise.
        let heap = unsafe { heap_of(heap)? };
        Ok(heap.usable_bytes(offset_of(heap, memory)?)? as usize)
    })
    .unwrap_or(0)
}
