//! Perdura's heap as a contestant: persistent memory and capacity memory, in a file in memory.

use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use perdura_heap::{
    Bookkeeping, Config, Durability, Heap, HeapError, Logging, Memory, Offset, Opened, Tap,
};

use super::touch;
use crate::heap::contestant::{
    Contestant, ContestantError, Counters, Measure, WRITE_BYTES, Way, Who,
};
use crate::heap::protocol::{Reopened, Setup};

/// Size of an object's address in persistent memory.
const ADDRESS_BYTES: u64 = 8;

/// Counts lines and fences.
#[derive(Default)]
struct FlushCount {
    lines: AtomicU64,
    fences: AtomicU64,
}

impl Tap for FlushCount {
    fn store(&self, _: u64, _: &[u8]) {}

    fn flush(&self, _: u64) {
        self.lines.fetch_add(1, Relaxed);
    }

    fn fence(&self) {
        self.fences.fetch_add(1, Relaxed);
    }
}

/// Persistent memory of Perdura's heap.
pub struct Persistent {
    heap: Heap,
    /// Offset of the table that holds each object's address.
    published: u64,
    count: Option<Arc<FlushCount>>,
}

/// A contestant whose heap was opened.
pub struct OpenHeap<C> {
    /// The contestant to measure.
    pub contestant: C,
    /// The heap's description.
    pub name: String,
    /// The heap's state, if it existed before.
    pub reopened: Option<Reopened>,
}

impl Persistent {
    /// Creates a heap for the objects of the setup, or opens the setup's kept heap.
    pub fn open(setup: &Setup) -> Result<OpenHeap<Self>, ContestantError> {
        let count = setup.is_counting.then(Arc::<FlushCount>::default);
        let tap = count.clone().map(|count| count as Arc<dyn Tap>);
        let (heap, reopened) = open(setup, tap)?;
        let name = heap.memory().describe();
        let mut contestant = Self { heap, published: 0, count };
        if reopened.is_none() {
            let bytes = setup.objects as u64 * ADDRESS_BYTES;
            contestant.published = contestant.allocate(bytes as usize)?;
            contestant.touch(contestant.published, bytes as usize, 0);
        }
        Ok(OpenHeap { contestant, name, reopened })
    }

    /// Replaces an object together with the word that holds its address. Other ways may have left
    /// another object's address there.
    #[inline]
    fn replace_published(
        &self,
        at: Offset,
        old: u64,
        bytes: usize,
    ) -> Result<u64, ContestantError> {
        let word = self.heap.pointer(at).cast::<u64>();
        // SAFETY: a word of the table, which belongs to this share alone, inside the heap.
        unsafe { word.write(old) };
        match self.heap.replace_at(at, bytes as u64) {
            Ok(made) => Ok(made.get()),
            Err(error) => Err(no_object(bytes, &error)),
        }
    }

    fn replace_in_transaction(&self, old: u64, bytes: usize) -> Result<u64, ContestantError> {
        let moved = self.heap.transaction(|tx| {
            tx.free(offset(old))?;
            let new = tx.alloc(bytes as u64)?;
            Ok::<_, HeapError>(new.get())
        });
        moved.map_err(|error| ContestantError::Transaction { objects: 2, cause: error.to_string() })
    }
}

impl Contestant for Persistent {
    #[inline]
    fn allocate(&self, bytes: usize) -> Result<u64, ContestantError> {
        match self.heap.persist_alloc(bytes as u64) {
            Ok(offset) => Ok(offset.get()),
            Err(error) => Err(no_object(bytes, &error)),
        }
    }

    #[inline]
    fn free(&self, place: u64) -> Result<(), ContestantError> {
        self.heap.persist_free(offset(place)).map_err(|error| not_freed(place, &error))
    }

    #[inline]
    fn touch(&self, place: u64, bytes: usize, value: u64) {
        // SAFETY: an object of the caller's share, of at least `bytes`.
        unsafe { touch(self.heap.pointer(offset(place)), bytes, value) };
    }

    #[inline]
    fn replace(
        &self,
        way: Way,
        index: usize,
        old: u64,
        bytes: usize,
    ) -> Result<u64, ContestantError> {
        match way {
            Way::Plain => {
                self.free(old)?;
                self.allocate(bytes)
            }
            Way::Strict => {
                self.free(old)?;
                self.heap.fence();
                self.allocate(bytes)
            }
            Way::Published => {
                let at = offset(self.published + index as u64 * ADDRESS_BYTES);
                self.replace_published(at, old, bytes)
            }
            Way::Transaction => self.replace_in_transaction(old, bytes),
            Way::Reserved => Err(ContestantError::NotOffered { measure: Measure::Pair(way) }),
        }
    }

