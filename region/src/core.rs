//! What every part of a region shares: memory, ledger, account, lanes, device.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard, RwLock};
use perdura_media::{Clock, Device, DeviceError};
use rustix::io::Errno;

use crate::ahead::Ahead;
use crate::announce::Need;
use crate::append::Appender;
use crate::clean::Cleaner;
use crate::codec::Compression;
use crate::error::OpenError;
use crate::format::Layout;
use crate::kinds::KindChange;
use crate::load::Loading;
use crate::tracking::Tracking;
use perdura_dirty::apart::Apart;
use perdura_dirty::budget::Budget;
use perdura_dirty::error::RegionError;
use perdura_dirty::extent::runs;
use perdura_dirty::heat::HeatTable;
use perdura_dirty::huge_pages::HugePages;
use perdura_dirty::lanes::{LaneId, Lanes};
use perdura_dirty::ledger::Ledger;
use perdura_dirty::planted::Planted;
use perdura_dirty::policy::{Mark, PolicyKind};
use perdura_dirty::stats::{Counters, Stats};
use perdura_dirty::summary::Summary;
use perdura_dirty::sys::{Mapping, SharedMemory, prefetch};
use perdura_dirty::waited::Waited;

/// Bytes of a policy unit as a power of two, barrier mode: 1 KiB.
const UNIT_SHIFT_BARRIER: u32 = 10;
/// Cache lines of a record asked for ahead of its copy.
const LINES_AHEAD: u64 = 8;

pub(crate) struct Core {
    pub memory: SharedMemory,
    pub map: Mapping,
    pub ledger: Ledger,
    pub layout: Layout,
    pub budget: Apart<Budget>,
    pub lanes: Lanes,
    pub tracking: Tracking,
    pub device: Arc<dyn Device>,
    pub clock: Arc<dyn Clock>,
    pub policy: PolicyKind,
    pub recency: bool,
    pub compression: Compression,
    pub planted: Planted,
    pub stats: Apart<Counters>,
    /// Grains written again while dirty; private, only a hint.
    pub heat: HeatTable,
    /// Policy marks, as many words per unit as the policy needs; private, only a hint.
    pub marks: Option<Mapping>,
    /// For each bitmap.
    pub summaries: [Summary; 2],
    /// Policy epoch (1 ms by default).
    pub tick: Apart<AtomicU32>,
    pub appender: Apart<Waited<Appender>>,
    /// Held while the budget is changed or drilled.
    pub budget_change: Mutex<()>,
    pub cleaner: Apart<Mutex<Cleaner>>,
    /// Locked after the cleaner and before the appender.
    pub ahead: Mutex<Ahead>,
    pub log_percent: u64,
    /// What of the image is not in memory yet; blocks are marked so in `lanes`.
    pub loading: RwLock<Option<Arc<Loading>>>,
    /// The next group commit must be a whole one.
    pub groups_need_commit: AtomicBool,
    pub failure: OnceLock<String>,
    /// Pieces of memory and ledger that were given huge pages.
    pub huge_pages: HugePages,
    /// Whether the memory is locked in DRAM, or why not.
    pub locked: Result<(), Errno>,
    /// Whether the frame buffers lie in huge pages and the ledger is locked, or why not.
    pub buffers: OnceLock<(Result<(), Errno>, Result<(), Errno>)>,
    pub kind_change: KindChange,
}

/// The private hint tables: heat, and marks if the policy needs them.
pub(crate) fn hint_tables(
    ledger: &Ledger,
    policy: PolicyKind,
) -> Result<(HeatTable, Option<Mapping>), OpenError> {
    let geometry = ledger.geometry();
    let failed = |what, len_bytes| move |source| OpenError::Memory { what, len_bytes, source };
    let heat = HeatTable::new(geometry.words());
    let heat = heat.map_err(failed("heat table", geometry.words() as u64 * 16))?;
    let units = geometry.reserved_bytes >> unit_shift(geometry.grain_shift);
    let marks_bytes = units * policy.mark_words() as u64 * 8;
    let marks = (marks_bytes > 0).then(|| Mapping::anonymous(marks_bytes)).transpose();
    Ok((heat, marks.map_err(failed("policy table", marks_bytes))?))
}

