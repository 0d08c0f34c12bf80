//! Expiry: keys, and fields of hashes, that have expired are absent for every operation; the sweep
//! removes those that no operation asks for any more.

use std::sync::atomic::Ordering::Relaxed;

use perdura_slots::{Lane, LaneId};

use crate::api::{Access, DATABASES, Key};
use crate::entry::Entry;
use crate::error::StoreError;
use crate::expiring;
use crate::store::{Store, Sweep};
use crate::table;

/// Buckets that the sweep looks at under one hold of a shard.
const BUCKETS_PER_HOLD: u64 = 64;
/// Expired fields that go under one hold of their shard: few, so that a small budget has room.
const FIELDS_PER_HOLD: u64 = 32;
/// Times that a sweep holds the shard for one hash: the others have their turn, too.
const HOLDS_PER_HASH: u32 = 128;

impl Store {
    /// Lets nothing expire until [`Store::release_expiry`] is called as often as this. For who
    /// carries out another server's changes late: a key whose time is over by now may have been
    /// prolonged there in time.
    pub fn hold_expiry(&self) {
        self.expiry_holds.fetch_add(1, Relaxed);
    }

    /// Takes back one [`Store::hold_expiry`].
    ///
    /// # Panics
    /// There is none.
    pub fn release_expiry(&self) {
        let before = self.expiry_holds.fetch_sub(1, Relaxed);
        assert!(before > 0, "expiry is released that nobody holds");
    }

    /// The time up to which keys and fields have expired, in milliseconds since 1970: now, or 0
    /// while expiry is held up.
    #[inline]
    pub(crate) fn expiry_ms(&self) -> u64 {
        // Relaxed is enough: a command that is sent after the hold was answered runs later.
        if self.expiry_holds.load(Relaxed) > 0 { 0 } else { self.clock.unix_ms() }
    }

    /// Deletes some expired keys, and returns how many, and expired fields of hashes. The sweep
    /// looks at `work` buckets of the index at most, and at none of databases without expiring keys
    /// or of shards that were not searched for free memory yet.
    ///
    /// # Errors
    /// The errors of [`Store::run`]. Keys that were deleted before the error stay deleted.
    pub fn expire_some(&self, work: usize) -> Result<u64, StoreError> {
        // A second sweep at the same time would look at the same buckets.
        let Some(mut sweep) = self.sweep.try_lock() else { return Ok(0) };
        let parts = u64::from(self.heap.shards()) * u64::from(DATABASES);
        let (mut left, mut deleted) = (work as u64, 0);
        for _ in 0..=parts {
            let Sweep { lane, db, mut bucket } = *sweep;
            // The sweep moves on first: where damage unwinds, the next call begins behind it.
            *sweep = self.part_behind(&sweep);
            // Most stores have no expiring keys in most databases, and are not held for them.
            while self.key_counts.of(LaneId(lane)).get(db).with_expiry > 0 {
                let held = self.heap.lock(LaneId(lane));
                let (looked, keys) = self.expired_in(&held, db, bucket, left);
                drop(held);
                bucket += looked;
                left -= looked;
                for bytes in keys {
                    deleted += u64::from(self.delete_expired(Key { db, bytes: &bytes })?);
                }
                if looked == 0 {
                    break;
                }
            }
            if left == 0 {
                *sweep = Sweep { lane, db, bucket };
                break;
            }
        }
        Ok(deleted)
    }

    /// The beginning of the next database, or of the next shard.
    fn part_behind(&self, sweep: &Sweep) -> Sweep {
        let db = (sweep.db + 1) % DATABASES;
        let lane = if db == 0 { (sweep.lane + 1) % self.heap.shards() } else { sweep.lane };
        Sweep { lane, db, bucket: 0 }
    }

    /// The keys in the next few buckets that have expired, and the number of these buckets: 0 at
    /// the end of the table.
    fn expired_in(&self, lane: &Lane<'_>, db: u8, from: u64, work: u64) -> (u64, Vec<Box<[u8]>>) {
        let mut keys = Vec::new();
        let counts = self.key_counts.of(lane.id());
        // Before the search, a number that was saved is known, but the records may be damaged.
        let is_due = lane.is_searched() && counts.is_known() && counts.get(db).with_expiry > 0;
        if !is_due {
            return (0, keys);
        }
        let root = self.root_of(lane.id(), db);
        let to = table::buckets(lane, root).min(from + work.min(BUCKETS_PER_HOLD));
        let now_ms = self.expiry_ms();
        for bucket in from..to {
            table::for_each(lane, root, bucket, |found| {
                // The entry of a key that does not expire says so: its record is not looked at.
                if !found.expires() {
                    return;
                }
                let entry = Entry::new(lane, found.record());
                let is_over = entry.expire_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
                if is_over || has_expired_fields(&entry, now_ms) {
                    keys.push(Box::from(entry.key()));
                }
            });
        }
        (to.saturating_sub(from), keys)
    }

    /// Deletes a key that has expired, or fields of a hash that have. Returns whether the key is
    /// gone.
    fn delete_expired(&self, key: Key<'_>) -> Result<bool, StoreError> {
        for _ in 0..HOLDS_PER_HASH {
            let (deleted, fields) = self.run(Access::Key(key), |tx| {
                let place = tx.place(key);
                match tx.find(&place, key) {
                    Some(found) if !tx.is_live(&place, &found) => {
                        tx.remove(&place, key, found).map(|()| (true, 0))
                    }
                    Some(_) => tx.hash_purge(key, FIELDS_PER_HOLD).map(|fields| (false, fields)),
                    None => Ok((false, 0)),
                }
            })?;
            self.expired_keys.fetch_add(u64::from(deleted), Relaxed);
            self.expired_fields.fetch_add(fields, Relaxed);
            if deleted || fields < FIELDS_PER_HOLD {
                return Ok(deleted);
            }
        }
        Ok(false)
    }

    /// Expired fields of hashes that the sweep has removed since the store was opened.
    pub fn expired_fields(&self) -> u64 {
        self.expired_fields.load(Relaxed)
    }
}

/// Whether the sweep has fields to take out of a value.
fn has_expired_fields(entry: &Entry<'_>, now_ms: u64) -> bool {
    entry.has_expiring_fields() && expiring::expired_len(entry.lane, entry.table_root(), now_ms) > 0
}
