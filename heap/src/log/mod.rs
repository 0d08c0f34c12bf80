//! What is allocated, durably: a snapshot and the logs written since (pMem's write-aware allocator,
//! NVMA).
//!
//! A *record* says that an object begins or ceases to exist. Each thread appends its records, and
//! its transactions' groups, to chunks of its own *logger*. What is allocated is the snapshot with
//! all records applied, in any order: each flips one bit, and what must have come before it is
//! durable before it (an object is handed to another thread only behind a fence). So threads share
//! no log and no lock.
//!
//! A *fold* puts the records into a new snapshot: at one instant, with all loggers held, they turn
//! to chunks of the next *generation*; the old records are applied to the shadow in DRAM; the
//! shadow is written out; one store of the superblock's generation makes it count. Until then
//! snapshot and logs of the old generation do, together with those of the next.
//!
//! Lock order: fold, settling, the list of loggers, loggers ascending, the engine's.

mod claim;
pub(crate) mod fold;
pub(crate) mod group;
pub(crate) mod logger;
pub(crate) mod recover;
mod replay;
pub(crate) mod settle;
pub(crate) mod snapshot;
pub(crate) mod spans;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use perdura_region::Apart;
use rustix::io::Errno;

use crate::core::Core;
use crate::layout::{GENERATION_MASK, STAMP_MASK};
use crate::sys::Table;
use logger::Logger;

/// Words of the shadow for a span: a bit for each 16 B.
pub(crate) const SHADOW_WORDS: usize = 64;
/// A fold is not worth its snapshot below this many bytes of logs.
const FOLD_BYTES_LEAST: u64 = 1 << 20;
/// Loggers that span words can name.
const LOGGERS_MAX: usize = 4096;

/// All loggers, and what is folded.
pub(crate) struct Logs {
    list: Mutex<List>,
    made: AtomicU64,
    /// Volatile: that of the chunks taken from now on.
    pub generation: AtomicU64,
    /// Bytes of chunks that must stay until the next fold.
    pub closed_bytes: AtomicU64,
    /// Beyond this many a fold is due.
    pub due_bytes: AtomicU64,
    /// Sequence of the next group.
    pub clock: Apart<AtomicU64>,
    /// What it was when the generation began: records' stamps are told apart from there.
    pub clock_folded: AtomicU64,
    fold: Mutex<Folded>,
    /// Groups below this sequence are over, durably ([`settle`]).
    pub settled: AtomicU64,
    settling: Mutex<()>,
    /// Lines written back to settle groups.
    pub settled_lines: AtomicU64,
    /// A fold is due however little was logged.
    pub is_pressed: AtomicBool,
    /// How many of these there were when somebody waited in vain for the undo transactions that put
    /// a fold off.
    waited_bytes: AtomicU64,
    /// Folds since the heap was opened.
    pub folds: AtomicU64,
}

/// Spans that logs leave for a snapshot, however large it becomes: without it nothing could be
/// folded, nor opened.
pub(crate) fn logs_keep(core: &Core) -> u64 {
    snapshot::chunks_most(core.layout.spans)
}

/// Spans that objects leave besides, for the logs of `loggers` threads.
pub(crate) fn objects_keep(core: &Core, loggers: u64) -> u64 {
    logs_keep(core) + 3 * loggers + 2
}

/// A fold panicked half-way: what it left must never be written out.
fn half_folded() -> ! {
    panic!(
        "a fold of the heap's logs panicked before: what is durable is whole, so open the heap again"
    );
}

/// What one thread's transactions cost.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Written {
    pub word_log_bytes: u64,
    pub object_log_bytes: u64,
    pub changed_bytes: u64,
    pub prepared_lines: u64,
}

#[derive(Default)]
struct List {
    all: Vec<Arc<Logger>>,
    idle: Vec<Arc<Logger>>,
}

/// All loggers; none is made while this lives.
pub(crate) struct AllHeld<'l>(MutexGuard<'l, List>);

impl std::ops::Deref for AllHeld<'_> {
    type Target = [Arc<Logger>];

    fn deref(&self) -> &[Arc<Logger>] {
        &self.0.all
    }
}

/// What was allocated when the generation began.
pub(crate) struct Folded {
    /// [`SHADOW_WORDS`] a span.
    pub shadow: Table<AtomicU64>,
    /// A bit a span: its part of the shadow may not be all zeros.
    pub touched: Table<AtomicU64>,
    /// Spans of the snapshot that counts.
    pub chunks: Vec<u64>,
}

impl Folded {
    /// Notes that the shadow of a span changes.
    #[inline]
    pub fn touch(&self, span: usize) {
        let (word, bit) = (&self.touched[span / 64], 1 << (span % 64));
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Relaxed);
        }
    }

    /// The spans whose shadow may not be all zeros, ascending.
    pub fn touched_spans(&self) -> impl Iterator<Item = usize> + '_ {
        self.touched.iter().enumerate().flat_map(|(index, word)| {
            let bits = word.load(Relaxed);
            (0..64).filter(move |bit| bits & 1 << bit != 0).map(move |bit| index * 64 + bit)
        })
    }

    /// The shadow of a span.
    pub fn of_span(&self, span: usize) -> &[AtomicU64] {
        &self.shadow[span * SHADOW_WORDS..][..SHADOW_WORDS]
    }
}