/// Log2 of a policy unit's bytes.
pub(crate) fn unit_shift(grain_shift: u32) -> u32 {
    UNIT_SHIFT_BARRIER.max(grain_shift)
}

impl Core {
    pub fn region_bytes(&self) -> u64 {
        self.ledger.region_bytes().load(Acquire)
    }

    /// Gives a block that is not in use to a lane which will use it.
    pub fn hand_out(&self, block: u64, lane: LaneId) {
        // Where pages are trapped one by one they must be small.
        if self.tracking.pages().is_none() {
            self.huge_pages.for_block(&self.map, &self.ledger, block);
        }
        self.lanes.assign(block, lane);
    }

    /// Parity of the current epoch's bitmap.
    pub fn parity(&self) -> u64 {
        self.ledger.epoch().load(Acquire) & 1
    }

    /// What writers left for a unit. Torn at worst: a hint.
    pub fn mark_of(&self, unit: u64) -> Mark {
        let mut words = [0; 2];
        for (word, place) in words.iter_mut().zip(self.mark_words(unit)) {
            *word = place.load(Relaxed);
        }
        Mark::unpack(words)
    }

    /// Notes that a unit is written; whoever calls excludes other writers of it.
    pub fn mark_written(&self, unit: u64, was_dirty: bool) {
        let places = self.mark_words(unit);
        if !places.is_empty() {
            let mark = self.policy.mark(self.mark_of(unit), was_dirty, self.tick.load(Relaxed));
            for (word, place) in mark.pack().into_iter().zip(places) {
                place.store(word, Relaxed);
            }
        }
    }

    fn mark_words(&self, unit: u64) -> &[AtomicU64] {
        let count = self.policy.mark_words();
        self.marks.as_ref().map_or(&[], |marks| marks.words(unit * count as u64 * 8, count))
    }

    /// Asks for the memory that cleaning a word will touch: the records' first lines (the rest
    /// follows by itself) and their homes.
    pub fn prefetch_grains(&self, word: usize, bits: u64) {
        let grain_bytes = self.ledger.geometry().grain_bytes();
        for run in runs(word, bits) {
            let (from, len) = (run.grain * grain_bytes, run.len * grain_bytes);
            for line in (0..len.min(LINES_AHEAD * 64)).step_by(64) {
                prefetch(self.map.base().wrapping_add((from + line) as usize));
            }
            self.ledger.prefetch_homes(run.grain, run.len);
        }
    }

    /// Asks for what is kept about a word's grains.
    #[inline]
    pub fn prefetch_entry(&self, parity: u64, word: usize) {
        prefetch(std::ptr::from_ref(self.ledger.dirty_word(parity, word)).cast());
        self.heat.prefetch(word);
    }

    /// Gathers the frame buffers and locks the ledger, unless that was done. It takes longer than
    /// to recover an image without loading it, and so is left to the cleaner's thread then.
    pub fn settle_buffers(&self) {
        // Before they are locked: locked pages are gathered less readily.
        let is_compressing = self.compression != Compression::Off;
        self.buffers.get_or_init(|| {
            (self.ledger.gather_buffers(is_compressing), self.ledger.lock_in_memory())
        });
    }

    /// What may be dirty in an epoch.
    pub fn summary(&self, parity: u64) -> &Summary {
        &self.summaries[(parity & 1) as usize]
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
        let (summary, bitmap) = (self.summary(parity), self.ledger.bitmap(parity));
        let clean = |word: usize| {
            let offset = word as u64 * self.ledger.geometry().word_bytes();
            // Another lane may be held: this one is not waited for. Who traps marks without one.
            let lane = self.lanes.try_lock_owner_of(offset);
            if lane.is_some() || self.tracking.pages().is_some() {
                summary.unmark_if_clean(bitmap, word);
            }
        };
        summary.for_dirty_words(bitmap, from, to, clean, f);
    }

    /// Bytes that became dirty since the region was opened.
    pub fn dirtied_bytes(&self) -> u64 {
        self.stats.dirtied_bytes.load(Relaxed) + self.lanes.dirtied_bytes()
    }

