//! All keys as they are at one moment, while operations go on.
//!
//! The moment is when the snapshot begins, with all shards held. After that a walk hands out the
//! keys of each shard, bucket by bucket, and an operation that is about to change a key that the
//! walk has not come to hands that key out first, as it is. So each key is handed out once, as it
//! was at that moment, and a key that came later is not.
//!
//! The walk goes by the buckets that a table had at the beginning. A bucket that was split since is
//! walked together with those that its keys went to.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use perdura_slots::{Lane, LaneId};

use crate::api::{Access, DATABASES, Key};
use crate::entry::Entry;
use crate::error::StoreError;
use crate::expiring;
use crate::shard::Shard;
use crate::store::Store;
use crate::table::{self, bucket_of};
use crate::tx::Tx;

/// Who takes the keys of a snapshot.
pub trait SnapshotSink: Send + Sync {
    /// Takes a key. The key's shard is held: this must not call the store, and other operations may
    /// wait for it.
    fn take(&self, key: Key<'_>, entry: &Entry<'_>);
}

/// Why no snapshot can be taken.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// One is being taken.
    #[error("a snapshot is being taken already")]
    Busy,
    /// Values lie on devices, from which they cannot be read while their shard is held.
    #[error("values of this store lie on devices: a snapshot has those in memory only")]
    HasDevices,
    /// The store refuses.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a shard knows of the snapshot that is being taken.
pub(crate) struct ShardSnapshot {
    sink: Arc<dyn SnapshotSink>,
    /// Buckets of each database's table when the snapshot began.
    buckets: [u64; DATABASES as usize],
    /// The first of these that the walk has not come to.
    next: [u64; DATABASES as usize],
    /// Keys behind that bucket that were handed out, or that were not there at the beginning.
    settled: HashSet<(u8, Box<[u8]>)>,
}

impl ShardSnapshot {
    /// Whether a key has been handed out, or was not there at the beginning.
    fn is_settled(&self, key: Key<'_>, hash: u64) -> bool {
        let db = usize::from(key.db);
        let is_walked = self.buckets[db] == 0 || bucket_of(hash, self.buckets[db]) < self.next[db];
        // A table without buckets had no keys: all that it has are later ones.
        is_walked || self.settled.contains(&(key.db, key.bytes.into()))
    }
}

/// A snapshot that is being taken; see [`Store::snapshot`]. It ends when this is dropped.
pub struct Snapshot<'s> {
    store: &'s Store,
    lane: u16,
    db: u8,
}

impl Store {
    /// Begins a snapshot: every key that there is at this moment goes to `sink` as it is now, while
    /// the caller calls [`Snapshot::step`] and others write. Until the walk has come to a shard,
    /// its memory holds the name of each key of it that is written.
    ///
    /// # Errors
    /// A snapshot is being taken; the store has values on devices; the region refuses.
    pub fn snapshot(&self, sink: &Arc<dyn SnapshotSink>) -> Result<Snapshot<'_>, SnapshotError> {
        if self.far.is_some() {
            return Err(SnapshotError::HasDevices);
        }
        self.await_rebuild();
        if self.has_snapshot.swap(true, SeqCst) {
            return Err(SnapshotError::Busy);
        }
        // From here on it is ended by the drop.
        let snapshot = Snapshot { store: self, lane: 0, db: 0 };
        self.run(Access::Everything, |tx| {
            for id in self.heap.lanes() {
                let buckets = std::array::from_fn(|db| {
                    table::buckets(tx.op.lane(id), self.root_of(id, db as u8))
                });
                let (sink, next) = (Arc::clone(sink), [0; DATABASES as usize]);
                let begun = ShardSnapshot { sink, buckets, next, settled: HashSet::new() };
                if let Some(shard) = tx.op.lane_mut(id).user_mut::<Shard>() {
                    shard.snapshot = Some(Box::new(begun));
                }
            }
            Ok(())
        })?;
        Ok(snapshot)
    }
}

