//! Settings of `perdura_open`, as C gives them.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::error::Refusal;

/// How stores to a file become durable. A directory's memory needs no flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum perdura_durability {
    /// Cache lines are written back, with the best instruction the processor has: DAX, persistent memory. The default.
    PERDURA_FLUSHED = 0,
    /// Stores are only ordered: memory that outlives the process and is kept by a battery.
    PERDURA_ORDERED = 1,
}

/// Settings of `perdura_open`. All zero bytes, and a null pointer, are the defaults.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct perdura_options {
    /// Bytes of the heap, at least 1 MiB; what is there already is never made smaller. 0: as large as it is, and 1 GiB if
    /// it is new.
    pub len_bytes: u64,
    /// One of perdura_durability; for files.
    pub durability: u32,
    /// Not 0: capacity memory is bound to the NUMA node `numa_node`.
    pub bind_numa: u32,
    /// Which node.
    pub numa_node: u32,
    /// For directories: milliseconds from the warning (SIGTERM, a battery's signal) to the loss of power, from which
    /// follows how much may be dirty. 0: 30,000.
    pub warning_ms: u32,
    /// For directories: path of the program `perdura`, which then keeps the memory if this process dies. Null: what was
    /// not flushed dies with the process. The first heap's counts for all of a process.
    pub holder: *const c_char,
}

/// The same, checked.
pub(crate) struct Wanted {
    pub len_bytes: Option<u64>,
    pub durability: ::perdura_heap::Durability,
    pub numa_node: Option<u32>,
    pub warning_ms: u32,
    pub holder: Option<PathBuf>,
}

impl Wanted {
    /// # Safety
    /// Null or valid options; the holder's path is null or ends with a zero byte.
    pub unsafe fn of(options: *const perdura_options) -> Result<Self, Refusal> {
        let zeros = perdura_options {
            len_bytes: 0,
            durability: 0,
            bind_numa: 0,
            numa_node: 0,
            warning_ms: 0,
            holder: std::ptr::null(),
        };
        // SAFETY: the caller's promise.
        let given = unsafe { options.as_ref() }.unwrap_or(&zeros);
        let durability = match given.durability {
            0 => ::perdura_heap::Durability::Flushed,
            1 => ::perdura_heap::Durability::Ordered,
            _ => {
                let why = "is neither PERDURA_FLUSHED nor PERDURA_ORDERED";
                return Err(Refusal::Argument { what: "options->durability", why });
            }
        };
        let holder = (!given.holder.is_null()).then(|| {
            // SAFETY: the caller's promise.
            let path = unsafe { CStr::from_ptr(given.holder) };
            PathBuf::from(OsStr::from_bytes(path.to_bytes()))
        });
        Ok(Self {
            len_bytes: (given.len_bytes > 0).then_some(given.len_bytes),
            durability,
            numa_node: (given.bind_numa != 0).then_some(given.numa_node),
            warning_ms: if given.warning_ms == 0 { 30_000 } else { given.warning_ms },
            holder,
        })
    }
}
