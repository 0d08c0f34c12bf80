//! Going over keys in the order of the index, in the order of the keys, or at random.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;

use perdura_slots::{Lane, LaneId};

use crate::api::Key;
use crate::entry::Entry;
use crate::expiring;
use crate::shard::Shard;
use crate::store::Store;
use crate::table::{self, Found};

/// A cursor is `shard << BUCKET_BITS | bucket`.
const BUCKET_BITS: u32 = 40;
/// Keys that are fetched from a shard's ordered index at a time.
const KEYS_PER_FETCH: usize = 64;

impl Store {
    /// Calls `f` with about `count` keys of a database, whole buckets at a time. An iteration
    /// begins with cursor 0 and goes on with the cursor that is returned, until that is 0. A key
    /// that is there during the whole iteration is met at least once; other keys may be met or
    /// not. `f` runs under the shard's lock and must not call the store.
    pub fn scan(
        &self,
        db: u8,
        cursor: u64,
        count: usize,
        mut f: impl FnMut(&[u8], &Entry<'_>),
    ) -> u64 {
        let mut shard = cursor >> BUCKET_BITS;
        let mut bucket = cursor & ((1 << BUCKET_BITS) - 1);
        let mut met = 0;
        while shard < u64::from(self.heap.shards()) {
            let lane = self.heap.lock(LaneId(shard as u16));
            let root = self.root_of(lane.id(), db);
            while bucket < table::buckets(&lane, root) {
                if met >= count.max(1) {
                    return shard << BUCKET_BITS | bucket;
                }
                table::for_each(&lane, root, bucket, |found| {
                    if self.is_live_in(&lane, &found) {
                        let entry = Entry::new(&lane, found.record());
                        let entry = entry.seen_at(|| self.expiry_ms());
                        f(entry.key(), &entry);
                        met += 1;
                    }
                });
                bucket += 1;
            }
            (shard, bucket) = (shard + 1, 0);
        }
        0
    }

    /// Goes over the strings of a database in key order, from the key `from` on. The first call
    /// builds the ordered index, which takes memory outside of the region for every key. Keys that
    /// come or go meanwhile may be met or not.
    pub fn range(&self, db: u8, from: &[u8]) -> Range<'_> {
        let shards = usize::from(self.heap.shards());
        let mut range = Range {
            store: self,
            db,
            fetched: vec![VecDeque::new(); shards],
            next: BinaryHeap::new(),
        };
        for shard in 0..shards as u16 {
            range.fetch(shard, Bound::Included(from));
        }
        range
    }

    /// A key of a database, drawn at random: each key is nearly equally likely.
    pub fn random_key(&self, db: u8) -> Option<Vec<u8>> {
        let (total, shards) = (self.len(db), u64::from(self.heap.shards()));
        let mut left = if total == 0 { return None } else { self.draw() % total };
        let mut first = 0;
        for lane in self.heap.lanes() {
            let counts = self.key_counts.of(lane);
            // Counts that are not known yet may be of any size.
            let keys = if counts.is_known() { counts.get(db).keys } else { 0 };
            first = u64::from(lane.0);
            if left < keys {
                break;
            }
            left -= keys;
        }
        // The other shards are asked if all keys of this one have expired.
        (first..first + shards).find_map(|shard| {
            let lane = self.heap.lock(LaneId((shard % shards) as u16));
            self.random_in(&lane, db)
        })
    }

    fn random_in(&self, lane: &Lane<'_>, db: u8) -> Option<Vec<u8>> {
        let root = self.root_of(lane.id(), db);
        let buckets = table::buckets(lane, root);
        let from = if buckets == 0 { return None } else { self.draw() % buckets };
        (from..from + buckets).find_map(|bucket| {
            let mut live = Vec::new();
            table::for_each(lane, root, bucket % buckets, |found| {
                if self.is_live_in(lane, &found) {
                    live.push(found.record());
                }
            });
            let at = *live.get((self.draw() % live.len().max(1) as u64) as usize)?;
            Some(Entry::new(lane, at).key().to_vec())
        })
    }

    /// A random number: splitmix64 over a shared counter.
    pub(crate) fn draw(&self) -> u64 {
        let seed = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    #[inline]
    pub(crate) fn is_live_in(&self, lane: &Lane<'_>, found: &Found) -> bool {
        !found.expires() || expiring::is_live(lane, found, self.expiry_ms())
    }

    fn ordered_keys(&self, lane: &Lane<'_>, db: u8) -> BTreeSet<Box<[u8]>> {
        let root = self.root_of(lane.id(), db);
        let mut keys = BTreeSet::new();
        for bucket in 0..table::buckets(lane, root) {
            table::for_each(lane, root, bucket, |found| {
                keys.insert(Box::from(Entry::new(lane, found.record()).key()));
            });
        }
        keys
    }
}

/// The strings of a database in key order; see [`Store::range`].
pub struct Range<'s> {
    store: &'s Store,
    db: u8,
    /// Keys of each shard that were fetched and not yet compared with those of other shards.
    fetched: Vec<VecDeque<Box<[u8]>>>,
    /// The next key of each shard.
    next: BinaryHeap<Reverse<(Box<[u8]>, u16)>>,
}

impl Range<'_> {
    /// Makes the next key of a shard known, from `from` on.
    fn fetch(&mut self, shard: u16, from: Bound<&[u8]>) {
        let (store, db) = (self.store, self.db);
        let fetched = &mut self.fetched[usize::from(shard)];
        if fetched.is_empty() {
            let mut lane = store.heap.lock(LaneId(shard));
            let is_built = lane
                .user::<Shard>()
                .is_some_and(|shard| shard.dbs[usize::from(db)].ordered.is_some());
            let built = (!is_built).then(|| store.ordered_keys(&lane, db));
            if let Some(shard) = lane.user_mut::<Shard>() {
                let ordered = &mut shard.dbs[usize::from(db)].ordered;
                let ordered = ordered.get_or_insert_with(|| built.unwrap_or_default());
                let keys = ordered.range::<[u8], _>((from, Bound::Unbounded));
                fetched.extend(keys.take(KEYS_PER_FETCH).cloned());
            }
        }
        if let Some(key) = fetched.pop_front() {
            self.next.push(Reverse((key, shard)));
        }
    }
}

impl Range<'_> {
    /// The next key alone, of which no value is copied.
    pub fn next_key(&mut self) -> Option<Vec<u8>> {
        self.next_with(|_| ()).map(|(key, ())| key)
    }

    /// The next key, and what is made of its value under the lock of its shard.
    fn next_with<T>(&mut self, make: impl Fn(&[u8]) -> T) -> Option<(Vec<u8>, T)> {
        loop {
            let Reverse((key, shard)) = self.next.pop()?;
            self.fetch(shard, Bound::Excluded(&key));
            let key_of_db = Key { db: self.db, bytes: &key };
            let made = self.store.read(key_of_db, |entry| entry?.string().map(&make));
            if let Some(made) = made {
                return Some((key.into_vec(), made));
            }
        }
    }
}

impl Iterator for Range<'_> {
    type Item = (Vec<u8>, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        self.next_with(<[u8]>::to_vec)
    }
}
