//! Opening and closing a heap: a file, or a directory with a region in trap mode.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::perdura_heap::{Config, Heap, Memory};
use perdura_media::{Direct, Engine, RealClock};
use perdura_region::directory::{self, Directory, HOLDER_WAIT, Settings};
use perdura_region::holder::{HolderProgram, Link, Watch};
use perdura_region::promise::BudgetWish;
use perdura_region::{Region, TrackingKind, TrapKind};

use crate::error::{Refusal, address, code, perdura_code};
use crate::options::{Wanted, perdura_options};

const NEW_BYTES: u64 = 1 << 30;
const FLUSH_THREADS_MAX: usize = 4;

/// An open heap. Any thread may use it.
pub struct perdura_heap {
    pub(crate) heap: Heap,
    beneath: Option<Beneath>,
}

/// What a directory's heap lies in.
struct Beneath {
    region: Arc<Region>,
    threads: usize,
    /// Ours, which ends with a goodbye; or one found though none was asked for.
    watch: Option<Watch>,
    link: Option<Link>,
}

/// Opens the heap at `path`, or makes one: in a file (on a DAX file system persistent memory; on
/// any other as durable as its page cache), or, if `path` is a directory, in a region with a
/// bounded dirty set that is kept on that SSD. What a crash cut is made whole or undone; capacity
/// memory is empty.
///
/// A directory's heap notices stores by SIGBUS or SIGSEGV, which the library handles from then on.
/// Handlers of the program's own are installed before: they get what is not the library's. One that
/// is installed later must pass on what it does not know to the one that sigaction gave it, or the
/// program ends at its next store. No thread that stores may block these signals.
///
/// The heap is this process's alone. In a child that it forks every call fails with PERDURA_FORKED,
/// but perdura_close, which does nothing there; the child must not store to the heap's memory
/// either. Nobody else can open the heap while such a child lives, unless it executes another
/// program.
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
        let opened = match path.is_dir() {
            true => open_directory(path, wanted)?,
            false => open_file(path, &wanted)?,
        };
        Ok(Box::into_raw(Box::new(opened)))
    })
}

/// Closes the heap, durably, so that little is left to recover; a directory's memory is flushed to
/// its SSD. Other threads must have ended what they do. The handle and all addresses are invalid
/// after it, whatever it returns; if it fails, the heap is as whole as after a crash. Null is no
/// heap: nothing is done.
///
/// # Safety
/// `heap` is null or open, and nobody uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn perdura_close(heap: *mut perdura_heap) -> perdura_code {
    code("perdura_close", || {
        // SAFETY: the caller's promise.
        let Some(opened) = (unsafe { heap.as_ref() }) else { return Ok(()) };
        if opened.heap.is_forked() {
            // All of it is the parent's: even to drop it could wait for a thread that is not here.
            return Ok(());
        }
        // SAFETY: `perdura_open` made it, and the caller gives it up.
        let perdura_heap { heap, beneath } = *unsafe { Box::from_raw(heap) };
        let closed = heap.close();
        beneath.map_or(Ok(()), Beneath::close)?;
        Ok(closed?)
    })
}

impl Beneath {
    fn close(self) -> Result<(), Refusal> {
        self.region.close(self.threads)?;
        self.watch.map_or(Ok(()), Watch::goodbye)?;
        Ok(self.link.map_or(Ok(()), Link::goodbye)?)
    }
}

fn config(wanted: &Wanted) -> Config {
    let mut config = Config::default();
    config.numa_node = wanted.numa_node;
    config
}

fn open_file(path: &Path, wanted: &Wanted) -> Result<perdura_heap, Refusal> {
    let found_bytes = std::fs::metadata(path).map_or(0, |found| found.len());
    let len_bytes = wanted.len_bytes.unwrap_or(if found_bytes > 0 { 0 } else { NEW_BYTES });
    if found_bytes == 0 && len_bytes < ::perdura_heap::HEAP_BYTES_MIN {
        // Before a file is made that is of no use.
        return Err(too_small(len_bytes).into());
    }
    let memory = Memory::file(path, len_bytes, wanted.durability)?;
    Ok(perdura_heap { heap: Heap::open(memory, config(wanted))?, beneath: None })
}

fn too_small(bytes: u64) -> ::perdura_heap::HeapError {
    ::perdura_heap::HeapError::Size {
        what: "a heap",
        bytes,
        least_bytes: ::perdura_heap::HEAP_BYTES_MIN,
        most_bytes: ::perdura_heap::HEAP_BYTES_MAX,
    }
}

fn open_directory(dir: &Path, wanted: Wanted) -> Result<perdura_heap, Refusal> {
    let is_new = !directory::has_image(dir);
    let len_bytes = wanted.len_bytes.unwrap_or(match is_new {
        true => NEW_BYTES,
        // An image that is there keeps its size: the smallest request never shrinks it.
        false => ::perdura_heap::HEAP_BYTES_MIN,
    });
    if len_bytes < ::perdura_heap::HEAP_BYTES_MIN {
        return Err(too_small(len_bytes).into());
    }
    let mut region = perdura_region::Config::new(len_bytes, 0);
    region.tracking = TrackingKind::Trap(TrapKind::Auto);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let threads = threads.min(FLUSH_THREADS_MAX);
    let has_holder = wanted.holder.is_some();
    let settings = Settings {
        dir: dir.to_owned(),
        config: region,
        wish: BudgetWish::Derived,
        warning: Duration::from_millis(wanted.warning_ms.into()),
        reserve: None,
        engine: Engine::Auto,
        direct: Direct::Auto,
        threads,
        holder: wanted.holder.clone().map(HolderProgram::perdura),
        holder_wait: Some(HOLDER_WAIT),
        prove_again: false,
    };
    let clock = Arc::new(RealClock);
    let opened = Directory::open(settings, clock.clone(), &|_, _| {})?;
    let Directory { region, keeper, link, .. } = opened;
    debug_assert_eq!(keeper.is_some(), has_holder);
    let region = Arc::new(region);
    let watch = keeper.map(|keeper| keeper.watch(clock)).transpose()?;
    let beneath = Beneath { region, threads, watch, link };
    let memory = Memory::region(Arc::clone(&beneath.region))?;
    match Heap::open(memory, config(&wanted)) {
        Ok(heap) => Ok(perdura_heap { heap, beneath: Some(beneath) }),
        Err(error) => {
            // Nobody is to go on holding what was not opened. Why it was not matters more than how
            // that ends.
            let _ = beneath.close();
            Err(error.into())
        }
    }
}

/// The heap behind a handle, if it is this process's.
///
/// # Safety
/// `heap` is null or open, and stays so for as long as the result is used.
pub(crate) unsafe fn heap_of<'h>(heap: *const perdura_heap) -> Result<&'h Heap, Refusal> {
    // SAFETY: the caller's promise.
    let heap = unsafe { heap.as_ref() };
    let heap = &heap.ok_or(Refusal::Argument { what: "heap", why: "is null" })?.heap;
    if heap.is_forked() { Err(Refusal::Forked) } else { Ok(heap) }
}
