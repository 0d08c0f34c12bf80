//! All loggers of a heap, the clock of its transactions, and when a fold is due.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use perdura_dirty::{CachePadded, Held, Rank, taken, taking};
use rustix::io::Errno;

use super::logger::Logger;
use super::shadow::Folded;
use crate::layout::{GENERATION_MASK, STAMP_MASK};

/// Bytes of logs below which a fold is not worth its snapshot.
const FOLD_BYTES_LEAST: u64 = 1 << 20;
/// Most loggers, because a span word can name no more.
const LOGGERS_MAX: usize = 4096;

/// All loggers of a heap, and the state of folding and settling.
pub(crate) struct Logs {
    list: Mutex<List>,
    made: AtomicU64,
    /// Generation of the chunks that are taken from now on. It is not durable before a fold ends.
    pub generation: AtomicU64,
    /// Bytes of chunks that must stay until the next fold.
    pub closed_bytes: AtomicU64,
    /// Bytes of closed chunks above which a fold is due.
    pub due_bytes: AtomicU64,
    /// Sequence of the next group.
    pub clock: CachePadded<AtomicU64>,
    /// The clock when the generation began, from which the stamps of records are told apart.
    pub clock_folded: AtomicU64,
    fold: Mutex<Folded>,
    /// Groups below this sequence are settled ([`super::settle`]).
    pub settled: AtomicU64,
    settling: Mutex<()>,
    /// Lines that were written back to settle groups.
    pub settled_lines: AtomicU64,
    /// Whether a fold is due however little was logged.
    pub is_pressed: AtomicBool,
    /// The closed bytes when a thread last waited in vain for the undo transactions that put a fold
    /// off.
    waited_bytes: AtomicU64,
    /// Folds since the heap was opened.
    pub folds: AtomicU64,
}

/// Refuses to go on after a fold that panicked half-way: the shadow that it left must never be
/// written out.
fn half_folded() -> ! {
    panic!(
        "a fold of the heap's logs panicked before: what is durable is whole, so open the heap \
         again"
    );
}

#[derive(Default)]
struct List {
    all: Vec<Arc<Logger>>,
    idle: Vec<Arc<Logger>>,
}

/// All loggers. No logger is made while this lives.
pub(crate) struct AllHeld<'l>(Held<MutexGuard<'l, List>>);

impl std::ops::Deref for AllHeld<'_> {
    type Target = [Arc<Logger>];

    fn deref(&self) -> &[Arc<Logger>] {
        &self.0.all
    }
}

impl Logs {
    pub fn new(spans: u64) -> Result<Self, Errno> {
        let folded = Folded::new(spans)?;
        Ok(Self {
            list: Mutex::default(),
            made: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            closed_bytes: AtomicU64::new(0),
            due_bytes: AtomicU64::new(FOLD_BYTES_LEAST),
            clock: CachePadded(AtomicU64::new(1)),
            clock_folded: AtomicU64::new(0),
            fold: Mutex::new(folded),
            settled: AtomicU64::new(0),
            settling: Mutex::default(),
            settled_lines: AtomicU64::new(0),
            is_pressed: AtomicBool::new(false),
            waited_bytes: AtomicU64::new(0),
            folds: AtomicU64::new(0),
        })
    }

    /// Gives a thread a logger that another thread has left, or a new one. Returns `None` if there
    /// are as many as span words can name.
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

    /// All loggers, ascending by number.
    pub fn all(&self) -> Vec<Arc<Logger>> {
        self.list().all.clone()
    }

