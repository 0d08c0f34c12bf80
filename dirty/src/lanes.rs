//! Lanes: the locks that keep a writer and the cleaner apart in barrier mode.
//!
//! A block of the region belongs to one lane. A store's shard *is* a lane, and keeps its volatile
//! state in it, so an operation takes one lock only.

use std::any::Any;

use crate::cache_padded::CachePadded;
use crate::geometry::BLOCK_BYTES;
use crate::ranks::Rank;
use crate::sync::{AtomicU16, AtomicU64, Ordering::*};
use crate::waited::{Waited, WaitedGuard};

/// Number of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u16);

/// The state that a lane protects besides its blocks.
#[derive(Default)]
pub struct LaneState {
    /// Bytes taken from the budget and not yet spent on dirty grains.
    pub credit_bytes: u64,
    /// Volatile state of the lane's user, for example a shard of the store.
    pub user: Option<Box<dyn Any + Send>>,
}

struct CountedLane {
    lock: Waited<LaneState>,
    /// Bytes that became dirty under the lane, changed by its holder. Each lane counts for itself,
    /// because one counter would be a cache line that all writers contend for.
    dirtied_bytes: AtomicU64,
    /// Dirty bytes that were dropped under the lane.
    dropped_bytes: AtomicU64,
}

impl CountedLane {
    fn new(number: u16) -> Self {
        Self {
            lock: Waited::new(Rank::Lane(number), LaneState::default()),
            dirtied_bytes: AtomicU64::new(0),
            dropped_bytes: AtomicU64::new(0),
        }
    }
}

/// A bit beside the lane's number in a block's owner word: the block's bytes are not in memory yet.
const UNLOADED: u16 = 1 << 15;

/// All lanes of a region, and the lane that owns each block.
pub struct Lanes {
    lanes: Box<[CachePadded<CountedLane>]>,
    owner: Box<[AtomicU16]>,
}

impl Lanes {
    /// Makes `lanes` lanes; every block belongs to the first.
    pub fn new(lanes: u16, blocks: usize) -> Self {
        Self {
            lanes: (0..lanes).map(|number| CachePadded(CountedLane::new(number))).collect(),
            owner: (0..blocks).map(|_| AtomicU16::new(0)).collect(),
        }
    }

    /// The number of lanes.
    pub fn count(&self) -> u16 {
        self.lanes.len() as u16
    }

    /// The lock of a lane.
    pub fn lock(&self, lane: LaneId) -> &Waited<LaneState> {
        &self.lanes[usize::from(lane.0)].lock
    }

    /// Adds to the counters of a lane, which the caller still holds.
    #[inline]
    pub fn count_written(&self, lane: LaneId, dirtied_bytes: u64, dropped_bytes: u64) {
        let lane = &self.lanes[usize::from(lane.0)];
        for (counter, bytes) in
            [(&lane.dirtied_bytes, dirtied_bytes), (&lane.dropped_bytes, dropped_bytes)]
        {
            if bytes != 0 {
                counter.store(counter.load(Relaxed) + bytes, Relaxed);
            }
        }
    }

    /// Bytes that became dirty under any lane.
    pub(crate) fn dirtied_bytes(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.dirtied_bytes.load(Relaxed)).sum()
    }

    /// Dirty bytes that were dropped under any lane.
    pub(crate) fn dropped_bytes(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.dropped_bytes.load(Relaxed)).sum()
    }

    /// The lane of the block at `offset`.
    #[inline]
    pub fn of(&self, offset: u64) -> LaneId {
        LaneId(self.owner[(offset / BLOCK_BYTES) as usize].load(Relaxed) & !UNLOADED)
    }

    /// Whether the block at `offset` is the lane's, and loaded.
    #[inline]
    pub(crate) fn is_ready(&self, offset: u64, lane: LaneId) -> bool {
        // Acquire, because another thread may have loaded the block.
        self.owner[(offset / BLOCK_BYTES) as usize].load(Acquire) == lane.0
    }

    /// Whether the block's bytes are not in memory yet.
    pub fn is_unloaded(&self, block: u64) -> bool {
        self.owner[block as usize].load(Acquire) & UNLOADED != 0
    }

    /// Notes that a block is to be loaded on first use, before any writer runs.
    pub fn set_unloaded(&self, block: u64) {
        self.owner[block as usize].fetch_or(UNLOADED, Relaxed);
    }

    /// Notes that the block's bytes are in memory.
    pub fn set_loaded(&self, block: u64) {
        self.owner[block as usize].fetch_and(!UNLOADED, Release);
    }

    /// Locks the lane of the block at `offset`. The block may move to another lane before the lock
    /// is taken, but not after that.
    pub fn lock_owner_of(&self, offset: u64) -> (LaneId, WaitedGuard<'_, LaneState>) {
        loop {
            let lane = self.of(offset);
            let held = self.lock(lane).lock();
            if self.of(offset) == lane {
                return (lane, held);
            }
        }
    }

    /// Locks the lane of the block at `offset` unless somebody holds the lane.
    pub fn try_lock_owner_of(&self, offset: u64) -> Option<(LaneId, WaitedGuard<'_, LaneState>)> {
        let lane = self.of(offset);
        let held = self.lock(lane).try_lock()?;
        (self.of(offset) == lane).then_some((lane, held))
    }

    /// Gives a block to a lane. The caller holds the lane that owns the block, so that the cleaner,
    /// which holds the lane while it copies, never loses the block; or nothing runs yet.
    pub fn assign(&self, block: u64, lane: LaneId) {
        assert!(lane.0 < self.count(), "lane {} does not exist", lane.0);
        // The bit must survive: the block may be loaded at this moment.
        let moved = |owner| Some(owner & UNLOADED | lane.0);
        let _ = self.owner[block as usize].fetch_update(Release, Relaxed, moved);
    }
}
