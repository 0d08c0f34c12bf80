//! Counts of a store's keys and of its memory.

use std::sync::atomic::Ordering::Relaxed;

use perdura_slots::LaneId;

use crate::api::DATABASES;
use crate::key_counts::KeyCount;
use crate::shard::Shard;
use crate::store::Store;

/// A reading of a store's counts. Shards whose keys are not counted yet have none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Keys in all databases, together with expired keys that were not removed yet.
    pub keys: u64,
    /// Keys with an expiry.
    pub keys_with_expiry: u64,
    /// Deleted tables whose parts are not all freed yet.
    pub detached: u64,
    /// Expired keys that were removed since the store was opened.
    pub expired_keys: u64,
    /// Number of shards.
    pub shards: u64,
    /// Bytes of the region at its present size.
    pub region_bytes: u64,
    /// Bytes in blocks of 64 KiB that belong to no shard.
    pub free_bytes: u64,
}

impl Store {
    /// The number of keys of a database, together with expired keys that were not removed yet.
    /// After an opening that did not find the number saved, the call waits until the index is
    /// counted.
    pub fn len(&self, db: u8) -> u64 {
        self.count_keys();
        self.key_counts.total(db).keys
    }

    /// Whether a database has no keys.
    pub fn is_empty(&self, db: u8) -> bool {
        self.len(db) == 0
    }

    /// The number of keys of a database that have an expiry. The call waits as
    /// [`Store::len`] does.
    pub fn keys_with_expiry(&self, db: u8) -> u64 {
        self.count_keys();
        self.key_counts.total(db).with_expiry
    }

    /// The number of keys of a database, and how many of them have an expiry, in the shards whose
    /// number is known. The call waits for nothing.
    pub fn counted(&self, db: u8) -> (u64, u64) {
        let KeyCount { keys, with_expiry } = self.key_counts.total(db);
        (keys, with_expiry)
    }

    /// The store's counts, as far as they are known. The call waits for nothing.
    pub fn stats(&self) -> StoreStats {
        let heap = self.heap.stats();
        let keys: Vec<_> = (0..DATABASES).map(|db| self.key_counts.total(db)).collect();
        StoreStats {
            keys: keys.iter().map(|count| count.keys).sum(),
            keys_with_expiry: keys.iter().map(|count| count.with_expiry).sum(),
            detached: self.detached(),
            expired_keys: self.expired_keys.load(Relaxed),
            shards: u64::from(self.heap.shards()),
            region_bytes: heap.region_bytes,
            free_bytes: heap.free_bytes,
        }
    }

    /// Detached tables of the shards that are rebuilt.
    fn detached(&self) -> u64 {
        let of = |shard: Option<&Shard>| shard.map_or(0, |shard| shard.detached.len() as u64);
        self.rebuilt_lanes().map(|lane| of(self.heap.lock(lane).user())).sum()
    }

    /// The shards that are rebuilt. Another one may be held for long.
    pub(crate) fn rebuilt_lanes(&self) -> impl Iterator<Item = LaneId> {
        let left = usize::from(self.heap.shards() - self.shards_rebuilt());
        self.heap.lanes().skip(left)
    }
}
