//! Memory whose writes are noticed before they happen: by announcements under a lane, or by traps.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::lanes::{LaneId, Lanes};
use crate::memory::Memory;
use crate::stats::Stats;
use crate::tracking::PageTracker;

/// Most credit that is taken from the budget in advance, so that most writes touch only their lane.
pub(crate) const CREDIT_CHUNK_BYTES: u64 = 4096;

/// Memory, and the means by which writes to it are noticed.
pub struct Tracked {
    /// The memory and its account.
    pub memory: Arc<Memory>,
    /// The locks of writers that announce.
    pub lanes: Lanes,
    /// The state of pages in trap mode; `None` in barrier mode, where writers announce.
    tracker: Option<Arc<PageTracker>>,
}

impl Tracked {
    /// Joins memory, its lanes and, in trap mode, the state of its pages.
    pub fn new(memory: Arc<Memory>, lanes: Lanes, tracker: Option<Arc<PageTracker>>) -> Self {
        Self { memory, lanes, tracker }
    }

    /// The state of pages in trap mode; `None` in barrier mode.
    #[inline]
    pub fn pages(&self) -> Option<&Arc<PageTracker>> {
        self.tracker.as_ref()
    }

    /// Whether stores are trapped page by page.
    #[inline]
    pub fn is_trapped(&self) -> bool {
        self.tracker.is_some()
    }

    /// Gives an unused block to a lane that will use it.
    pub(crate) fn hand_out(&self, block: u64, lane: LaneId) {
        // Pages that are trapped one by one must be small.
        if !self.is_trapped() {
            self.memory.huge_pages.for_block(&self.memory.map, &self.memory.ledger, block);
        }
        self.lanes.assign(block, lane);
    }

    /// Whether writers of these grains of a bitmap word are kept out, as far as that can be seen:
    /// somebody holds the lane of the word, or has locked the pages.
    pub fn are_writers_out(&self, word: usize, bits: u64) -> bool {
        let offset = word as u64 * self.memory.ledger.geometry().word_bytes();
        match &self.tracker {
            None => self.lanes.lock(self.lanes.of(offset)).is_held(),
            Some(tracker) => tracker.are_locked(word, bits),
        }
    }

    /// Calls `f` with each word of a bitmap from word `from` up to `to` that is not zero, and its
    /// bits; stops when `f` returns false.
    pub fn for_dirty_words(
        &self,
        parity: u64,
        from: usize,
        to: usize,
        f: impl FnMut(usize, u64) -> bool,
    ) {
        let ledger = &self.memory.ledger;
        let (summary, bitmap) = (self.memory.summary(parity), ledger.bitmap(parity));
        let clean = |word: usize| {
            let offset = word as u64 * ledger.geometry().word_bytes();
            // The caller may hold another lane, so nobody waits for this one. Fault handlers mark
            // without a lane.
            let lane = self.lanes.try_lock_owner_of(offset);
            if lane.is_some() || self.is_trapped() {
                summary.unmark_if_clean(bitmap, word);
            }
        };
        summary.for_dirty_words(bitmap, from, to, clean, f);
    }

    /// Bytes that became dirty since the region was opened.
    #[inline]
    pub fn dirtied_bytes(&self) -> u64 {
        self.memory.stats.dirtied_bytes.load(Relaxed) + self.lanes.dirtied_bytes()
    }

    /// Bytes that became dirty, less those that were dropped again: the bytes that the budget had
    /// to take.
    pub fn net_dirtied_bytes(&self) -> u64 {
        self.dirtied_bytes().saturating_sub(self.lanes.dropped_bytes())
    }

    /// Reads all counters.
    pub fn read_stats(&self) -> Stats {
        Stats {
            dirtied_bytes: self.dirtied_bytes(),
            dropped_bytes: self.lanes.dropped_bytes(),
            ..self.memory.stats.read()
        }
    }

    /// Credit that a lane may keep between operations, bytes.
    #[inline]
    pub(crate) fn credit_keep_bytes(&self) -> u64 {
        let limit = self.memory.ledger.budget_limit().load(Relaxed);
        let fair = limit / 32 / u64::from(self.lanes.count());
        if fair < 256 { 0 } else { fair.min(CREDIT_CHUNK_BYTES) }
    }

    /// Gives back the credit of all lanes that nobody holds.
    pub fn reclaim_credit(&self) {
        for lane in 0..self.lanes.count() {
            let Some(mut state) = self.lanes.lock(LaneId(lane)).try_lock() else { continue };
            let credit = std::mem::take(&mut state.credit_bytes);
            drop(state);
            self.memory.budget.give_back(&self.memory.ledger, credit);
        }
    }

    /// Gives back the credit of all lanes, waiting for those that are held; the caller holds none.
    /// Returns the bytes given back.
    pub fn reclaim_all_credit(&self) -> u64 {
        let mut bytes = 0;
        for lane in 0..self.lanes.count() {
            let credit = std::mem::take(&mut self.lanes.lock(LaneId(lane)).lock().credit_bytes);
            self.memory.budget.give_back(&self.memory.ledger, credit);
            bytes += credit;
        }
        bytes
    }
}
