//! The dual-use heap as the work's memory, and an observer that tells the recorder who owns the
//! memory of each store.
//!
//! The owner follows from the span table (docs/format.md), whose stores the observer sees like all
//! others: spans of logs and objects are entered there before they are used, and memory without an
//! entry belongs to the heap's own tables. A log of words holds records of allocations and records
//! of transactions: those stored while a transaction runs are the log's, the others the
//! allocator's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use perdura_heap::{
    Bookkeeping, Config, Durability, Heap, HeapError, LogAs, Memory, Offset, Records, Tap, Tx,
};

use super::access::Recorder;
use super::ground::{Changes, Ground, Place, WorkError};
use super::model::Owner;
use super::result::LogKind;
use super::sys::Block;

const SPAN_BYTES: u64 = 64 << 10;
const TABLE_AT: u64 = 68 << 10;
/// Kind of a free span, in the lowest bits of its entry in the span table.
const FREE: u8 = 0;
const WORD_LOG: u8 = 3;
const OBJECT_LOG: u8 = 4;
const SNAPSHOT: u8 = 5;
/// A store of zeros of at least this length clears a log; records are shorter or hold something.
const CLEARED_BYTES: usize = 4096;

/// How the heap is set up for the work.
#[derive(Debug, Clone, Copy)]
pub struct HeapSetup {
    /// Size of the heap.
    pub heap_bytes: u64,
    /// Size of a bucket; none: pages at the first touch, spans of both kinds in turn.
    pub bucket_bytes: Option<u64>,
    /// Whether allocations are recorded in a log; otherwise in metadata in persistent memory.
    pub is_logged: bool,
    /// Kind of the transactions' log.
    pub log: LogKind,
}

/// Counts of the observer.
#[derive(Debug, Default)]
pub struct Tally {
    /// Bytes stored to the transactions' logs.
    pub log_bytes: AtomicU64,
    /// Lines flushed.
    pub lines_flushed: AtomicU64,
    /// Number of fences.
    pub fences: AtomicU64,
}

/// Observes the heap's stores.
pub struct Watcher {
    recorder: Option<Arc<Mutex<Recorder>>>,
    base: u64,
    spans: Vec<AtomicU8>,
    in_transaction: AtomicBool,
    /// The counts so far.
    pub tally: Tally,
}

impl Watcher {
    fn span_kind(&self, offset: u64) -> u8 {
        self.spans.get((offset / SPAN_BYTES) as usize).map_or(FREE, |kind| kind.load(Relaxed))
    }

    fn owner(&self, offset: u64) -> Owner {
        match self.span_kind(offset) {
            OBJECT_LOG => Owner::Log,
            WORD_LOG if self.in_transaction.load(Relaxed) => Owner::Log,
            FREE | WORD_LOG | SNAPSHOT => Owner::Metadata,
            _ => Owner::PersistentData,
        }
    }
}

impl Tap for Watcher {
    fn store(&self, offset: u64, bytes: &[u8]) {
        let entry = offset.wrapping_sub(TABLE_AT) / 8;
        if offset >= TABLE_AT && bytes.len() == 8 && (entry as usize) < self.spans.len() {
            self.spans[entry as usize].store(bytes[0] & 15, Relaxed);
        }
        let owner = self.owner(offset);
        let is_clearing = bytes.len() >= CLEARED_BYTES && bytes.iter().all(|byte| *byte == 0);
        if owner == Owner::Log && !is_clearing {
            self.tally.log_bytes.fetch_add(bytes.len() as u64, Relaxed);
        }
        if let Some(recorder) = &self.recorder {
            recorder.lock().store(self.base + offset, bytes.len() as u64, owner);
        }
    }

    fn flush(&self, line_offset: u64) {
        self.tally.lines_flushed.fetch_add(1, Relaxed);
        if let Some(recorder) = &self.recorder {
            recorder.lock().flush(self.base + line_offset, self.owner(line_offset));
        }
    }

    fn fence(&self) {
        self.tally.fences.fetch_add(1, Relaxed);
    }
}

/// A heap in private memory.
pub struct HeapGround {
    heap: Heap,
    base: u64,
    heap_bytes: u64,
    watcher: Option<Arc<Watcher>>,
}

impl HeapGround {
    /// A new heap whose stores are counted and passed to a recorder.
    ///
    /// # Errors
    /// There is no memory.
    pub fn watched(
        setup: HeapSetup,
        recorder: Option<Arc<Mutex<Recorder>>>,
    ) -> Result<Self, WorkError> {
        Self::open(setup, |base| {
            let spans = (setup.heap_bytes / SPAN_BYTES) as usize;
            Some(Arc::new(Watcher {
                recorder,
                base,
                spans: std::iter::repeat_with(|| AtomicU8::new(FREE)).take(spans).collect(),
                in_transaction: AtomicBool::new(false),
                tally: Tally::default(),
            }))
        })
    }

