//! The store: opening, reading, conveniences, counts.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicU16, AtomicU64};

use parking_lot::Mutex;
use perdura_media::Clock;
use perdura_slots::{Heap, HeapError, LANE_ROOT_BYTES, Lane, LaneId, Marks, Region, Unreadable};

use crate::DATABASES;
use crate::api::{Access, Entry, Expiry, Key};
use crate::error::{OpenError, StoreError};
use crate::expire::Sweep;
use crate::record::{Header, hash_key};
use crate::shard::{Shard, reap};
use crate::sorted;
use crate::table::{self, Part, ROOT_BYTES};
use crate::tx::find;
use crate::watch::Watches;

/// Version of a store without sorted sets. Programs of that version open no other.
const VERSION_FIRST: u64 = 1;
/// Version of a store that may have sorted sets: raised by the first one, never lowered.
pub(crate) const VERSION_SORTED: u64 = 2;
const ROOT_NAME: &str = "store";
const _: () = assert!(DATABASES as u64 * ROOT_BYTES <= LANE_ROOT_BYTES);

/// Settings of a store.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreOptions {
    /// Seeds [`Store::random_key`].
    pub seed: u64,
    /// Open without looking at the records. Whoever opens calls [`Store::rebuild_next`] until it is
    /// done; keys can be read and written meanwhile.
    pub defer_rebuild: bool,
}

/// A reading of a store's counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Keys in all databases, with those that have expired and were not met yet.
    pub keys: u64,
    /// Keys with an expiry.
    pub keys_with_expiry: u64,
    /// Deleted tables whose parts are not all freed yet.
    pub detached: u64,
    /// Expired keys removed since open.
    pub expired_keys: u64,
    /// Shards.
    pub shards: u64,
    /// Bytes of the region.
    pub region_bytes: u64,
    /// Bytes in 64 KiB spans that no shard has.
    pub free_bytes: u64,
}

/// A key-value store on a heap. Shared by reference between threads.
pub struct Store {
    pub(crate) heap: Heap,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: AtomicU64,
    pub(crate) sweep: Mutex<Sweep>,
    pub(crate) expired_keys: AtomicU64,
    pub(crate) watches: Arc<Watches>,
    version: AtomicU64,
    /// So many, from the last on.
    shards_rebuilt: AtomicU16,
}

/// Where a key belongs; see [`Store::place`].
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub(crate) lane: LaneId,
    pub(crate) db: u8,
    /// Root of the table.
    pub(crate) root: u64,
    pub(crate) hash: u64,
}

impl Store {
    /// Opens the store in `heap`, or makes one if the heap is new. Looks at every record once,
    /// unless that is deferred.
    ///
    /// # Errors
    /// Another version wrote it, or the index leads to what is no record.
    pub fn open(
        heap: Heap,
        clock: Arc<dyn Clock>,
        options: StoreOptions,
    ) -> Result<Self, OpenError> {
        let version = match Unreadable::catch(|| heap.root(ROOT_NAME))? {
            Some(version @ VERSION_FIRST..=VERSION_SORTED) => version,
            None => {
                heap.set_root(ROOT_NAME, VERSION_FIRST)?;
                VERSION_FIRST
            }
            Some(found) => return Err(OpenError::Version { found, supported: VERSION_SORTED }),
        };
        let reserved_bytes = heap.region().geometry().reserved_bytes;
        if reserved_bytes > table::RECORDS_END {
            return Err(OpenError::TooLarge { reserved_bytes, max_bytes: table::RECORDS_END });
        }
        for lane in heap.lanes() {
            heap.lock(lane).set_user(Shard::new());
        }
        let store = Self {
            heap,
            clock,
            random: AtomicU64::new(options.seed),
            sweep: Mutex::default(),
            expired_keys: AtomicU64::new(0),
            watches: Arc::default(),
            version: AtomicU64::new(version),
            shards_rebuilt: AtomicU16::new(0),
        };
        if !options.defer_rebuild {
            store.rebuild()?;
        }
        Ok(store)
    }

    /// Counts the keys of the next shard and finds its free memory; the shard is held meanwhile.
    /// False: all are done.
    ///
    /// # Errors
    /// The index leads to what is no record, or the final flush has begun. What was in use in that
    /// shard when the store was opened is then never allocated anew.
    pub fn rebuild_next(&self) -> Result<bool, OpenError> {
        let done = self.shards_rebuilt.load(Acquire);
        // From the highest down: a cut takes them all from the lowest up, and would hold those it
        // has until the last was rebuilt if this went the same way.
        let Some(lane) = self.heap.shards().checked_sub(done + 1) else { return Ok(false) };
        let rebuilt = self.rebuild_shard(LaneId(lane));
        // Whoever else met this shard was held up until it was done.
        self.shards_rebuilt.fetch_max(done + 1, AcqRel);
        rebuilt.map(|()| true)
    }

    /// Shards whose keys are counted and whose free memory is found.
    pub fn shards_rebuilt(&self) -> u16 {
        self.shards_rebuilt.load(Acquire)
    }

