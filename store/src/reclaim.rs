//! Finding memory that is free and that the heap does not have back yet.

use crate::shard::{PARTS_PER_HOLD, Shard, reap};
use crate::store::Store;

impl Store {
    /// Frees detached tables until none is left, releasing each shard in between.
    pub(crate) fn reap_all(&self) {
        for lane in self.heap.lanes() {
            while !self.heap.is_killed() && reap(&mut self.heap.lock(lane), PARTS_PER_HOLD) {}
        }
    }

    /// Gives back all memory that is free. Returns the bytes given back; at least 1 if it is worth
    /// trying again.
    pub(crate) fn reclaim(&self) -> u64 {
        let before = self.heap.stats().free_bytes;
        let was_rebuilt = self.shards_rebuilt() == self.heap.shards();
        self.await_rebuild();
        let detached = |lane| {
            self.heap.lock(lane).user::<Shard>().is_some_and(|shard| !shard.detached.is_empty())
        };
        let had_detached = self.heap.lanes().any(detached);
        self.reap_all();
        self.heap.reclaim();
        let gained = self.heap.stats().free_bytes.saturating_sub(before);
        gained.max(u64::from(had_detached || !was_rebuilt))
    }
}
