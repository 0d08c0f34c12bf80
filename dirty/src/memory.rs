//! A range of memory, and the account of its dirty bytes.
//!
//! Everybody who writes, traps, cleans or flushes the memory shares it. There are no locks here, so
//! a fault handler may use everything.

use std::sync::atomic::Ordering::*;
use std::sync::{Arc, OnceLock};

use perdura_media::{Clock, DeviceError};

use crate::block_heat::BlockHeat;
use crate::budget::Budget;
use crate::cache_padded::CachePadded;
use crate::error::{RegionError, SetupError};
use crate::extent::runs;
#[cfg(test)]
use crate::geometry::Geometry;
use crate::hints::Hints;
use crate::huge_pages::HugePages;
use crate::ledger::Ledger;
use crate::planted::Planted;
use crate::policy::PolicyKind;
use crate::stats::Counters;
use crate::summary::Summary;
use crate::sys::{Mapping, SharedMemory, prefetch};

/// Cache lines of a record that are prefetched before it is copied.
const LINES_AHEAD: u64 = 8;

/// The parts from which the account of a region's memory is made.
pub struct MemoryParts {
    /// The memory file.
    pub file: SharedMemory,
    /// The whole file, mapped.
    pub map: Mapping,
    /// The ledger of its dirty bytes.
    pub ledger: Ledger,
    /// The clock for policies and waits.
    pub clock: Arc<dyn Clock>,
    /// The policy that chooses what is cleaned first.
    pub policy: PolicyKind,
    /// Whether writes to data that are dirty already are noted, too.
    pub recency: bool,
    /// A planted bug, for tests that must catch it.
    pub planted: Planted,
}

/// A range of memory, and the account of its dirty bytes.
pub struct Memory {
    /// The memory file.
    pub file: SharedMemory,
    /// The whole file, mapped.
    pub map: Mapping,
    /// The ledger of its dirty bytes, shared with a process that takes over.
    pub ledger: Ledger,
    /// The account of the bytes that may be dirty.
    pub budget: CachePadded<Budget>,
    /// The hints of policies about past writes.
    pub hints: Hints,
    /// How often blocks were used lately, for the next start.
    pub block_heat: BlockHeat,
    /// Counters for statistics.
    pub stats: CachePadded<Counters>,
    /// The clock for policies and waits.
    pub clock: Arc<dyn Clock>,
    /// The pieces of memory and ledger that were given huge pages.
    pub huge_pages: HugePages,
    /// A planted bug, for tests that must catch it.
    pub planted: Planted,
    /// For each parity of the epoch, the parts of its bitmap that may hold bits.
    summaries: [Summary; 2],
    /// The first failure, which is kept for good.
    failure: OnceLock<String>,
}

impl Memory {
    /// Makes the account of memory that nobody uses yet.
    ///
    /// # Errors
    /// The system refuses the memory for tables.
    pub fn new(parts: MemoryParts) -> Result<Self, SetupError> {
        let MemoryParts { file, map, ledger, clock, policy, recency, planted } = parts;
        let geometry = *ledger.geometry();
        // Only these words can hold bits; to read the others would give them memory.
        let words_in_use = ledger.words_in_use();
        let summary = |parity| Summary::of(&geometry, &ledger.bitmap(parity)[..words_in_use]);
        Ok(Self {
            hints: Hints::new(&geometry, policy, recency)?,
            block_heat: BlockHeat::new(geometry.blocks()),
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

    /// Memory of this geometry, all of it in use, whose device nobody has.
    #[cfg(test)]
    pub(crate) fn in_test(geometry: Geometry, policy: PolicyKind) -> Self {
        let ledger = Ledger::create(geometry, 1, geometry.reserved_bytes).unwrap();
        ledger.budget_limit().store(1 << 20, Relaxed);
        let file = SharedMemory::create("test", geometry.reserved_bytes).unwrap();
        let map = file.map().unwrap();
        let clock = Arc::new(perdura_media::SimClock::new(1_000));
        let (recency, planted) = (true, Planted::None);
        Self::new(MemoryParts { file, map, ledger, clock, policy, recency, planted }).unwrap()
    }

    /// Bytes of the region in use.
    #[inline]
    pub fn region_bytes(&self) -> u64 {
        self.ledger.region_bytes().load(Acquire)
    }

    /// Parity of the current epoch's bitmap.
    #[inline]
    pub fn parity(&self) -> u64 {
        self.ledger.epoch().load(Acquire) & 1
    }

    /// The parts of an epoch's bitmap that may hold bits.
    #[inline]
    pub fn summary(&self, parity: u64) -> &Summary {
        &self.summaries[(parity & 1) as usize]
    }

    /// Prefetches the memory that cleaning a word will touch: the first cache lines of each run
    /// (the processor prefetches the rest by itself) and the locations.
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

    /// Prefetches the ledger's words about the grains of a bitmap word.
    #[inline]
    pub(crate) fn prefetch_entry(&self, parity: u64, word: usize) {
        prefetch(std::ptr::from_ref(self.ledger.dirty_word(parity, word)).cast());
        self.hints.heat.prefetch(word);
    }

    /// Remembers the first failure of the device for good. The device keeps a latch of its own.
    pub fn latch(&self, error: &DeviceError) -> RegionError {
        let cause = self.failure.get_or_init(|| error.to_string()).clone();
        tracing::error!(%cause, "the device failed: dirty data stay in memory");
        self.budget.notify();
        RegionError::Latched { cause }
    }

    /// Remembers a failure if it is the first, and wakes writers, who would wait for ever. Returns
    /// whether it is the first.
    pub fn fail(&self, cause: &str) -> bool {
        let is_first = self.failure.set(cause.to_owned()).is_ok();
        self.budget.notify();
        is_first
    }

    /// The first failure, if there was one.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Returns an error once something has failed.
    ///
    /// # Errors
    /// The latched failure.
    #[inline]
    pub fn check(&self) -> Result<(), RegionError> {
        match self.failure.get() {
            Some(cause) => Err(RegionError::Latched { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Returns an error once the final flush has begun.
    ///
    /// # Errors
    /// [`RegionError::Closed`].
    #[inline]
    pub fn check_open(&self) -> Result<(), RegionError> {
        if self.budget.is_closed() { Err(RegionError::Closed) } else { Ok(()) }
    }
}
