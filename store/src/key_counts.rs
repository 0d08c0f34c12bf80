//! The number of keys of each shard, by database.
//!
//! The counts are volatile. They change only while their shard is held, and are read without
//! holding it, because a shard that is searched for free memory is held for long. A count means
//! nothing until it is *known*: from the opening on if it was saved, otherwise once the shard's
//! index was counted.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use perdura_slots::LaneId;

use crate::api::{DATABASES, OWN_DATABASE};

/// Keys of one database, in one shard or in several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct KeyCount {
    /// Keys, together with expired ones that were not removed yet.
    pub keys: u64,
    /// Keys with an expiry.
    pub with_expiry: u64,
}

/// Bit of a saved count that tells it from a word that was never written.
const SAVED_BIT: u64 = 1 << 63;
/// A saved count has 31 bits for keys with an expiry, above 32 bits for all keys.
const WITH_EXPIRY_AT: u32 = 32;
const SAVED_MAX: u64 = (1 << 31) - 1;

impl KeyCount {
    /// The word that saves this count; `None` if the count is too large for a word.
    pub fn to_word(self) -> Option<u64> {
        let fits = self.keys <= SAVED_MAX && self.with_expiry <= self.keys;
        fits.then_some(SAVED_BIT | self.with_expiry << WITH_EXPIRY_AT | self.keys)
    }

    /// The count that a word has saved; `None` if no store writes that word.
    pub fn from_word(word: u64) -> Option<Self> {
        let keys = word & ((1 << WITH_EXPIRY_AT) - 1);
        let with_expiry = (word & !SAVED_BIT) >> WITH_EXPIRY_AT;
        let count = Self { keys, with_expiry };
        (count.to_word() == Some(word)).then_some(count)
    }
}

/// The counts of all shards.
pub(crate) struct KeyCounts {
    /// One entry a lane.
    shards: Box<[ShardCounts]>,
}

/// The counts of one shard.
#[derive(Default)]
pub(crate) struct ShardCounts {
    is_known: AtomicBool,
    /// Whether the counts were changed or made known since they were saved.
    is_unsaved: AtomicBool,
    /// Whether the counts have changed since the last look at this mark.
    has_changed: AtomicBool,
    dbs: [DbCounts; OWN_DATABASE as usize + 1],
}

#[derive(Default)]
struct DbCounts {
    keys: AtomicU64,
    with_expiry: AtomicU64,
}

impl KeyCounts {
    /// Counts of so many shards, none of them known.
    pub fn new(shards: u16) -> Self {
        Self { shards: (0..shards).map(|_| ShardCounts::default()).collect() }
    }

    /// The counts of a lane's shard.
    pub fn of(&self, lane: LaneId) -> &ShardCounts {
        &self.shards[usize::from(lane.0)]
    }

    /// Keys of a database in the shards whose counts are known.
    pub fn total(&self, db: u8) -> KeyCount {
        let mut total = KeyCount::default();
        for shard in self.shards.iter().filter(|shard| shard.is_known()) {
            let count = shard.get(db);
            total.keys += count.keys;
            total.with_expiry += count.with_expiry;
        }
        total
    }
}

impl ShardCounts {
    /// Whether the counts include the keys that were there when the store was opened.
    pub fn is_known(&self) -> bool {
        self.is_known.load(Acquire)
    }

    /// The count of a database, which means something only if it is known.
    pub fn get(&self, db: u8) -> KeyCount {
        let db = &self.dbs[usize::from(db)];
        KeyCount { keys: db.keys.load(Relaxed), with_expiry: db.with_expiry.load(Relaxed) }
    }

    /// Makes the counts known. The caller holds the shard.
    pub fn set_known(&self, counts: &[KeyCount; DATABASES as usize]) {
        for (db, count) in (0..DATABASES).zip(counts) {
            self.set(db, *count);
        }
        self.is_unsaved.store(true, Relaxed);
        self.is_known.store(true, Release);
    }

    /// Whether the counts are known and not saved, and have not changed since the last call.
    pub fn is_due_to_save(&self) -> bool {
        // The marks of a shard where nothing changes are only read.
        let is_unsaved = self.is_known() && self.is_unsaved.load(Relaxed);
        is_unsaved && !self.has_changed.swap(false, Relaxed)
    }

    /// Takes note that the counts are saved. The caller holds the shard.
    pub fn set_saved(&self) {
        self.is_unsaved.store(false, Relaxed);
    }

    /// Replaces the count of a database. The caller holds the shard.
    pub fn set(&self, db: u8, count: KeyCount) {
        let db = &self.dbs[usize::from(db)];
        db.keys.store(count.keys, Relaxed);
        db.with_expiry.store(count.with_expiry, Relaxed);
    }

    /// Adds to the count of a database, or takes away. The caller holds the shard.
    pub fn add(&self, db: u8, keys: i8, with_expiry: i8) {
        // No read-modify-write is needed, because nobody else changes the words meanwhile.
        let before = self.get(db);
        let keys = before.keys.wrapping_add_signed(i64::from(keys));
        let with_expiry = before.with_expiry.wrapping_add_signed(i64::from(with_expiry));
        self.set(db, KeyCount { keys, with_expiry });
        self.is_unsaved.store(true, Relaxed);
        self.has_changed.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_count_is_read_back_and_no_other_word_is() {
        for (keys, with_expiry) in [(0, 0), (1, 0), (1, 1), (77, 3), (SAVED_MAX, SAVED_MAX)] {
            let count = KeyCount { keys, with_expiry };
            assert_eq!(count.to_word().and_then(KeyCount::from_word), Some(count));
        }
        assert_eq!(KeyCount { keys: SAVED_MAX + 1, with_expiry: 0 }.to_word(), None);
        let more_expire_than_exist = SAVED_BIT | 2 << WITH_EXPIRY_AT | 1;
        for word in [0, 1, SAVED_BIT >> 1, u64::MAX, more_expire_than_exist] {
            assert_eq!(KeyCount::from_word(word), None, "{word:#x}");
        }
    }
}