impl Logs {
    pub fn new(spans: u64) -> Result<Self, Errno> {
        let shadow = Table::new(spans as usize * SHADOW_WORDS)?;
        let touched = Table::new(spans.div_ceil(64) as usize)?;
        Ok(Self {
            list: Mutex::default(),
            made: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            closed_bytes: AtomicU64::new(0),
            due_bytes: AtomicU64::new(FOLD_BYTES_LEAST),
            clock: Apart(AtomicU64::new(1)),
            clock_folded: AtomicU64::new(0),
            fold: Mutex::new(Folded { shadow, touched, chunks: Vec::new() }),
            settled: AtomicU64::new(0),
            settling: Mutex::default(),
            settled_lines: AtomicU64::new(0),
            is_pressed: AtomicBool::new(false),
            waited_bytes: AtomicU64::new(0),
            folds: AtomicU64::new(0),
        })
    }

    /// A logger for a thread: one that another has left, or a new one. `None`: there are as many as
    /// can be named.
    pub fn acquire(&self) -> Option<Arc<Logger>> {
        let mut list = self.list();
        if let Some(logger) = list.idle.pop() {
            return Some(logger);
        }
        let id = list.all.len();
        if id >= LOGGERS_MAX {
            return None;
        }
        let logger = Arc::new(Logger::new(id as u16));
        list.all.push(Arc::clone(&logger));
        self.made.store(list.all.len() as u64, Relaxed);
        Some(logger)
    }

    /// Leaves a logger to the next thread that needs one.
    pub fn release(&self, logger: Arc<Logger>) {
        self.list().idle.push(logger);
    }

    /// All there are, ascending.
    pub fn all(&self) -> Vec<Arc<Logger>> {
        self.list().all.clone()
    }

    /// All there are, and no new one while it is held.
    pub fn all_held(&self) -> AllHeld<'_> {
        AllHeld(self.list())
    }

    /// How many there are. Takes no lock: who asks may be using a log.
    pub fn count(&self) -> u64 {
        self.made.load(Relaxed)
    }

    /// What is folded, once nobody else folds.
    pub fn fold(&self) -> MutexGuard<'_, Folded> {
        self.fold.lock().unwrap_or_else(|_| half_folded())
    }

    /// As [`Logs::fold`]; `None`: somebody folds.
    pub fn try_fold(&self) -> Option<MutexGuard<'_, Folded>> {
        match self.fold.try_lock() {
            Ok(folded) => Some(folded),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => half_folded(),
        }
    }

    /// As [`Logs::settling`]; `None`: somebody settles.
    pub fn try_settling(&self) -> Option<MutexGuard<'_, ()>> {
        match self.settling.try_lock() {
            Ok(alone) => Some(alone),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Held by who settles.
    pub fn settling(&self) -> MutexGuard<'_, ()> {
        self.settling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The generation as span words have it.
    pub fn generation_bits(&self) -> u32 {
        (self.generation.load(Acquire) & GENERATION_MASK) as u32
    }

    /// Whether a fold is worth its snapshot, or something else asks for one.
    pub fn is_due(&self) -> bool {
        self.closed_bytes.load(Relaxed) > self.due_bytes.load(Relaxed)
            || self.is_pressed.load(Relaxed)
    }

    /// A generation begins: nothing is closed.
    pub fn note_cut(&self) {
        self.closed_bytes.store(0, Relaxed);
        self.waited_bytes.store(0, Relaxed);
        self.is_pressed.store(false, Relaxed);
        self.clock_folded.store(self.clock.load(Acquire), Release);
    }

    /// Whether much was closed since somebody waited for a fold in vain.
    pub fn is_waiting_worth_it(&self) -> bool {
        let waited_bytes = self.waited_bytes.load(Relaxed);
        let more_bytes = FOLD_BYTES_LEAST.min(self.due_bytes.load(Relaxed));
        waited_bytes == 0 || self.closed_bytes.load(Relaxed) >= waited_bytes + more_bytes
    }

    /// Somebody finds no room: a fold is due, and worth waiting for again.
    pub fn ask_for_fold(&self) {
        self.waited_bytes.store(0, Relaxed);
        self.is_pressed.store(true, Relaxed);
    }

    /// Somebody waited for a fold in vain.
    pub fn note_waited(&self) {
        self.waited_bytes.store(self.closed_bytes.load(Relaxed).max(1), Relaxed);
    }

    /// Whether any log has an undo transaction open.
    pub fn is_undoing(&self) -> bool {
        self.list().all.iter().any(|logger| logger.is_undoing())
    }

    /// Asks for a fold when stamps are about to come round. To be called once a chunk of groups:
    /// not with each, since the clock is every thread's.
    pub fn note_clock(&self) {
        let since_fold = self.clock.load(Relaxed).saturating_sub(self.clock_folded.load(Relaxed));
        if since_fold > STAMP_MASK / 4 {
            self.is_pressed.store(true, Relaxed);
        }
    }

    /// Sets when the next fold is due, for a snapshot of `snapshot_bytes`: it is written once for
    /// twice as much log.
    pub fn set_due(&self, snapshot_bytes: u64, at_most_bytes: u64) {
        let due = (snapshot_bytes * 4).max(FOLD_BYTES_LEAST).min(at_most_bytes);
        self.due_bytes.store(due, Relaxed);
    }
}
