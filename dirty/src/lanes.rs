//! Lanes: the locks that keep a writer and the cleaner apart in barrier mode.
//!
//! A block of the region belongs to one lane. A store's shard *is* a lane, and keeps its volatile
//! state in it, so an operation takes one lock only.

use std::any::Any;

use crate::cache_padded::CachePadded;
use crate::geometry::BLOCK_BYTES;
use crate::ranks::Rank;
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering::*};
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
    /// Accesses that its holders noted.
    accesses: AtomicU32,
}

impl CountedLane {
    fn new(number: u16) -> Self {
        Self {
            lock: Waited::new(Rank::Lane(number), LaneState::default()),
            dirtied_bytes: AtomicU64::new(0),
            dropped_bytes: AtomicU64::new(0),
            accesses: AtomicU32::new(0),
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

    /// The number of an access under a lane, which the caller holds.
    #[inline]
    pub(crate) fn count_access(&self, lane: LaneId) -> u32 {
        let accesses = &self.lanes[usize::from(lane.0)].accesses;
        let number = accesses.load(Relaxed).wrapping_add(1);
        accesses.store(number, Relaxed);
        number
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

    /// Whether a range lies in one block, and that is the lane's, and loaded.
    #[inline]
    pub(crate) fn is_range_ready(&self, offset: u64, len: u64, lane: LaneId) -> bool {
        let (first, last) = (offset / BLOCK_BYTES, (offset + len.max(1) - 1) / BLOCK_BYTES);
        first == last && self.is_ready(offset, lane)
    }

    /// Whether the block's bytes are not in memory yet.
    #[inline]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_changes_its_lane_stays_unloaded_and_one_that_is_loaded_keeps_its_lane() {
        let lanes = Lanes::new(3, 4);
        let seen = |block: u64| {
            let (first, last) = (block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES - 1);
            assert_eq!(lanes.of(first), lanes.of(last));
            let is_ready = (0..3).map(|lane| lanes.is_ready(last, LaneId(lane)));
            let owner = lanes.of(first);
            let ready: Vec<_> = (0..).zip(is_ready).filter(|(_, ready)| *ready).collect();
            let expected = if lanes.is_unloaded(block) { vec![] } else { vec![(owner.0, true)] };
            assert_eq!(ready, expected);
            (owner.0, lanes.is_unloaded(block))
        };
        lanes.set_unloaded(1);
        assert_eq!([0, 1, 2].map(seen), [(0, false), (0, true), (0, false)]);
        lanes.assign(1, LaneId(2));
        lanes.assign(2, LaneId(1));
        assert_eq!([0, 1, 2].map(seen), [(0, false), (2, true), (1, false)]);
        lanes.assign(1, LaneId(1));
        lanes.set_loaded(1);
        assert_eq!([0, 1, 2, 3].map(seen), [(0, false), (1, false), (1, false), (0, false)]);
        {
            let (lane, held) = lanes.lock_owner_of(2 * BLOCK_BYTES - 1);
            assert_eq!(lane, LaneId(1));
            assert!(lanes.lock(lane).is_held() && !lanes.lock(LaneId(0)).is_held());
            assert!(lanes.try_lock_owner_of(2 * BLOCK_BYTES).is_none());
            assert_eq!(lanes.try_lock_owner_of(0).map(|(lane, _)| lane), Some(LaneId(0)));
            drop(held);
        }
        assert_eq!(lanes.try_lock_owner_of(2 * BLOCK_BYTES).map(|(lane, _)| lane), Some(LaneId(1)));
        lanes.count_written(LaneId(0), 64, 0);
        lanes.count_written(LaneId(2), 128, 64);
        lanes.count_written(LaneId(2), 1, 2);
        assert_eq!((lanes.dirtied_bytes(), lanes.dropped_bytes()), (193, 66));
    }
}
