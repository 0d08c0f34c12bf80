//! The store itself, and the place of each key in its index.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize};

use parking_lot::Mutex;
use perdura_media::Clock;
use perdura_slots::{Heap, LANE_ROOT_BYTES, Lane, LaneId, Region};

use crate::api::{DATABASES, Key, OWN_DATABASE};
use crate::building::{self, HIDDEN_DATABASE};
use crate::events::Audiences;
use crate::evict::Evictor;
use crate::far::Far;
use crate::key_counts::KeyCounts;
use crate::own::OWN_LANE;
use crate::packed::small::SmallSets;
use crate::recency::Recency;
use crate::record::{hash_key, is_of};
use crate::table::{self, Found, ROOT_BYTES};
use crate::watches::Watches;

const _: () = assert!(DATABASES as u64 * ROOT_BYTES <= LANE_ROOT_BYTES);

/// A key-value store on a heap, shared by reference between threads.
pub struct Store {
    pub(crate) heap: Heap,
    pub(crate) clock: Arc<dyn Clock>,
    /// State of the generator behind [`Store::random_key`].
    pub(crate) random: AtomicU64,
    pub(crate) sweep: Mutex<Sweep>,
    /// Expired keys that were removed since the store was opened.
    pub(crate) expired_keys: AtomicU64,
    /// Expired fields of hashes that the sweep has removed since the store was opened.
    pub(crate) expired_fields: AtomicU64,
    pub(crate) watches: Arc<Watches>,
    pub(crate) audiences: Audiences,
    /// How many times expiry is held up ([`Store::hold_expiry`]).
    pub(crate) expiry_holds: AtomicUsize,
    /// Whether a snapshot is being taken.
    pub(crate) has_snapshot: AtomicBool,
    pub(crate) key_counts: KeyCounts,
    /// Who keeps the values that are not in memory, if any can be.
    pub(crate) far: Option<Far>,
    pub(crate) recency: Recency,
    pub(crate) evictor: Evictor,
    /// The limits of small sets: ints, names, and bytes of a name, 16 bits each.
    pub(crate) small_sets: AtomicU64,
    /// When chunks of streams are full: entries, and bytes; see [`crate::ChunkLimits`].
    pub(crate) chunk_limits: [AtomicU64; 2],
    /// Root of the program's own database; 0 while there is none.
    pub(crate) own_root: AtomicU64,
    /// How many shards were counted; the first shard is counted first.
    pub(crate) shards_counted: AtomicU16,
    /// How many shards are rebuilt; the last shard is rebuilt first.
    pub(crate) shards_rebuilt: AtomicU16,
}

/// Where the search for expired keys goes on.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// Number of the shard's lane.
    pub lane: u16,
    pub db: u8,
    /// Bucket of the database's table in this shard.
    pub bucket: u64,
}

/// The place of a key in the index; see [`Store::place`].
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The shard's lane.
    pub(crate) lane: LaneId,
    pub(crate) db: u8,
    /// Root of the database's table in this shard.
    pub(crate) root: u64,
    /// Hash of the key.
    pub(crate) hash: u64,
}

impl Store {
    /// The region that the store lies in: budget, dirty bytes, checkpoints, flush.
    pub fn region(&self) -> &Region {
        self.heap.region()
    }

    /// The heap that the store lies in.
    pub fn heap(&self) -> &Heap {
        &self.heap
    }

    /// Says from which size on a set has a table. Sets that are there are as they are until they
    /// change.
    pub fn set_small_sets(&self, SmallSets { ints, names, name_bytes }: SmallSets) {
        let word = u64::from(ints) << 32 | u64::from(names) << 16 | u64::from(name_bytes);
        self.small_sets.store(word, Relaxed);
    }

    /// The size from which on a set has a table.
    #[inline]
    pub fn small_sets(&self) -> SmallSets {
        let word = self.small_sets.load(Relaxed);
        let (ints, names) = ((word >> 32) as u16, (word >> 16) as u16);
        SmallSets { ints, names, name_bytes: word as u8 }
    }

    /// The place of a key: the upper half of its hash picks the shard, the lower half the bucket.
    pub fn place(&self, key: Key<'_>) -> Place {
        if key.db == OWN_DATABASE {
            return self.own_place(key);
        }
        if key.db == HIDDEN_DATABASE {
            return building::place_of(key);
        }
        assert!(key.db < DATABASES, "database {} of {DATABASES}", key.db);
        let hash = hash_key(key.db, key.bytes);
        let lane = LaneId((((hash >> 32) * u64::from(self.heap.shards())) >> 32) as u16);
        Place { lane, db: key.db, root: self.root_of(lane, key.db), hash }
    }

    /// The place of a key of the program's own database, all of which lies in one shard.
    fn own_place(&self, key: Key<'_>) -> Place {
        let root = self.own_root.load(Acquire);
        assert!(root != 0, "the store's own database is used before it is made");
        Place { lane: OWN_LANE, db: key.db, root, hash: hash_key(key.db, key.bytes) }
    }

    /// Root of a database's table in a shard.
    pub(crate) fn root_of(&self, lane: LaneId, db: u8) -> u64 {
        self.heap.lane_roots(lane) + u64::from(db) * ROOT_BYTES
    }
}

/// The key's entry in its shard, expired or not.
pub(crate) fn find(lane: &Lane<'_>, place: &Place, key: Key<'_>) -> Option<Found> {
    table::find(lane, place.root, place.hash, |record, head| {
        is_of(lane, record, head, key.db, key.bytes)
    })
}