    pub(crate) fn rebuild(&self) -> Result<(), OpenError> {
        while self.rebuild_next()? {}
        Ok(())
    }

    fn rebuild_shard(&self, lane: LaneId) -> Result<(), OpenError> {
        let region = self.region();
        let search = |lane: &mut Lane<'_>, marks: &mut Marks<'_>| {
            region.check_open().map_err(HeapError::from)?;
            // What is cut off and was there on open is found free without their help; what came
            // since is not.
            while reap(lane, u64::MAX) {}
            let mut counts = [(0, 0); DATABASES as usize];
            for (db, counts) in (0..DATABASES).zip(&mut counts) {
                trace(region, lane, marks, self.root_of(lane.id(), db), Some(counts))?;
            }
            if let Some(shard) = lane.user_mut::<Shard>() {
                for (db, (keys, keys_with_expiry)) in shard.dbs.iter_mut().zip(counts) {
                    (db.keys, db.keys_with_expiry) = (keys, keys_with_expiry);
                }
                shard.is_counted = true;
            }
            Ok::<(), OpenError>(())
        };
        Unreadable::catch(|| self.heap.rebuild_lane(lane, search))?
    }

    /// What cannot be counted before all shards are rebuilt waits for that here.
    pub(crate) fn await_rebuild(&self) {
        while self.shards_rebuilt() < self.heap.shards() && self.region().check_open().is_ok() {
            if let Err(error) = self.rebuild_next() {
                tracing::error!(%error, "a shard could not be rebuilt: its keys are not counted");
            }
        }
    }

    /// Version that the store's root names.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// Raises the version, before anything of a kind is written that older programs do not know.
    pub(crate) fn raise_version(&self, version: u64) -> Result<(), StoreError> {
        self.heap.set_root(ROOT_NAME, version).map_err(|error| match error {
            HeapError::Region(error) => StoreError::NotDurable(error),
            _ => StoreError::Aborted("the store's version cannot be raised"),
        })?;
        self.version.store(version, Relaxed);
        Ok(())
    }

    /// The region below: budget, dirty bytes, checkpoints, flush.
    pub fn region(&self) -> &Region {
        self.heap.region()
    }

    /// The heap below.
    pub fn heap(&self) -> &Heap {
        &self.heap
    }

