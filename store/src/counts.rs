//! Counts of a store's keys and of its memory.

use std::sync::atomic::Ordering::Relaxed;

use crate::shard::Shard;
use crate::store::Store;

/// A reading of a store's counts. Shards that are not rebuilt yet count nothing.
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
    /// Bytes in spans of 64 KiB that belong to no shard.
    pub free_bytes: u64,
}

impl Store {
    /// The number of keys of a database, together with expired keys that were not removed yet. The
    /// call waits for a deferred rebuild.
    pub fn len(&self, db: u8) -> u64 {
        self.await_rebuild();
        self.sum(|shard| shard.dbs[usize::from(db)].keys)
    }

    /// Whether a database has no keys.
    pub fn is_empty(&self, db: u8) -> bool {
        self.len(db) == 0
    }

    /// The number of keys of a database that have an expiry. The call waits for a deferred rebuild.
    pub fn keys_with_expiry(&self, db: u8) -> u64 {
        self.await_rebuild();
        self.sum(|shard| shard.dbs[usize::from(db)].keys_with_expiry)
    }

    /// The number of keys of a database, and how many of them have an expiry, in the shards that
    /// are rebuilt.
    pub fn counted(&self, db: u8) -> (u64, u64) {
        let db = usize::from(db);
        let keys_with_expiry = self.sum(|shard| shard.dbs[db].keys_with_expiry);
        (self.sum(|shard| shard.dbs[db].keys), keys_with_expiry)
    }

    /// The store's counts, as far as its shards are rebuilt.
    pub fn stats(&self) -> StoreStats {
        let heap = self.heap.stats();
        StoreStats {
            keys: self.sum(|shard| shard.dbs.iter().map(|db| db.keys).sum()),
            keys_with_expiry: self
                .sum(|shard| shard.dbs.iter().map(|db| db.keys_with_expiry).sum()),
            detached: self.sum(|shard| shard.detached.len() as u64),
            expired_keys: self.expired_keys.load(Relaxed),
            shards: u64::from(self.heap.shards()),
            region_bytes: heap.region_bytes,
            free_bytes: heap.free_bytes,
        }
    }

    fn sum(&self, f: impl Fn(&Shard) -> u64) -> u64 {
        let of = |shard: Option<&Shard>| shard.filter(|shard| shard.is_counted).map_or(0, &f);
        // The other shards count nothing, and one of them is held while it is rebuilt.
        let left = usize::from(self.heap.shards() - self.shards_rebuilt());
        self.heap.lanes().skip(left).map(|lane| of(self.heap.lock(lane).user::<Shard>())).sum()
    }
}
