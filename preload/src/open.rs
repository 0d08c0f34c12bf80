//! Opens the heap before `main`, and reports at the end how much of it was used.
//!
//! The heap is not opened at the first `malloc`, because the dynamic loader calls that when nothing
//! is ready yet; memory that is allocated earlier comes from [`crate::elsewhere`]. The heap is
//! opened before the constructors of all other libraries (`build.rs`), even the C library's: see
//! [`crate::fork`]. So this file can rely on little of the C library.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use perdura_heap::{Config, Durability, Heap, HeapError, Memory, MemoryError};
use rustix::process::{Resource, getrlimit};

use crate::say::Kept;
use crate::settings::{self, Environment, Settings};
use crate::{elsewhere, fork, heap, say};

/// Least bytes of a heap that are tried when memory is scarce.
const BYTES_LEAST: u64 = 64 << 20;

/// Standard error as it was at the start, because many programs close theirs before they end.
static REPORT: OnceLock<Kept> = OnceLock::new();

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = report;

extern "C" fn start(_: c_int, _: *const *const c_char, words: *const *const c_char) {
    // SAFETY: the loader passes the environment; there is no other thread yet.
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
            heap::publish(heap, settings.dir);
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
    // For a file, getting the pages of a bucket at once takes longer than many small programs run.
    // Private memory comes in huge pages where the kernel has them, at the first touch.
    config.contiguous = settings.dir.is_none();
    let heap = |bytes| Heap::open(memory(settings, bytes)?, config.clone());
    if let Some(bytes) = settings.bytes {
        return heap(bytes);
    }
    let mut bytes = settings::default_bytes(settings.numa_node);
    if settings.dir.is_some() {
        // The kernel ends a process that makes a file longer.
        bytes = bytes.min(file_bytes_most());
    }
    loop {
        match heap(bytes) {
            Err(error) if bytes / 2 >= BYTES_LEAST && is_for_size(&error) => bytes /= 2,
            outcome => return outcome,
        }
    }
}

/// Whether a smaller heap may succeed: addresses or a file's length may be limited (`ulimit -v`,
/// `ulimit -f`).
fn is_for_size(error: &HeapError) -> bool {
    match error {
        HeapError::Memory(MemoryError::Anonymous { .. }) => true,
        HeapError::Memory(MemoryError::File { what, .. }) => matches!(*what, "extend" | "map"),
        // There is no memory for the heap's own tables.
        HeapError::Refused { .. } => true,
        _ => false,
    }
}

/// Most bytes that a file of this process may have (`ulimit -f`).
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
    let (Some(heap), Some(kept)) = (heap::heap(), REPORT.get()) else { return };
    if !kept.is_same() {
        return;
    }
    let (bytes, others) = (heap.stats().capacity_bytes, elsewhere::taken());
    kept.say(format_args!("capacity_bytes={bytes} elsewhere_objects={others}"));
}