impl Snapshot<'_> {
    /// Hands out the keys of up to so many buckets of one shard. Returns false once all keys are
    /// handed out.
    pub fn step(&mut self, buckets: u64) -> bool {
        if self.lane == self.store.heap.shards() {
            return false;
        }
        let mut lane = self.store.heap.lock(LaneId(self.lane));
        if walk(self.store, &mut lane, self.db, buckets) {
            return true;
        }
        self.db += 1;
        if self.db == DATABASES {
            (self.db, self.lane) = (0, self.lane + 1);
            if let Some(shard) = lane.user_mut::<Shard>() {
                shard.snapshot = None;
            }
        }
        true
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        for id in self.store.heap.lanes() {
            if let Some(shard) = self.store.heap.lock(id).user_mut::<Shard>() {
                shard.snapshot = None;
            }
        }
        self.store.has_snapshot.store(false, SeqCst);
    }
}

/// Hands out the keys of the next buckets of a database. Returns whether there are more.
fn walk(store: &Store, lane: &mut Lane<'_>, db: u8, count: u64) -> bool {
    let root = store.root_of(lane.id(), db);
    let Some(snapshot) = lane.user::<Shard>().and_then(|shard| shard.snapshot.as_ref()) else {
        return false;
    };
    let (then, from) = (snapshot.buckets[usize::from(db)], snapshot.next[usize::from(db)]);
    let to = then.min(from.saturating_add(count));
    let now = table::buckets(lane, root);
    let now_ms = store.expiry_ms();
    // A split moves keys to a bucket that is higher by this, or by more.
    let step = (1 << 63) >> then.max(1).leading_zeros();
    for home in from..to {
        for bucket in (home..now).step_by(step) {
            if bucket_of(bucket, then) != home {
                continue;
            }
            table::for_each(lane, root, bucket, |found| {
                if found.expires() && !expiring::is_live(lane, &found, now_ms) {
                    return;
                }
                let entry = Entry::new(lane, found.record()).seen_at(|| now_ms);
                let key = Key { db, bytes: entry.key() };
                if !snapshot.settled.contains(&(db, key.bytes.into())) {
                    snapshot.sink.take(key, &entry);
                }
            });
        }
    }
    if let Some(snapshot) = lane.user_mut::<Shard>().and_then(|shard| shard.snapshot.as_mut()) {
        snapshot.next[usize::from(db)] = to;
    }
    to < then
}

impl Tx<'_> {
    /// Hands out the key as it is, if a snapshot is being taken and still needs it. To be called
    /// before the first change that an operation makes to the key.
    #[inline]
    pub(crate) fn settle(&mut self, key: Key<'_>) {
        // Relaxed is enough: who begins a snapshot holds the key's shard afterwards.
        if self.store.has_snapshot.load(Relaxed) {
            self.settle_now(key);
        }
    }

    #[cold]
    fn settle_now(&mut self, key: Key<'_>) {
        // Snapshots have the keys of users only.
        if key.db >= DATABASES {
            return;
        }
        let place = self.place(key);
        let shard = self.op.lane(place.lane).user::<Shard>();
        let Some(snapshot) = shard.and_then(|shard| shard.snapshot.as_ref()) else { return };
        if snapshot.is_settled(key, place.hash) {
            return;
        }
        if let Some(found) = self.find(&place, key)
            && self.is_live(&place, &found)
        {
            snapshot.sink.take(key, &self.raw(&place, &found));
        }
        let shard = self.op.lane_mut(place.lane).user_mut::<Shard>();
        if let Some(snapshot) = shard.and_then(|shard| shard.snapshot.as_mut()) {
            snapshot.settled.insert((key.db, key.bytes.into()));
        }
    }

    /// Hands out all keys of a database that a snapshot still needs, because they are about to go.
    pub(crate) fn settle_all(&mut self, lane: LaneId, db: u8) {
        if self.store.has_snapshot.load(Relaxed) {
            walk(self.store, self.op.lane_mut(lane), db, u64::MAX);
        }
    }
}
