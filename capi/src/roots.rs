//! Named roots. C programs have roots of the type `u8`: bytes whose meaning the program knows.

use std::ffi::{c_char, c_void};
use std::ptr;

use ::perdura_heap::{Offset, Ptr};

use crate::called::called;
use crate::error::{Refusal, address, code, perdura_code, text_of};
use crate::open::{heap_of, perdura_heap};
use crate::place::offset_of;

/// The memory of a named root. Null if there is no such root (PERDURA_NO_ROOT), if a program in
/// another language gave the root a type (PERDURA_ROOT_TYPE), or if the name is refused. The memory
/// is the heap's.
///
/// # Safety
/// `heap` is open; `name` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_root(
    heap: *const perdura_heap,
    name: *const c_char,
) -> *mut c_void {
    address("perdura_root", || {
        // SAFETY: the caller's promise.
        let (heap, name) = unsafe { (heap_of(heap)?, text_of("name", name)?) };
        let found = heap.root::<u8>(name)?.and_then(Ptr::offset);
        let object = found.ok_or_else(|| Refusal::NoRoot { name: name.to_owned() })?;
        Ok(heap.pointer(object).cast())
    })
}

/// Gives memory of this heap a name (1 to 39 bytes), durably, or changes the memory of an existing
/// name. The name is copied.
///
/// # Safety
/// `heap` is open; `name` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_root_set(
    heap: *mut perdura_heap,
    name: *const c_char,
    memory: *mut c_void,
) -> perdura_code {
    code("perdura_root_set", || {
        // SAFETY: the caller's promise.
        let (heap, name) = unsafe { (heap_of(heap)?, text_of("name", name)?) };
        Ok(heap.set_root(name, pointer_to(offset_of(heap, memory)?))?)
    })
}

/// Removes a name, durably; the memory stays allocated.
///
/// # Safety
/// `heap` is open; `name` ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_root_remove(
    heap: *mut perdura_heap,
    name: *const c_char,
) -> perdura_code {
    code("perdura_root_remove", || {
        // SAFETY: the caller's promise.
        let (heap, name) = unsafe { (heap_of(heap)?, text_of("name", name)?) };
        Ok(heap.remove_root(name)?)
    })
}

/// Calls `each` with the name and the memory of every root, in the order of names, until `each`
/// returns another number than 0. The name is the library's and is valid during the call. `each`
/// must return, as a transaction's function must.
///
/// # Safety
/// `heap` is open; `each` may be called with `arg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_roots(
    heap: *const perdura_heap,
    each: Option<unsafe extern "C-unwind" fn(*const c_char, *mut c_void, *mut c_void) -> i32>,
    arg: *mut c_void,
) -> perdura_code {
    code("perdura_roots", || {
        // SAFETY: the caller's promise.
        let heap = unsafe { heap_of(heap)? };
        let each = each.ok_or(Refusal::Argument { what: "each", why: "is null" })?;
        for root in heap.roots()? {
            let name = std::ffi::CString::new(root.name).unwrap_or_default();
            let memory = root.object.map_or(ptr::null_mut(), |object| heap.pointer(object));
            // SAFETY: the caller's function, with the arguments that it expects.
            let run = || unsafe { each(name.as_ptr(), memory.cast(), arg) };
            if called("perdura_roots", run) != 0 {
                break;
            }
        }
        Ok(())
    })
}

pub(crate) fn pointer_to(object: Offset) -> Ptr<u8> {
    Ptr::new(object)
}
