//! Opens the heap before `main`, and says at the end what it was used for.
//!
//! Not at the first `malloc`, which the dynamic loader makes when nothing is ready yet. What is
//! allocated before comes from [`crate::elsewhere`]. And before the constructors of all other
//! libraries (`build.rs`), the C library's own included: see [`crate::fork`]. So little of that may
//! be relied on here.

use std::ffi::{c_char, c_int};
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering::*};

use perdura_heap::{Config, Durability, Heap, HeapError, Memory, MemoryError};
use rustix::process::{Resource, getrlimit};

use crate::say::Kept;
use crate::settings::{self, Environment, Settings};
use crate::{elsewhere, fork, say};

/// Not worth trying below this many.
const BYTES_LEAST: u64 = 64 << 20;

static HEAP: AtomicPtr<Heap> = AtomicPtr::new(ptr::null_mut());
static DIR: OnceLock<PathBuf> = OnceLock::new();
/// Standard error as it was at the start: many programs close theirs before they end.
static REPORT: OnceLock<Kept> = OnceLock::new();

/// The heap, once it is open; it stays so for the rest of the process.
#[inline]
pub fn heap() -> Option<&'static Heap> {
    // SAFETY: null, or a heap that was leaked.
    unsafe { HEAP.load(Acquire).as_ref() }
}

/// Where the heap's file lies, if it lies in one.
pub fn dir() -> Option<&'static PathBuf> {
    DIR.get()
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = report;

extern "C" fn start(_: c_int, _: *const *const c_char, words: *const *const c_char) {
    // SAFETY: given by the loader; no other thread is there yet.
    let settings = match Settings::of(&unsafe { Environment::new(words) }) {
        Ok(settings) => settings,
        Err(wrong) => {
            let (name, value, expected) = (wrong.name, wrong.value.display(), wrong.expected);
            say::refuse(format_args!("{name}={value}: expected {expected}"));
        }
    };
    match open(&settings) {
        Ok(heap) => {
            if settings.report
                && let Some(kept) = Kept::of(2)
            {
                let _ = REPORT.set(kept);
            }
            if let Some(dir) = settings.dir {
                let _ = DIR.set(dir);
            }
            HEAP.store(Box::into_raw(Box::new(heap)), Release);
            fork::watch();
        }
        Err(error) => say::refuse(format_args!(
            "this program was to have its heap in capacity memory, which cannot be had: {error}"
        )),
    }
}

fn open(settings: &Settings) -> Result<Heap, HeapError> {
    let mut config = Config::default();
    config.numa_node = settings.numa_node;
    // What a system call must make at once takes a small program longer than all it does. Private
    // memory comes in huge pages where the kernel has them, at the first touch.
    config.contiguous = settings.dir.is_none();
    let heap = |bytes| Heap::open(memory(settings, bytes)?, config.clone());
    if let Some(bytes) = settings.bytes {
        return heap(bytes);
    }
    let mut bytes = settings::default_bytes(settings.numa_node);
    if settings.dir.is_some() {
        // Beyond it a file that is made longer ends the process.
        bytes = bytes.min(file_bytes_most());
    }
    loop {
        match heap(bytes) {
            Err(error) if bytes / 2 >= BYTES_LEAST && is_for_size(&error) => bytes /= 2,
            outcome => return outcome,
        }
    }
}

/// Whether a smaller heap may be had: addresses may be limited (`ulimit -v`), or a file's length.
fn is_for_size(error: &HeapError) -> bool {
    match error {
        HeapError::Memory(MemoryError::Anonymous { .. }) => true,
        HeapError::Memory(MemoryError::File { what, .. }) => matches!(*what, "extend" | "map"),
        // The heap's own tables.
        HeapError::Refused { .. } => true,
        _ => false,
    }
}

/// How long a file may be (`ulimit -f`).
fn file_bytes_most() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

fn memory(settings: &Settings, bytes: u64) -> Result<Memory, MemoryError> {
    match &settings.dir {
        Some(dir) => Memory::unnamed_file(dir, bytes),
        None => Memory::anonymous(bytes, Durability::Ordered),
    }
}

extern "C" fn report() {
    let (Some(heap), Some(kept)) = (heap(), REPORT.get()) else { return };
    if !kept.is_same() {
        return;
    }
    let (bytes, others) = (heap.stats().capacity_bytes, elsewhere::taken());
    kept.say(format_args!("capacity_bytes={bytes} elsewhere_objects={others}"));
}