    /// Reads one key under its shard's lock; an expired key is `None`.
    pub fn read<R>(&self, key: Key<'_>, f: impl FnOnce(Option<Entry<'_>>) -> R) -> R {
        let place = self.place(key);
        self.prefetch_bucket(&place);
        let lane = self.heap.lock(place.lane);
        f(self.live(&lane, &place, key))
    }

    /// Copy of a string's value.
    pub fn get(&self, key: Key<'_>) -> Option<Vec<u8>> {
        self.read(key, |entry| entry.and_then(|entry| entry.string().map(<[u8]>::to_vec)))
    }

    /// Sets a key to a string that does not expire.
    ///
    /// # Errors
    /// As [`Store::run`].
    pub fn put(&self, key: Key<'_>, value: &[u8]) -> Result<(), StoreError> {
        self.run(Access::Key(key), |tx| tx.put(key, value, Expiry::None))
    }

    /// Removes a key. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Store::run`].
    pub fn delete(&self, key: Key<'_>) -> Result<bool, StoreError> {
        self.run(Access::Key(key), |tx| tx.delete(key))
    }

    /// Replaces a string by what `f` makes of it, keeping its expiry; `None` removes it.
    ///
    /// # Errors
    /// As [`Store::run`]; [`StoreError::WrongType`] if the key holds a hash.
    pub fn update(
        &self,
        key: Key<'_>,
        mut f: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<(), StoreError> {
        self.run(Access::Key(key), |tx| {
            let new = match tx.get(key) {
                None => f(None),
                Some(entry) => f(Some(entry.string().ok_or(crate::WrongType)?)),
            };
            match new {
                Some(value) => tx.put(key, &value, Expiry::Keep),
                None => tx.delete(key).map(drop),
            }
        })
    }

    /// Keys of a database, with those that have expired and were not met yet. Waits for a deferred
    /// rebuild.
    pub fn len(&self, db: u8) -> u64 {
        self.await_rebuild();
        self.sum(|shard| shard.dbs[usize::from(db)].keys)
    }

    /// Whether a database has no keys.
    pub fn is_empty(&self, db: u8) -> bool {
        self.len(db) == 0
    }

    /// Removes all keys of a database, in one step; their memory comes back before this returns.
    ///
    /// # Errors
    /// As [`Store::run`].
    pub fn flush_db(&self, db: u8) -> Result<(), StoreError> {
        self.run(Access::Everything, |tx| tx.clear(db))?;
        self.reap_all();
        Ok(())
    }

    /// Removes all keys of all databases, in one step; their memory comes back before this returns.
    ///
    /// # Errors
    /// As [`Store::run`].
    pub fn flush_all(&self) -> Result<(), StoreError> {
        self.run(Access::Everything, |tx| (0..DATABASES).try_for_each(|db| tx.clear(db)))?;
        self.reap_all();
        Ok(())
    }

    /// Keys of a database and how many of them have an expiry, of the shards that are rebuilt.
    pub fn counted(&self, db: u8) -> (u64, u64) {
        let db = usize::from(db);
        let keys_with_expiry = self.sum(|shard| shard.dbs[db].keys_with_expiry);
        (self.sum(|shard| shard.dbs[db].keys), keys_with_expiry)
    }

    /// Counts, of the shards that are rebuilt.
    pub fn stats(&self) -> StoreStats {
        let heap = self.heap.stats();
        StoreStats {
            keys: self.sum(|shard| shard.dbs.iter().map(|db| db.keys).sum()),
            keys_with_expiry: self
                .sum(|shard| shard.dbs.iter().map(|db| db.keys_with_expiry).sum()),
            expired_keys: self.expired_keys.load(Relaxed),
            detached: self.sum(|shard| shard.detached.len() as u64),
            shards: u64::from(self.heap.shards()),
            region_bytes: heap.region_bytes,
            free_bytes: heap.free_bytes,
        }
    }

    /// Keys with an expiry in a database. Waits for a deferred rebuild.
    pub fn keys_with_expiry(&self, db: u8) -> u64 {
        self.await_rebuild();
        self.sum(|shard| shard.dbs[usize::from(db)].keys_with_expiry)
    }

    fn sum(&self, f: impl Fn(&Shard) -> u64) -> u64 {
        let of = |shard: Option<&Shard>| shard.filter(|shard| shard.is_counted).map_or(0, &f);
        // The others count nothing, and one is held for as long as it takes to rebuild it.
        let left = usize::from(self.heap.shards() - self.shards_rebuilt());
        self.heap.lanes().skip(left).map(|lane| of(self.heap.lock(lane).user::<Shard>())).sum()
    }

    /// Where a key belongs: the upper half of its hash picks the shard, the lower the bucket.
    pub fn place(&self, key: Key<'_>) -> Place {
        assert!(key.db < DATABASES, "database {} of {DATABASES}", key.db);
        let hash = hash_key(key.db, key.bytes);
        let lane = LaneId((((hash >> 32) * u64::from(self.heap.shards())) >> 32) as u16);
        Place { lane, db: key.db, root: self.root_of(lane, key.db), hash }
    }

    /// Root of a database's table in a shard.
    pub(crate) fn root_of(&self, lane: LaneId, db: u8) -> u64 {
        self.heap.lane_roots(lane) + u64::from(db) * ROOT_BYTES
    }

    /// The key's entry, unless it has expired.
    pub(crate) fn live<'l>(
        &self,
        lane: &'l Lane<'l>,
        place: &Place,
        key: Key<'_>,
    ) -> Option<Entry<'l>> {
        let found = find(lane, place, key)?;
        let is_live = !found.expires()
            || lane.load(found.record() + Header::AT_EXPIRY) > self.clock.unix_ms();
        is_live.then(|| Entry::found(lane, &found, key.bytes.len()))
    }
}

/// Marks all that a table reaches. With counts: of keys, and of those with an expiry.
fn trace(
    region: &Region,
    lane: &Lane<'_>,
    marks: &mut Marks<'_>,
    root: u64,
    mut counts: Option<&mut (u64, u64)>,
) -> Result<(), OpenError> {
    let words = table::root_words(lane, root);
    if words[0] > table::BUCKETS_MAX {
        return Err(OpenError::Corrupt {
            what: "buckets of a table",
            offset: root,
            value: words[0],
        });
    }
    table::pieces::for_each(lane, &words, |at| marks.mark(at))?;
    for bucket in 0..words[0] {
        // The final flush waits for this shard, on the warning's time, and what is not loaded comes
        // block by block.
        region.check_open().map_err(HeapError::from)?;
        table::parts_of_bucket(lane, &words, bucket, &mut |part| {
            let entry = match part {
                Part::Overflow(at) => return Ok(marks.mark(at)?),
                Part::Entry(entry) => entry,
            };
            let at = table::record_of(entry);
            marks.mark(at)?;
            let record = Entry::new(lane, at);
            if record.header.head_bytes() != table::head_of(entry) {
                let value = record.header.first_word();
                return Err(OpenError::Corrupt { what: "record's header", offset: at, value });
            }
            if record.header.len_bytes() > lane.usable_bytes(at) {
                let value = record.header.len_bytes();
                return Err(OpenError::Corrupt { what: "record length", offset: at, value });
            }
            if let Some((keys, keys_with_expiry)) = counts.as_deref_mut() {
                *keys += 1;
                *keys_with_expiry += u64::from(table::expires(entry));
            }
            if record.has_table() {
                marks.mark(record.table_root())?;
                trace(region, lane, marks, record.table_root(), None)?;
                sorted::trace(lane, marks, &record)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}
