//! Durable bytes for code that just stores: a directory mapped at one address.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use perdura::TrappedRegion;
use perdura_region::Prepared;

use crate::error::{Refusal, address, code, perdura_code};
use crate::open::directory_options;
use crate::options::{Wanted, perdura_options};

/// Durable bytes, mapped. Any thread may store to them.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct perdura_mapping {
    /// The first byte, at the beginning of a page.
    pub address: *mut c_void,
    /// Number of bytes, whole pages.
    pub len_bytes: u64,
}

/// What the program sees of a mapping, and what is the library's.
#[repr(C)]
struct Mapped {
    seen: perdura_mapping,
    region: TrappedRegion,
}

/// A write by a system call or a device that is in progress.
pub struct perdura_prepared {
    _pages: Prepared<'static>,
}

/// What a mapping promises, and what happened since it was mapped.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct perdura_figures {
    /// Bytes that may be dirty: stored to, and not on the SSD yet.
    pub budget_bytes: u64,
    /// Bytes that are dirty, or on their way to the SSD.
    pub dirty_bytes: u64,
    /// The most that were dirty since the budget was last set.
    pub dirty_bytes_max: u64,
    /// The time that the flush of the promised budget takes at most, nanoseconds.
    pub promised_flush_ns: u64,
    /// Stores that met a clean page.
    pub faults: u64,
    /// Bytes that were written to the SSD, with everything that goes with the data.
    pub device_bytes: u64,
    /// Checkpoints that were made.
    pub checkpoints: u64,
}

/// Maps the durable bytes in `directory`, or makes them, all zero. They are changed by plain
/// stores; no more is dirty at any time than can be flushed within `options->warning_ms`. A store
/// may wait until there is room for it. After perdura_unmap, or after a crash if `options->holder`
/// is given, the next perdura_map finds everything that was stored, perhaps at another address;
/// after a loss of power without warning, everything as of one moment, the last checkpoint.
///
/// Stores are noticed as those to a heap in a directory are: see perdura_open for SIGBUS and
/// SIGSEGV, and for forked children. System calls that store to the memory need
/// perdura_prepare_write.
///
/// Returns a mapping that the caller must end by perdura_unmap, or null: then nothing was mapped.
/// `directory` and `options` (null: the defaults) stay the caller's.
///
/// # Safety
/// `directory` ends with a zero byte; `options` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_map(
    directory: *const c_char,
    options: *const perdura_options,
) -> *const perdura_mapping {
    let mapped = address("perdura_map", || {
        if directory.is_null() {
            return Err(Refusal::Argument { what: "directory", why: "is null" });
        }
        // SAFETY: the caller's promise, here and for the options.
        let (path, wanted) = unsafe { (CStr::from_ptr(directory), Wanted::of(options)?) };
        if wanted.numa_node.is_some() {
            let why = "is for the capacity memory of a heap; a mapping has none";
            return Err(Refusal::Argument { what: "options->bind_numa", why });
        }
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let region = TrappedRegion::open_with(path, &directory_options(wanted))?;
        let seen =
            perdura_mapping { address: region.as_ptr().cast(), len_bytes: region.len_bytes() };
        Ok(Box::into_raw(Box::new(Mapped { seen, region })))
    });
    mapped.cast()
}

/// Flushes a mapping to the SSD and ends it. No thread stores to it any more. If this fails, the
/// mapping stays, and the call may be repeated: the memory has everything as long as this process
/// or its holder lives. Null is ignored.
///
/// # Safety
/// `mapping` is null or mapped, and nobody uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_unmap(mapping: *const perdura_mapping) -> perdura_code {
    code("perdura_unmap", || {
        let mapped = mapping.cast::<Mapped>().cast_mut();
        // SAFETY: the caller's promise.
        let Some(opened) = (unsafe { mapped.as_ref() }) else { return Ok(()) };
        if opened.region.is_forked() {
            // Everything is the parent's.
            return Ok(());
        }
        opened.region.close()?;
        // SAFETY: `perdura_map` made it, and the caller gives it up.
        drop(unsafe { Box::from_raw(mapped) });
        Ok(())
    })
}

/// Returns when everything that was stored before is on the SSD. Within the warning nothing needs
/// this call; it is for what must survive a loss of power that comes without one.
///
/// # Safety
/// `mapping` is mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_sync(mapping: *const perdura_mapping) -> perdura_code {
    // SAFETY: the caller's promise.
    code("perdura_sync", || Ok(unsafe { region_of(mapping)? }.commit()?))
}

