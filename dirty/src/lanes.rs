//! Lanes: the locks that keep a writer and the cleaner apart in barrier mode.
//!
//! A block of the region belongs to one lane. A store's shard *is* a lane, and keeps its volatile
//! state in it, so an operation takes one lock only.

use std::any::Any;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering::*};

use parking_lot::MutexGuard;

use crate::cache_padded::CachePadded;
use crate::geometry::BLOCK_BYTES;
use crate::waited::Waited;

/// Number of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u16);

/// What a lane protects besides its blocks.
#[derive(Default)]
pub struct LaneState {
    /// Budget bytes taken and not yet spent on dirty grains.
    pub credit_bytes: u64,
    /// Volatile state of the lane's user: a shard.
    pub user: Option<Box<dyn Any + Send>>,
}

#[derive(Default)]
struct CountedLane {
    lock: Waited<LaneState>,
    /// Changed by who holds the lane. Summed over all lanes they are in the statistics: one counter
    /// for all would be a line that every writer takes from every other.
    dirtied_bytes: AtomicU64,
    dropped_bytes: AtomicU64,
}

/// Beside a block's lane: its bytes are not in memory yet.
const UNLOADED: u16 = 1 << 15;

/// All lanes of a region, and which block belongs to which.
pub struct Lanes {
    lanes: Box<[CachePadded<CountedLane>]>,
    owner: Box<[AtomicU16]>,
}

impl Lanes {
    /// So many lanes; every block belongs to the first.
    pub fn new(lanes: u16, blocks: usize) -> Self {
        Self {
            lanes: (0..lanes).map(|_| CachePadded::default()).collect(),
            owner: (0..blocks).map(|_| AtomicU16::new(0)).collect(),
        }
    }

    /// How many lanes there are.
    pub fn count(&self) -> u16 {
        self.lanes.len() as u16
    }

    /// The lock of a lane.
    pub fn lock(&self, lane: LaneId) -> &Waited<LaneState> {
        &self.lanes[usize::from(lane.0)].lock
    }

    /// Counts what was done under a lane that is still held.
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

    /// Bytes that became dirty under lanes.
    pub fn dirtied_bytes(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.dirtied_bytes.load(Relaxed)).sum()
    }

    /// Dirty bytes dropped under lanes.
    pub fn dropped_bytes(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.dropped_bytes.load(Relaxed)).sum()
    }

    /// The lane of the block at `offset`.
    #[inline]
    pub fn of(&self, offset: u64) -> LaneId {
        LaneId(self.owner[(offset / BLOCK_BYTES) as usize].load(Relaxed) & !UNLOADED)
    }

    /// Whether the block at `offset` is the lane's, and loaded.
    #[inline]
    pub fn is_ready(&self, offset: u64, lane: LaneId) -> bool {
        // Acquire: who loaded it may have been another thread.
        self.owner[(offset / BLOCK_BYTES) as usize].load(Acquire) == lane.0
    }

    /// Whether the block's bytes are not in memory yet.
    pub fn is_unloaded(&self, block: u64) -> bool {
        self.owner[block as usize].load(Acquire) & UNLOADED != 0
    }

    /// The block's bytes are to be loaded on first use; nothing runs yet.
    pub fn set_unloaded(&self, block: u64) {
        self.owner[block as usize].fetch_or(UNLOADED, Relaxed);
    }

    /// The block's bytes are in memory.
    pub fn set_loaded(&self, block: u64) {
        self.owner[block as usize].fetch_and(!UNLOADED, Release);
    }

    /// Locks the lane of the block at `offset`. The block may change hands before its lane is ours;
    /// not after.
    pub fn lock_owner_of(&self, offset: u64) -> (LaneId, MutexGuard<'_, LaneState>) {
        loop {
            let lane = self.of(offset);
            let held = self.lock(lane).lock();
            if self.of(offset) == lane {
                return (lane, held);
            }
        }
    }

    /// As [`Lanes::lock_owner_of`], unless somebody holds it.
    pub fn try_lock_owner_of(&self, offset: u64) -> Option<(LaneId, MutexGuard<'_, LaneState>)> {
        let lane = self.of(offset);
        let held = self.lock(lane).try_lock()?;
        (self.of(offset) == lane).then_some((lane, held))
    }

    /// Gives a block to a lane. The caller holds the lane that owned it, so that the cleaner, which
    /// holds it too while it copies, never loses it under its feet; or nothing runs yet.
    pub fn assign(&self, block: u64, lane: LaneId) {
        assert!(lane.0 < self.count(), "lane {} does not exist", lane.0);
        // Its bytes may be arriving at this moment.
        let moved = |owner| Some(owner & UNLOADED | lane.0);
        let _ = self.owner[block as usize].fetch_update(Release, Relaxed, moved);
    }
}
