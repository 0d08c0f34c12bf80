//! Opening and closing a heap: a file, or a directory with a region in trap mode.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use ::perdura_heap::Config;
use perdura::{Budget, Heap, Holder, Options};

use crate::error::{Refusal, address, code, perdura_code};
use crate::options::{Wanted, perdura_options};

/// An open heap. Any thread may use it.
pub struct perdura_heap {
    heap: Heap,
}

/// Opens the heap at `path`, or makes one. The heap lies in a file (persistent memory on a DAX file
/// system, on any other as durable as the page cache), or, if `path` is a directory, in a region
/// with a bounded dirty set whose image is kept in that directory. Operations that a crash has cut
/// are completed or undone; capacity memory is empty.
///
/// A directory's heap notices stores by SIGBUS or SIGSEGV, which the library handles from then on.
/// The program installs its own handlers of these signals before: they get the signals that are not
/// the library's. A handler that is installed later must pass signals that it does not know to the
/// handler that sigaction returned, or the program ends at its next store. No thread that stores
/// may block these signals.
///
/// The heap belongs to this process alone. In a forked child every call fails with PERDURA_FORKED,
/// except perdura_close, which does nothing there; the child must not store to the heap's memory
/// either. Nobody else can open the heap while such a child lives, unless the child executes
/// another program.
///
/// Returns a heap that the caller must close, or null: then nothing was opened. `path` and
/// `options` (null: the defaults) stay the caller's and are not used after the call.
///
/// # Safety
/// `path` ends with a zero byte; `options` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_open(
    path: *const c_char,
    options: *const perdura_options,
) -> *mut perdura_heap {
    address("perdura_open", || {
        if path.is_null() {
            return Err(Refusal::Argument { what: "path", why: "is null" });
        }
        // SAFETY: the caller's promise, here and for the options.
        let (path, wanted) = unsafe { (CStr::from_ptr(path), Wanted::of(options)?) };
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let heap = match path.is_dir() {
            true => open_directory(path, wanted)?,
            false => open_file(path, &wanted)?,
        };
        Ok(Box::into_raw(Box::new(perdura_heap { heap })))
    })
}

/// Closes the heap durably, so that little is left to recover; a directory's memory is flushed to
/// the SSD. Calls of other threads must have ended. The handle and all addresses are invalid after
/// the call, even if it fails; then the heap is as whole as after a crash. Null is ignored.
///
/// # Safety
/// `heap` is null or open, and nobody uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_close(heap: *mut perdura_heap) -> perdura_code {
    code("perdura_close", || {
        // SAFETY: the caller's promise.
        let Some(opened) = (unsafe { heap.as_ref() }) else { return Ok(()) };
        if opened.heap.is_forked() {
            // The heap is the parent's: even dropping it could wait for a thread that does not
            // exist in the child.
            return Ok(());
        }
        // SAFETY: `perdura_open` made it, and the caller gives it up.
        let perdura_heap { heap } = *unsafe { Box::from_raw(heap) };
        heap.close()?;
        Ok(())
    })
}

fn config(wanted: &Wanted) -> Config {
    let mut config = Config::default();
    config.numa_node = wanted.numa_node;
    config
}

fn open_file(path: &Path, wanted: &Wanted) -> Result<Heap, Refusal> {
    let options = Heap::options().config(config(wanted)).durability(wanted.durability);
    let options = match wanted.len_bytes {
        Some(bytes) => options.len_bytes(bytes),
        None => options,
    };
    Ok(options.open(path)?)
}

fn open_directory(dir: &Path, wanted: Wanted) -> Result<Heap, Refusal> {
    let config = config(&wanted);
    Ok(Heap::options().config(config).open_in(dir, &directory_options(wanted))?)
}

/// How a region in a directory is opened.
pub(crate) fn directory_options(wanted: Wanted) -> Options {
    let mut options = Options::new().warning(Duration::from_millis(wanted.warning_ms.into()));
    if let Some(bytes) = wanted.len_bytes {
        options = options.memory_bytes(bytes);
    }
    if let Some(bytes) = wanted.budget_bytes {
        options = options.budget(Budget::Bytes(bytes));
    }
    if let Some(path) = wanted.holder {
        options = options.holder(Holder::perdura(path));
    }
    match wanted.guard {
        Some(socket) => options.guard(socket),
        None => options,
    }
}

/// The heap behind a handle, if it is this process's.
///
/// # Safety
/// `heap` is null or open, and stays so for as long as the result is used.
pub(crate) unsafe fn heap_of<'h>(
    heap: *const perdura_heap,
) -> Result<&'h ::perdura_heap::Heap, Refusal> {
    // SAFETY: the caller's promise.
    let heap = unsafe { heap.as_ref() };
    let heap: &::perdura_heap::Heap =
        &heap.ok_or(Refusal::Argument { what: "heap", why: "is null" })?.heap;
    if heap.is_forked() { Err(Refusal::Forked) } else { Ok(heap) }
}
