//! Opens the heap before `main`, and reports at the end how much of it was used.
//!
//! The heap is not opened at the first `malloc`, because the dynamic loader calls that when nothing
//! is ready yet; memory that is allocated earlier comes from [`crate::malloc::elsewhere`]. The heap
//! is opened before the constructors of all other libraries (`build.rs`), even the C library's: see
//! [`crate::malloc::fork`]. So this file can rely on little of the C library.

use std::sync::OnceLock;

use perdura_heap::{Config, Durability, Heap, HeapError, Memory, MemoryError};
use rustix::process::{Resource, getrlimit};

use crate::environment::Environment;
use crate::malloc::settings::{self, Settings};
use crate::malloc::{elsewhere, fork, heap, passed};
use crate::say::{self, Kept};

/// Least bytes of a heap that are tried when memory is scarce.
const BYTES_LEAST: u64 = 64 << 20;

/// Standard error as it was at the start, because many programs close theirs before they end.
static REPORT: OnceLock<Kept> = OnceLock::new();

/// Opens the heap that the environment asks for; without one, calls are passed on from now on.
pub fn start(environment: &Environment) {
    let settings = match Settings::of(environment) {
        Ok(Some(settings)) => settings,
        Ok(None) => return passed::begin(),
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

/// Reports how much was used, if that was asked for.
pub fn report() {
    let (Some(heap), Some(kept)) = (heap::heap(), REPORT.get()) else { return };
    if !kept.is_same() {
        return;
    }
    let (bytes, others) = (heap.stats().capacity_bytes, elsewhere::taken());
    kept.say(format_args!("capacity_bytes={bytes} elsewhere_objects={others}"));
}
