//! Settings of `perdura_open` and `perdura_map`, as a C program gives them.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::error::Refusal;

/// The way in which stores to a file become durable. A directory's memory needs no flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum perdura_durability {
    /// Cache lines are written back, with the best instruction of the processor: for DAX and
    /// persistent memory. This is the default.
    PERDURA_FLUSHED = 0,
    /// Stores are only ordered: for memory that outlives the process and is kept by a battery.
    PERDURA_ORDERED = 1,
}

/// Settings of `perdura_open` and `perdura_map`. All zero bytes, and a null pointer, are the
/// defaults. Fields may be added at the end: fill the structure with zeros first, and set
/// `size_bytes`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct perdura_options {
    /// `sizeof(struct perdura_options)`, which tells how many fields the program knows. 0 stands
    /// for the fields here. A later library takes fields that the program does not know for zero;
    /// an earlier library refuses fields that it does not know, unless they are zero.
    pub size_bytes: u32,
    /// How stores to a heap in a file become durable: a value of perdura_durability.
    pub durability: u32,
    /// Bytes of the heap, at least 1 MiB. An existing heap is never made smaller. 0 stands for the
    /// present size, and for 1 GiB if the heap is new.
    pub len_bytes: u64,
    /// If not 0, capacity memory is bound to the NUMA node `numa_node`.
    pub bind_numa: u32,
    /// Number of the NUMA node.
    pub numa_node: u32,
    /// For a heap in a directory, or a mapping: milliseconds from the warning to the loss of power,
    /// which decide how much may be dirty. 0 stands for 30,000. The library watches for no warning:
    /// at SIGTERM, or at a battery's signal, the program calls perdura_close or perdura_unmap,
    /// which flush in that time. If the program does not, the process of `holder` does.
    pub warning_ms: u32,
    /// For a heap in a directory, or a mapping: path of the program `perdura`, which then runs as
    /// the holder. The holder keeps the memory if this process dies. At its own SIGTERM, SIGINT or
    /// SIGPWR, or at `perdura flush`, the holder flushes the memory once this process has closed it
    /// or died, and ends a process that does neither. With null, memory that was not flushed is
    /// lost with the process.
    pub holder: *const c_char,
    /// For a heap in a directory, or a mapping: the most bytes that may be dirty. 0: as many as can
    /// be flushed within the warning, of which nothing larger is accepted.
    pub budget_bytes: u64,
    /// For a heap in a directory, or a mapping: socket of a guard (`perdura guard`), which keeps
    /// the memory in the place of a holder. Threads of the library do what the guard says: they
    /// keep to this program's share of a battery, let stores wait while the power is low or the
    /// guard is gone, and at the end of the power flush and close; stores wait from then on.
    pub guard: *const c_char,
}

/// Settings that were checked.
pub(crate) struct Wanted {
    pub len_bytes: Option<u64>,
    pub durability: ::perdura_heap::Durability,
    pub numa_node: Option<u32>,
    pub warning_ms: u32,
    pub holder: Option<PathBuf>,
    pub budget_bytes: Option<u64>,
    pub guard: Option<PathBuf>,
}

impl Wanted {
    /// # Safety
    /// Null or valid options; each path is null or ends with a zero byte.
    pub unsafe fn of(options: *const perdura_options) -> Result<Self, Refusal> {
        let zeros = perdura_options {
            size_bytes: 0,
            durability: 0,
            len_bytes: 0,
            bind_numa: 0,
            numa_node: 0,
            warning_ms: 0,
            holder: std::ptr::null(),
            budget_bytes: 0,
            guard: std::ptr::null(),
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
        let path = |path: *const c_char| {
            (!path.is_null()).then(|| {
                // SAFETY: the caller's promise.
                let path = unsafe { CStr::from_ptr(path) };
                PathBuf::from(OsStr::from_bytes(path.to_bytes()))
            })
        };
        let (holder, guard) = (path(given.holder), path(given.guard));
        Ok(Self {
            len_bytes: (given.len_bytes > 0).then_some(given.len_bytes),
            durability,
            numa_node: (given.bind_numa != 0).then_some(given.numa_node),
            warning_ms: if given.warning_ms == 0 { 30_000 } else { given.warning_ms },
            holder,
            guard,
            budget_bytes: (given.budget_bytes > 0).then_some(given.budget_bytes),
        })
    }
}

/// Bytes of the first layout, which a 0 stands for.
const OPTIONS_BYTES: u32 = size_of::<perdura_options>() as u32;
/// More bytes than the structure will ever have: a larger value was never set.
const OPTIONS_BYTES_MAX: u32 = 4096;

#[cfg(target_pointer_width = "64")]
const _: () = assert!(OPTIONS_BYTES == 56);

/// Refuses options with fields that this library does not know.
///
/// # Safety
/// `size_bytes` bytes can be read at `options` if that is more than the first layout has.
unsafe fn check_size(size_bytes: u32, options: *const u8) -> Result<(), Refusal> {
    let refused = |why| Err(Refusal::Argument { what: "options->size_bytes", why });
    match size_bytes {
        0 | OPTIONS_BYTES => Ok(()),
        given if !(OPTIONS_BYTES..=OPTIONS_BYTES_MAX).contains(&given) => refused(
            "is no length that perdura_options ever had; set it to 0 or to sizeof(struct \
             perdura_options)",
        ),
        given => {
            let mut unknown = OPTIONS_BYTES as usize..given as usize;
            // SAFETY: the caller's promise.
            if unknown.all(|at| unsafe { options.add(at).read() } == 0) {
                return Ok(());
            }
            refused(
                "says that there are fields, set by the program, which this library does not know; \
                 use a later one",
            )
        }
    }
}
