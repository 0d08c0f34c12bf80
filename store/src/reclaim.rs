//! Finding memory that is free and that the heap does not have back yet.

use perdura_slots::LaneId;

use crate::shard::{has_detached, reap};
use crate::store::Store;

/// Parts of deleted values that are freed under one hold of their shard: about 0.2 ms, by the
/// 10 ms that a set of 200,000 members took.
const PARTS_PER_HOLD: u64 = 4096;

impl Store {
    /// Frees about `parts` parts of deleted values, each a record or a bucket: a large value goes
    /// piece by piece after the operation that deleted it. Returns how many: fewer than `parts`
    /// only if nothing is left to free. An operation that finds no memory frees them itself, and
    /// takes longer.
    pub fn free_some(&self, parts: u64) -> u64 {
        let mut done = 0;
        for lane in self.rebuilt_lanes() {
            while done < parts {
                match reap(&mut self.heap.lock(lane), PARTS_PER_HOLD.min(parts - done)) {
                    0 => break,
                    freed => done += freed,
                }
            }
        }
        done
    }

    /// Frees some of what was deleted in a shard. Returns whether there was anything.
    pub(crate) fn free_some_of(&self, lane: LaneId) -> bool {
        reap(&mut self.heap.lock(lane), PARTS_PER_HOLD) > 0
    }

    /// Frees deleted values until none is left, releasing each shard in between.
    pub(crate) fn reap_all(&self) {
        for lane in self.heap.lanes() {
            while !self.heap.is_killed() && self.free_some_of(lane) {}
        }
    }

    /// Gives back all memory that is free. Returns the bytes given back; at least 1 if it is worth
    /// trying again.
    pub(crate) fn reclaim(&self) -> u64 {
        let before = self.heap.stats().free_bytes;
        let was_rebuilt = self.shards_rebuilt() == self.heap.shards();
        self.await_rebuild();
        let had_detached = self.heap.lanes().any(|lane| has_detached(&self.heap.lock(lane)));
        self.reap_all();
        self.heap.reclaim();
        let gained = self.heap.stats().free_bytes.saturating_sub(before);
        gained.max(u64::from(had_detached || !was_rebuilt))
    }
}