    /// All loggers; no new one is made while the result is held.
    pub fn all_held(&self) -> AllHeld<'_> {
        AllHeld(self.list())
    }

    /// The number of loggers. The call takes no lock, because the caller may be using a log.
    pub fn count(&self) -> u64 {
        self.made.load(Relaxed)
    }

    /// Locks the shadow, once no other thread folds.
    pub fn fold(&self) -> Held<MutexGuard<'_, Folded>> {
        taking(Rank::Fold, || self.fold.lock().unwrap_or_else(|_| half_folded()))
    }

    /// Locks the shadow, unless another thread folds.
    pub fn try_fold(&self) -> Option<Held<MutexGuard<'_, Folded>>> {
        match self.fold.try_lock() {
            Ok(folded) => Some(taken(Rank::Fold, folded)),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => half_folded(),
        }
    }

    /// Locks settling, unless another thread settles.
    pub fn try_settling(&self) -> Option<Held<MutexGuard<'_, ()>>> {
        let alone = match self.settling.try_lock() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(taken(Rank::Settling, alone))
    }

    /// Locks settling, which one thread does at a time.
    pub fn settling(&self) -> Held<MutexGuard<'_, ()>> {
        taking(Rank::Settling, || self.settling.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn list(&self) -> Held<MutexGuard<'_, List>> {
        taking(Rank::Loggers, || self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The bits of the generation that span words hold.
    pub fn generation_bits(&self) -> u32 {
        (self.generation.load(Acquire) & GENERATION_MASK) as u32
    }

    /// Whether a fold is worth its snapshot, or something else asks for one.
    pub fn is_due(&self) -> bool {
        self.closed_bytes.load(Relaxed) > self.due_bytes.load(Relaxed)
            || self.is_pressed.load(Relaxed)
    }

    /// Notes that a generation begins, of which no chunk is closed yet.
    pub fn note_cut(&self) {
        self.closed_bytes.store(0, Relaxed);
        self.waited_bytes.store(0, Relaxed);
        self.is_pressed.store(false, Relaxed);
        self.clock_folded.store(self.clock.load(Acquire), Release);
    }

    /// Whether many chunks were closed since a thread last waited for a fold in vain.
    pub fn is_waiting_worth_it(&self) -> bool {
        let waited_bytes = self.waited_bytes.load(Relaxed);
        let more_bytes = FOLD_BYTES_LEAST.min(self.due_bytes.load(Relaxed));
        waited_bytes == 0 || self.closed_bytes.load(Relaxed) >= waited_bytes + more_bytes
    }

    /// Notes that a thread finds no room: a fold is due, and worth waiting for again.
    pub fn ask_for_fold(&self) {
        self.waited_bytes.store(0, Relaxed);
        self.is_pressed.store(true, Relaxed);
    }

    /// Notes that a thread waited for a fold in vain.
    pub fn note_waited(&self) {
        self.waited_bytes.store(self.closed_bytes.load(Relaxed).max(1), Relaxed);
    }

    /// Whether any log has an undo transaction open.
    pub fn is_undoing(&self) -> bool {
        self.list().all.iter().any(|logger| logger.is_undoing())
    }

    /// Asks for a fold when stamps are about to come round. Callers do so once for each chunk of
    /// groups, and not with each group, because all threads share the clock.
    pub fn note_clock(&self) {
        let since_fold = self.clock.load(Relaxed).saturating_sub(self.clock_folded.load(Relaxed));
        if since_fold > STAMP_MASK / 4 {
            self.is_pressed.store(true, Relaxed);
        }
    }

    /// Whether the clock is so near to the generation's start that stamps of links can be told
    /// apart. A fold is asked for long before it is not.
    pub fn has_stamps(&self) -> bool {
        let since_fold = self.clock.load(Relaxed).saturating_sub(self.clock_folded.load(Relaxed));
        since_fold < STAMP_MASK / 3
    }

    /// Sets when the next fold is due after a snapshot of `snapshot_bytes`: a snapshot is written
    /// once for four times as many bytes of logs, or for half of those that logs may have.
    pub fn set_due(&self, snapshot_bytes: u64, log_bytes_max: u64) {
        let due = (snapshot_bytes * 4).max(FOLD_BYTES_LEAST).min(log_bytes_max / 2);
        self.due_bytes.store(due, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fold_is_due_after_enough_bytes_or_time_or_when_somebody_asks() -> Result<(), Errno> {
        let logs = Logs::new(64)?;
        for (snapshot_bytes, log_bytes_max, due_bytes) in [
            (0, 1 << 30, FOLD_BYTES_LEAST),
            (1 << 20, 1 << 30, 4 << 20),
            (1 << 30, 64 << 20, 32 << 20),
        ] {
            logs.set_due(snapshot_bytes, log_bytes_max);
            let is_due_at = |bytes| {
                logs.closed_bytes.store(bytes, Relaxed);
                logs.is_due()
            };
            assert!(!is_due_at(0) && !is_due_at(due_bytes) && is_due_at(due_bytes + 1));
            logs.note_cut();
            assert!(!logs.is_due());
        }
        for (since_fold, is_due, has_stamps) in [
            (0, false, true),
            (STAMP_MASK / 4, false, true),
            (STAMP_MASK / 4 + 1, true, true),
            (STAMP_MASK / 3 - 1, true, true),
            (STAMP_MASK / 3, true, false),
        ] {
            logs.note_cut();
            logs.clock.fetch_add(since_fold, Relaxed);
            logs.note_clock();
            assert_eq!((logs.is_due(), logs.has_stamps()), (is_due, has_stamps), "{since_fold}");
        }
        logs.note_cut();
        assert!(!logs.is_due() && logs.has_stamps());
        logs.ask_for_fold();
        assert!(logs.is_due());
        Ok(())
    }

    #[test]
    fn a_fold_in_vain_is_waited_for_again_when_much_more_was_closed() -> Result<(), Errno> {
        let logs = Logs::new(64)?;
        for due_bytes in [FOLD_BYTES_LEAST / 2, FOLD_BYTES_LEAST * 5] {
            logs.set_due(0, 2 * due_bytes);
            let more_bytes = due_bytes.min(FOLD_BYTES_LEAST);
            for closed_bytes in [0, 5 << 20] {
                logs.closed_bytes.store(closed_bytes, Relaxed);
                assert!(logs.is_waiting_worth_it());
                logs.note_waited();
                let is_worth_it_at = |bytes| {
                    logs.closed_bytes.store(bytes, Relaxed);
                    logs.is_waiting_worth_it()
                };
                assert!(!is_worth_it_at(closed_bytes));
                assert!(!is_worth_it_at(closed_bytes.max(1) + more_bytes - 1));
                assert!(is_worth_it_at(closed_bytes.max(1) + more_bytes));
                assert!(!is_worth_it_at(closed_bytes));
                logs.ask_for_fold();
                assert!(logs.is_waiting_worth_it(), "somebody finds no room");
                logs.note_waited();
                logs.note_cut();
            }
        }
        Ok(())
    }
}