    #[inline]
    fn transact(&self, places: &[u64], value: &[u8; WRITE_BYTES]) -> Result<(), ContestantError> {
        let done = self.heap.transaction(|tx| {
            for place in places {
                tx.write_bytes(offset(*place), value)?;
            }
            Ok::<_, HeapError>(())
        });
        done.map_err(|error| ContestantError::Transaction {
            objects: places.len(),
            cause: error.to_string(),
        })
    }

    fn settle(&self) -> Result<(), ContestantError> {
        // Writes home lines back and folds the logs: this must not happen while other operations
        // are counted.
        self.heap.compact().map_err(|error| ContestantError::Open {
            what: "folding the heap's logs".into(),
            cause: error.to_string(),
        })
    }

    fn counters(&self) -> Option<Counters> {
        let count = self.count.as_ref()?;
        let stats = self.heap.stats();
        let (deferred_lines, prepared_lines) = (stats.deferred_lines, stats.prepared_lines);
        Some(Counters {
            lines: count.lines.load(Relaxed).saturating_sub(deferred_lines + prepared_lines),
            fences: count.fences.load(Relaxed),
            deferred_lines,
            prepared_lines,
        })
    }

    fn taken_bytes(&self) -> Option<u64> {
        Some(self.heap.stats().persistent_bytes)
    }
}

/// Capacity memory of Perdura's heap.
pub struct Capacity {
    heap: Heap,
}

impl Capacity {
    /// Creates a heap for the objects of the setup.
    pub fn open(setup: &Setup) -> Result<OpenHeap<Self>, ContestantError> {
        let (heap, reopened) = open(setup, None)?;
        let name = heap.memory().describe();
        Ok(OpenHeap { contestant: Self { heap }, name, reopened })
    }
}

impl Contestant for Capacity {
    #[inline]
    fn allocate(&self, bytes: usize) -> Result<u64, ContestantError> {
        match self.heap.cap_alloc(bytes as u64) {
            Ok(address) => Ok(address.as_ptr() as u64),
            Err(error) => Err(no_object(bytes, &error)),
        }
    }

    #[inline]
    fn free(&self, place: u64) -> Result<(), ContestantError> {
        let address = NonNull::new(place as *mut u8);
        let Some(address) = address else {
            return Err(ContestantError::Free { place, cause: "null".into() });
        };
        self.heap.cap_free(address).map_err(|error| not_freed(place, &error))
    }

    #[inline]
    fn touch(&self, place: u64, bytes: usize, value: u64) {
        // SAFETY: an object of the caller's share, of at least `bytes`.
        unsafe { touch(place as *mut u8, bytes, value) };
    }

    fn taken_bytes(&self) -> Option<u64> {
        Some(self.heap.stats().capacity_bytes)
    }
}

/// Opens the heap's file: a new one, whose name is removed at once, or the one that the setup
/// keeps.
fn open(
    setup: &Setup,
    tap: Option<Arc<dyn Tap>>,
) -> Result<(Heap, Option<Reopened>), ContestantError> {
    let own = setup.dir.join(format!("heap-{}", std::process::id()));
    let file = setup.keep.as_deref().unwrap_or(&own);
    let durability = match setup.who {
        Who::PerduraOrdered => Durability::Ordered,
        _ => Durability::Flushed,
    };
    let memory =
        Memory::file(file, setup.heap_bytes, durability).map_err(|error| not_open(file, &error))?;
    let mut config = Config::default();
    config.tap = tap;
    config.threads = setup.threads;
    match setup.who {
        Who::PerduraConventional => config.bookkeeping = Bookkeeping::Conventional,
        Who::PerduraUndo => config.logging = Logging::Undo,
        _ => {}
    }
    let began = Instant::now();
    let heap = Heap::open(memory, config).map_err(|error| not_open(file, &error))?;
    let ns = began.elapsed().as_nanos() as u64;
    let reopened = match heap.opened() {
        Opened::Made => None,
        Opened::Recovered(found) => {
            Some(Reopened { ns, objects: found.objects, records: found.records })
        }
    };
    if setup.keep.is_none() {
        std::fs::remove_file(file).map_err(|error| not_open(file, &error))?;
    }
    Ok((heap, reopened))
}

#[inline]
fn offset(place: u64) -> Offset {
    match Offset::new(place) {
        Some(offset) => offset,
        None => unreachable!("no object of a share lies at {place}"),
    }
}

#[cold]
fn no_object(bytes: usize, error: &HeapError) -> ContestantError {
    ContestantError::Allocate { bytes, cause: error.to_string() }
}

#[cold]
fn not_freed(place: u64, error: &HeapError) -> ContestantError {
    ContestantError::Free { place, cause: error.to_string() }
}

fn not_open(file: &Path, error: &impl ToString) -> ContestantError {
    ContestantError::Open { what: file.display().to_string(), cause: error.to_string() }
}