    /// Bytes that became dirty less those dropped again: what the budget has had to take in.
    pub fn net_dirtied_bytes(&self) -> u64 {
        self.dirtied_bytes().saturating_sub(self.lanes.dropped_bytes())
    }

    /// A reading of all counters.
    pub fn read_stats(&self) -> Stats {
        Stats {
            dirtied_bytes: self.dirtied_bytes(),
            dropped_bytes: self.lanes.dropped_bytes(),
            ..self.stats.read()
        }
    }

    /// Bitmap words of the region in use.
    pub fn words_in_use(&self) -> usize {
        self.ledger.words_in_use()
    }

    /// Remembers the first failure for good; the device keeps its own latch.
    pub fn latch(&self, error: &DeviceError) -> RegionError {
        let cause = self.failure.get_or_init(|| error.to_string()).clone();
        tracing::error!(%cause, "the device failed: dirty data stay in memory");
        self.budget.notify();
        RegionError::Latched { cause }
    }

    /// The latched failure, if any.
    pub fn check(&self) -> Result<(), RegionError> {
        match self.failure.get() {
            Some(cause) => Err(RegionError::Latched { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Blocks until what a writer needed may be there. Room is taken: the caller passes it to
    /// [`crate::Region::lock_with`]. Must be called with no lane held.
    pub fn satisfy(&self, need: Need) -> Result<u64, RegionError> {
        Counters::add(&self.stats.stalls, 1);
        let began_ns = self.clock.now_ns();
        let outcome = self.satisfy_now(need);
        let waited_ns = self.clock.now_ns().saturating_sub(began_ns);
        Counters::add(&self.stats.stall_ns, waited_ns);
        self.stats.stall_ns_max.fetch_max(waited_ns, Relaxed);
        outcome
    }

    fn satisfy_now(&self, need: Need) -> Result<u64, RegionError> {
        let mut fruitless = 0;
        loop {
            let seen = self.budget.version();
            if self.budget.is_closed() {
                return Err(RegionError::Closed);
            }
            match need {
                Need::Room { bytes } => {
                    let budget_bytes = self.budget.wanted_limit(&self.ledger);
                    if bytes > budget_bytes {
                        return Err(RegionError::BeyondBudget { asked_bytes: bytes, budget_bytes });
                    }
                    if self.budget.try_take(&self.ledger, bytes) {
                        return Ok(bytes);
                    }
                }
                Need::Buffer if self.appender.lock().can_take(self) => return Ok(0),
                Need::Buffer => {}
            }
            self.check()?;
            let Some(mut cleaner) = self.cleaner.try_lock() else {
                self.budget.wait(&*self.clock, seen, Duration::from_millis(20));
                continue;
            };
            if self.budget.is_closed() {
                return Err(RegionError::Closed);
            }
            let wanted = match need {
                Need::Room { bytes } => bytes,
                Need::Buffer => 0,
            };
            let gained = cleaner.make_room(self, wanted)?;
            drop(cleaner);
            if gained == 0 {
                // Nothing dirty that could be cleaned: the budget is held by other writers' credit.
                self.reclaim_credit();
                fruitless += 1;
                if fruitless > 2 {
                    self.budget.wait(&*self.clock, seen, Duration::from_millis(1));
                }
                if fruitless > 1_000 && self.budget.effective_limit(&self.ledger) < wanted {
                    return Err(self.log_full());
                }
            }
        }
    }

    /// The cleaner, unless the final flush has begun: nothing may be cut or written after it.
    pub fn open_cleaner(&self) -> Result<MutexGuard<'_, Cleaner>, RegionError> {
        let cleaner = self.cleaner.lock();
        self.check_open()?;
        Ok(cleaner)
    }

    /// Gives back the credit that idle lanes keep.
    pub fn reclaim_credit(&self) {
        for lane in 0..self.lanes.count() {
            let Some(mut state) = self.lanes.lock(crate::LaneId(lane)).try_lock() else { continue };
            let credit = std::mem::take(&mut state.credit_bytes);
            drop(state);
            self.budget.give_back(&self.ledger, credit);
        }
    }
}
