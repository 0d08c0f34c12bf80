//! Persistent memory.

use std::ffi::{c_char, c_void};

use crate::error::{address, code, guard, perdura_code, text_of};
use crate::open::{heap_of, perdura_heap};
use crate::place::{offset_of, range_of};

/// Allocates persistent memory of `size` bytes, at a multiple of 16, with arbitrary contents. The
/// allocation is durable on return. With a name (1 to 39 bytes) the memory is also a named root,
/// both or neither: perdura_root finds it after a restart. Without a name (`name` is null) the
/// program stores a reference to the memory itself.
///
/// Returns memory that stays allocated until persistfree, across restarts, or null: then nothing
/// was allocated.
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

/// Frees persistent memory. The free becomes durable with this thread's next durable call, and
/// before the memory is allocated again: a loss of power before that leaves it allocated. Remove
/// the memory's name first, if there is one. Null is ignored. If the call fails, the memory is
/// unchanged.
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

/// Changes the size of persistent memory, in place or by a durable copy that replaces the old
/// memory. The program must change its references to the result. Returns null if the memory is
/// unchanged. `memory` must not be null.
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

/// Makes bytes durable that were changed by plain stores. The bytes must lie in the heap.
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

/// The usable bytes of memory of either kind, at least as many as were asked for; 0 if no object
/// begins at the address.
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
