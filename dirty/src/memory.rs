//! A range of memory, and the account of what of it is dirty.
//!
//! Shared by all who write, trap, clean or flush it. Locks are elsewhere: everything here may be
//! used by a fault handler.

use std::sync::atomic::Ordering::*;
use std::sync::{Arc, OnceLock};

use perdura_media::{Clock, DeviceError};

use crate::budget::Budget;
use crate::cache_padded::CachePadded;
use crate::error::{RegionError, SetupError};
use crate::extent::runs;
use crate::hints::Hints;
use crate::huge_pages::HugePages;
use crate::ledger::Ledger;
use crate::planted::Planted;
use crate::policy::PolicyKind;
use crate::stats::Counters;
use crate::summary::Summary;
use crate::sys::{Mapping, SharedMemory, prefetch};

/// Cache lines of a record asked for ahead of its copy.
const LINES_AHEAD: u64 = 8;

/// What the account of a region's memory begins with.
pub struct MemoryParts {
    /// The memory file.
    pub file: SharedMemory,
    /// The whole file, mapped.
    pub map: Mapping,
    /// What of it is dirty.
    pub ledger: Ledger,
    /// Times for policies and waits.
    pub clock: Arc<dyn Clock>,
    /// Which dirty data are cleaned first.
    pub policy: PolicyKind,
    /// Whether writes to dirty data are noted, too.
    pub recency: bool,
    /// A planted bug, for tests that must catch it.
    pub planted: Planted,
}

/// A range of memory, and the account of what of it is dirty.
pub struct Memory {
    /// The memory file.
    pub file: SharedMemory,
    /// The whole file, mapped.
    pub map: Mapping,
    /// What of it is dirty; shared with whoever takes over.
    pub ledger: Ledger,
    /// How much may be dirty.
    pub budget: CachePadded<Budget>,
    /// What policies remember of writes.
    pub hints: Hints,
    /// Counters for people.
    pub stats: CachePadded<Counters>,
    /// Times for policies and waits.
    pub clock: Arc<dyn Clock>,
    /// Pieces of memory and ledger that were given huge pages.
    pub huge_pages: HugePages,
    /// A planted bug, for tests that must catch it.
    pub planted: Planted,
    /// By parity of the epoch: which parts of its bitmap may hold bits.
    summaries: [Summary; 2],
    /// The first failure, for good.
    failure: OnceLock<String>,
}

impl Memory {
    /// The account of memory that nobody uses yet. Only the part in use can hold dirty bits.
    ///
    /// # Errors
    /// The memory for tables is refused.
    pub fn new(parts: MemoryParts) -> Result<Self, SetupError> {
        let MemoryParts { file, map, ledger, clock, policy, recency, planted } = parts;
        let geometry = *ledger.geometry();
        // Reading bits of the rest would give it memory.
        let words_in_use = ledger.words_in_use();
        let summary = |parity| Summary::of(&geometry, &ledger.bitmap(parity)[..words_in_use]);
        Ok(Self {
            hints: Hints::new(&geometry, policy, recency)?,
            summaries: [summary(0), summary(1)],
            huge_pages: HugePages::new(&map, &ledger),
            budget: CachePadded::default(),
            stats: CachePadded::default(),
            failure: OnceLock::new(),
            file,
            map,
            ledger,
            clock,
            planted,
        })
    }

    /// Bytes of the region in use.
    pub fn region_bytes(&self) -> u64 {
        self.ledger.region_bytes().load(Acquire)
    }

    /// Parity of the current epoch's bitmap.
    #[inline]
    pub fn parity(&self) -> u64 {
        self.ledger.epoch().load(Acquire) & 1
    }

    /// Which parts of an epoch's bitmap may hold bits.
    #[inline]
    pub fn summary(&self, parity: u64) -> &Summary {
        &self.summaries[(parity & 1) as usize]
    }

    /// Asks for the memory that cleaning a word will touch: the records' first lines (the rest
    /// follows by itself) and their locations.
    pub fn prefetch_grains(&self, word: usize, bits: u64) {
        let grain_bytes = self.ledger.geometry().grain_bytes();
        for run in runs(word, bits) {
            let (from, len) = (run.grain * grain_bytes, run.len * grain_bytes);
            for line in (0..len.min(LINES_AHEAD * 64)).step_by(64) {
                prefetch(self.map.base().wrapping_add((from + line) as usize));
            }
            self.ledger.prefetch_locations(run.grain, run.len);
        }
    }

    /// Asks for what is kept about a word's grains.
    #[inline]
    pub fn prefetch_entry(&self, parity: u64, word: usize) {
        prefetch(std::ptr::from_ref(self.ledger.dirty_word(parity, word)).cast());
        self.hints.heat.prefetch(word);
    }

    /// Remembers the first failure of the device for good; the device keeps a latch of its own.
    pub fn latch(&self, error: &DeviceError) -> RegionError {
        let cause = self.failure.get_or_init(|| error.to_string()).clone();
        tracing::error!(%cause, "the device failed: dirty data stay in memory");
        self.budget.notify();
        RegionError::Latched { cause }
    }

    /// Remembers a failure if it is the first, and ends the waits of those who would wait for ever.
    /// Returns whether it is.
    pub fn fail(&self, cause: &str) -> bool {
        let is_first = self.failure.set(cause.to_owned()).is_ok();
        self.budget.notify();
        is_first
    }

    /// The first failure, if there was one.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Refuses once something has failed.
    ///
    /// # Errors
    /// The latched failure.
    pub fn check(&self) -> Result<(), RegionError> {
        match self.failure.get() {
            Some(cause) => Err(RegionError::Latched { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Refuses writers once the final flush has begun.
    ///
    /// # Errors
    /// [`RegionError::Closed`].
    pub fn check_open(&self) -> Result<(), RegionError> {
        if self.budget.is_closed() { Err(RegionError::Closed) } else { Ok(()) }
    }
}
