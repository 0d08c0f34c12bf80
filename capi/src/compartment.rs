//! Compartments: large areas that a program manages itself.

use std::ffi::c_void;

use ::perdura_heap::{HeapError, Kind};

use crate::error::{Refusal, address, code, perdura_code};
use crate::open::{heap_of, perdura_heap};
use crate::place::offset_of;

/// The two kinds of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum perdura_kind {
    /// Memory that survives.
    PERDURA_PERSISTENT = 0,
    /// Memory that is gone after a restart.
    PERDURA_CAPACITY = 1,
}

/// Allocates a large area of at least `size` bytes, all zeros, apart from all objects; `kind` is
/// one of perdura_kind. A persistent area survives a restart: give it a name with perdura_root_set
/// to find it then.
///
/// Returns an area that the caller frees with nvmunmap, or null: then nothing was allocated.
///
/// # Safety
/// `heap` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmmap(heap: *mut perdura_heap, kind: u32, size: usize) -> *mut c_void {
    address("nvmmap", || {
        // SAFETY: the caller's promise.
        let heap = unsafe { heap_of(heap)? };
        let kind = match kind {
            0 => Kind::Persistent,
            1 => Kind::Capacity,
            _ => {
                let why = "is neither PERDURA_PERSISTENT nor PERDURA_CAPACITY";
                return Err(Refusal::Argument { what: "kind", why });
            }
        };
        Ok(heap.pointer(heap.compartment(kind, size as u64)?.offset).cast())
    })
}

/// Frees an area. Null is ignored. If the call fails, the area is unchanged.
///
/// # Safety
/// `heap` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmunmap(heap: *mut perdura_heap, area: *mut c_void) -> perdura_code {
    code("nvmunmap", || {
        if area.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let heap = unsafe { heap_of(heap)? };
        let offset = offset_of(heap, area)?;
        let found = heap.compartments().into_iter().find(|one| one.offset == offset);
        Ok(heap.remove_compartment(found.ok_or(HeapError::NoObject { offset })?)?)
    })
}