/// Makes the state of this moment the one that a loss of power without a warning goes back to.
///
/// # Safety
/// `mapping` is mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_checkpoint(mapping: *const perdura_mapping) -> perdura_code {
    // SAFETY: the caller's promise.
    code("perdura_checkpoint", || Ok(unsafe { region_of(mapping)? }.checkpoint()?))
}

/// Lets a system call or a device store to `len_bytes` bytes at `memory`, whose stores cannot be
/// noticed otherwise: read(2) into a page that was not prepared fails with EFAULT. The range is at
/// most half of the budget. Returns what must be given to perdura_end_write after that one
/// transfer, or null.
///
/// # Safety
/// `mapping` is mapped, and stays so until perdura_end_write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_prepare_write(
    mapping: *const perdura_mapping,
    memory: *const c_void,
    len_bytes: u64,
) -> *mut perdura_prepared {
    address("perdura_prepare_write", || {
        // SAFETY: the caller's promise: the region outlives what is returned.
        let region: &'static TrappedRegion = unsafe { region_of(mapping)? };
        let before = Refusal::Argument { what: "memory", why: "lies before the mapping" };
        let offset = (memory as u64).checked_sub(region.as_ptr() as u64).ok_or(before)?;
        let range = offset..offset.saturating_add(len_bytes);
        let pages = region.prepare_write(range)?;
        Ok(Box::into_raw(Box::new(perdura_prepared { _pages: pages })))
    })
}

/// Ends what perdura_prepare_write has begun. Null is ignored.
///
/// # Safety
/// `prepared` is null or from perdura_prepare_write, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_end_write(prepared: *mut perdura_prepared) {
    if !prepared.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(prepared) });
    }
}

/// Sets how many bytes may be dirty, and returns when no more are: fewer on a battery that is
/// nearly empty, for example. Never more than perdura_map has promised, and no fewer than the least
/// with which stores can go on; the value in force is in perdura_stats.
///
/// # Safety
/// `mapping` is mapped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_budget(
    mapping: *const perdura_mapping,
    budget_bytes: u64,
) -> perdura_code {
    code("perdura_budget", || {
        // SAFETY: the caller's promise.
        let region = unsafe { region_of(mapping)? };
        let least = perdura_region::BUDGET_MIN_BYTES;
        let bytes = budget_bytes.max(least).min(region.promise().budget_bytes);
        Ok(region.inner().set_budget(bytes)?)
    })
}

/// Fills `figures` with what the mapping promises and has done.
///
/// # Safety
/// `mapping` is mapped; `figures` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_stats(
    mapping: *const perdura_mapping,
    figures: *mut perdura_figures,
) -> perdura_code {
    code("perdura_stats", || {
        if figures.is_null() {
            return Err(Refusal::Argument { what: "figures", why: "is null" });
        }
        // SAFETY: the caller's promise.
        let region = unsafe { region_of(mapping)? };
        let (inner, promise) = (region.inner(), region.promise());
        let stats = inner.stats();
        let now = perdura_figures {
            budget_bytes: inner.budget_bytes(),
            dirty_bytes: inner.used_bytes(),
            dirty_bytes_max: inner.used_bytes_max(),
            promised_flush_ns: u64::try_from(promise.flush_time.as_nanos()).unwrap_or(u64::MAX),
            faults: stats.faults,
            device_bytes: stats.device_bytes,
            checkpoints: stats.checkpoints,
        };
        // SAFETY: the caller's promise.
        unsafe { ptr::write(figures, now) };
        Ok(())
    })
}

/// The region behind a mapping, if it is this process's.
///
/// # Safety
/// `mapping` is null or mapped, and stays so for as long as the result is used.
unsafe fn region_of<'m>(mapping: *const perdura_mapping) -> Result<&'m TrappedRegion, Refusal> {
    // SAFETY: the caller's promise; the mapping is the beginning of what `perdura_map` made.
    let mapped = unsafe { mapping.cast::<Mapped>().as_ref() };
    let mapped = mapped.ok_or(Refusal::Argument { what: "mapping", why: "is null" })?;
    if mapped.region.is_forked() { Err(Refusal::Forked) } else { Ok(&mapped.region) }
}
