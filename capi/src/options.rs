//! Settings of `perdura_open`, as C gives them.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::error::Refusal;

/// How stores to a file become durable. A directory's memory needs no flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum perdura_durability {
    /// Cache lines are written back, with the best instruction the processor has: DAX, persistent
    /// memory. The default.
    PERDURA_FLUSHED = 0,
    /// Stores are only ordered: memory that outlives the process and is kept by a battery.
    PERDURA_ORDERED = 1,
}

/// Settings of `perdura_open`. All zero bytes, and a null pointer, are the defaults. Fields may be
/// added at the end: zero all of it first, and say how long it is.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct perdura_options {
    /// `sizeof(struct perdura_options)`: how many fields the program knows. 0: those here. A later
    /// library takes what a program does not know for zero; an earlier one refuses what it does not
    /// know, unless it is zero.
    pub size_bytes: u32,
    /// One of perdura_durability; for files.
    pub durability: u32,
    /// Bytes of the heap, at least 1 MiB; what is there already is never made smaller. 0: as large
    /// as it is, and 1 GiB if it is new.
    pub len_bytes: u64,
    /// Not 0: capacity memory is bound to the NUMA node `numa_node`.
    pub bind_numa: u32,
    /// Which node.
    pub numa_node: u32,
    /// For directories: milliseconds from the warning to the loss of power, from which follows how
    /// much may be dirty. 0: 30,000. The library watches for no warning: on its SIGTERM, or a
    /// battery's signal, the program calls perdura_close, which flushes in that time; see `holder`
    /// for who does it if the program does not.
    pub warning_ms: u32,
    /// For directories: path of the program `perdura`, which then keeps the memory if this process
    /// dies, and flushes it at its own SIGTERM, SIGINT or SIGPWR (or `perdura flush`): once this
    /// process has closed the heap or died, and it ends one that does neither. Null: what was not
    /// flushed dies with the process.
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
            size_bytes: 0,
            durability: 0,
            len_bytes: 0,
            bind_numa: 0,
            numa_node: 0,
            warning_ms: 0,
            holder: std::ptr::null(),
        };
        // SAFETY: the caller's promise.
        let given = unsafe { options.as_ref() }.unwrap_or(&zeros);
        // SAFETY: the caller's promise: as many bytes as it says can be read at `options`, if it is
        // not null.
        unsafe { check_size(given.size_bytes, options.cast()) }?;
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

/// The length of the first layout, which a 0 stands for.
const OPTIONS_BYTES: u32 = size_of::<perdura_options>() as u32;
/// Longer than the structure will ever be: what says so was never set.
const OPTIONS_BYTES_MAX: u32 = 4096;

#[cfg(target_pointer_width = "64")]
const _: () = assert!(OPTIONS_BYTES == 40);

/// Refuses what this library does not know.
///
/// # Safety
/// Where it is more than the first layout has, `size_bytes` can be read at `options`.
unsafe fn check_size(size_bytes: u32, options: *const u8) -> Result<(), Refusal> {
    let refused = |why| Err(Refusal::Argument { what: "options->size_bytes", why });
    match size_bytes {
        0 | OPTIONS_BYTES => Ok(()),
        given if !(OPTIONS_BYTES..=OPTIONS_BYTES_MAX).contains(&given) => refused(
            "is no length that perdura_options ever had; set it to 0 or to sizeof(struct perdura_options)",
        ),
        given => {
            let mut unknown = OPTIONS_BYTES as usize..given as usize;
            // SAFETY: the caller's promise.
            if unknown.all(|at| unsafe { options.add(at).read() } == 0) {
                return Ok(());
            }
            refused(
                "says that there are fields, set by the program, which this library does not know; use a later one",
            )
        }
    }
}