    /// A new heap without an observer: for timing.
    ///
    /// # Errors
    /// There is no memory.
    pub fn bare(setup: HeapSetup) -> Result<Self, WorkError> {
        Self::open(setup, |_| None)
    }

    fn open(
        setup: HeapSetup,
        watcher: impl FnOnce(u64) -> Option<Arc<Watcher>>,
    ) -> Result<Self, WorkError> {
        let memory = Memory::anonymous(setup.heap_bytes, Durability::Flushed)
            .map_err(failed("memory for a heap"))?;
        let base = memory.base().addr() as u64;
        let watcher = watcher(base);
        let mut config = Config::default();
        config.bookkeeping = match setup.is_logged {
            true => Bookkeeping::Logged,
            false => Bookkeeping::Conventional,
        };
        config.contiguous = setup.bucket_bytes.is_some();
        config.bucket_bytes = Some(setup.bucket_bytes.unwrap_or(SPAN_BYTES));
        config.records = match setup.log {
            LogKind::Words => Records::Words,
            LogKind::Objects => Records::Objects,
            LogKind::Hybrid => Records::Hybrid,
        };
        config.tap = watcher.clone().map(|watcher| watcher as Arc<dyn Tap>);
        let heap = Heap::open(memory, config).map_err(failed("a new heap"))?;
        Ok(Self { heap, base, heap_bytes: setup.heap_bytes, watcher })
    }

    /// Address of the first byte.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Size of the heap.
    pub fn heap_bytes(&self) -> u64 {
        self.heap_bytes
    }

    /// The observer's counts; none if there is no observer.
    pub fn tally(&self) -> Option<&Tally> {
        self.watcher.as_ref().map(|watcher| &watcher.tally)
    }
}

impl Ground for HeapGround {
    fn transact(
        &self,
        make: &mut dyn FnMut(&mut dyn Changes) -> Result<(), WorkError>,
    ) -> Result<(), WorkError> {
        let mark = |is_open| {
            if let Some(watcher) = &self.watcher {
                watcher.in_transaction.store(is_open, Relaxed);
            }
        };
        mark(true);
        let done = self.heap.transaction(|tx| make(&mut Open { tx }));
        mark(false);
        done
    }

    fn read(&self, place: Place, bytes: &mut [u8]) -> Result<(), WorkError> {
        self.heap.read_bytes(offset(place)?, bytes).map_err(failed("an object's bytes"))
    }

    fn address(&self, place: Place) -> u64 {
        self.base + place
    }

    fn capacity(&self, bytes: usize) -> Result<Block<'_>, WorkError> {
        let at = self.heap.cap_alloc(bytes as u64).map_err(failed("capacity memory"))?;
        // SAFETY: the allocator hands out each byte once, aligned to 16, and the heap outlives the
        // borrow.
        Ok(unsafe { Block::of(at, bytes) })
    }

    fn give_back(&self, block: Block<'_>) -> Result<(), WorkError> {
        self.heap.cap_free(block.leave()).map_err(failed("a block of capacity memory"))
    }
}

/// An open transaction.
struct Open<'t, 'h> {
    tx: &'t mut Tx<'h>,
}

impl Changes for Open<'_, '_> {
    fn alloc(&mut self, bytes: usize) -> Result<Place, WorkError> {
        let object = self.tx.alloc(bytes as u64).map_err(failed("an object"))?;
        Ok(object.get())
    }

    fn free(&mut self, place: Place) -> Result<(), WorkError> {
        self.tx.free(offset(place)?).map_err(failed("freeing an object"))
    }

    fn word(&mut self, object: Place, at: usize, value: u64) -> Result<(), WorkError> {
        let place = offset(object + at as u64)?;
        self.tx.write_as(place, &value.to_le_bytes(), LogAs::Words).map_err(failed("a word"))
    }

    fn bytes(&mut self, place: Place, bytes: &[u8]) -> Result<(), WorkError> {
        self.tx.write_as(offset(place)?, bytes, LogAs::Object).map_err(failed("an object's bytes"))
    }
}

fn offset(place: Place) -> Result<Offset, WorkError> {
    Offset::new(place).ok_or(WorkError::Nowhere)
}

impl From<HeapError> for WorkError {
    fn from(error: HeapError) -> Self {
        failed("a transaction")(error)
    }
}

fn failed<E: std::error::Error + Send + Sync + 'static>(
    what: &'static str,
) -> impl FnOnce(E) -> WorkError {
    move |source| WorkError::Ground { what, source: Box::new(source) }
}
