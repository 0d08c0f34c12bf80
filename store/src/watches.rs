//! Watched keys, so that an operation learns whether a key was written since it was watched.
//!
//! Each watched key has a counter. An operation that wrote the key adds one on commit, while it
//! holds the key's shard. An attempt that is rolled back adds nothing, or the next attempt would
//! take its writes for another operation's. So an operation that holds the shard and finds the
//! counter as it was knows that nothing was written in between, even if the value is the same
//! again. Removals are not counted: a key that was there and is gone needs no counter, and a key
//! that came back was written. So a key that had expired before it was watched may be swept at any
//! time.
//!
//! While no key is watched, a write pays for one load.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use perdura_slots::{Rank, Ranked};

use crate::api::{Key, OWN_DATABASE};

/// The watched keys of a store.
#[derive(Debug)]
pub(crate) struct Watches {
    /// The number of keys in `seen`. Relaxed is enough: a thread that watches a key takes the key's
    /// shard afterwards, so a write that saw no watched keys was over by then.
    count: AtomicUsize,
    /// The watched keys of each database.
    seen: Ranked<[HashMap<Box<[u8]>, Seen>; OWN_DATABASE as usize + 1]>,
}

/// The state of one watched key.
#[derive(Debug, Default)]
struct Seen {
    /// How many times the key is watched.
    watchers: usize,
    /// Writes that were committed since the key is watched.
    writes: u64,
}

impl Default for Watches {
    fn default() -> Self {
        Self { count: AtomicUsize::new(0), seen: Ranked::new(Rank::Watches, Default::default()) }
    }
}

impl Watches {
    /// Whether any operation watches the key.
    pub fn is_watched(&self, key: Key<'_>) -> bool {
        self.count.load(Relaxed) != 0
            && self.seen.lock()[usize::from(key.db)].contains_key(key.bytes)
    }

    /// Counts a write of each of these keys, whose shards are still held.
    pub fn count_writes(&self, touched: &[(u8, Box<[u8]>)]) {
        if touched.is_empty() {
            return;
        }
        let mut all = self.seen.lock();
        for (db, bytes) in touched {
            if let Some(seen) = all[usize::from(*db)].get_mut(bytes) {
                seen.writes += 1;
            }
        }
    }

    fn begin(&self, key: Key<'_>) -> u64 {
        let mut all = self.seen.lock();
        let seen = all[usize::from(key.db)].entry(key.bytes.into()).or_default();
        if seen.watchers == 0 {
            self.count.fetch_add(1, Relaxed);
        }
        seen.watchers += 1;
        seen.writes
    }

    fn end(&self, key: Key<'_>) {
        let mut all = self.seen.lock();
        let keys = &mut all[usize::from(key.db)];
        if let Some(seen) = keys.get_mut(key.bytes) {
            seen.watchers -= 1;
            if seen.watchers == 0 {
                keys.remove(key.bytes);
                self.count.fetch_sub(1, Relaxed);
            }
        }
    }

    fn writes(&self, key: Key<'_>) -> u64 {
        self.seen.lock()[usize::from(key.db)].get(key.bytes).map_or(0, |seen| seen.writes)
    }
}

/// A key that is watched from [`crate::Store::watch`] until this is dropped.
#[derive(Debug)]
pub struct Watch {
    watches: Arc<Watches>,
    db: u8,
    bytes: Box<[u8]>,
    /// The key's counter when it was watched.
    writes: u64,
    /// Whether the key was there, and had not expired, when it was watched.
    pub(crate) was_there: bool,
}

impl Watch {
    /// Watches a key from now on.
    pub(crate) fn begin(watches: &Arc<Watches>, key: Key<'_>) -> Self {
        let (watches, writes) = (Arc::clone(watches), watches.begin(key));
        Self { watches, db: key.db, bytes: key.bytes.into(), writes, was_there: false }
    }

    /// Whether no write of the key was committed since it was watched.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.watches.writes(self.key()) == self.writes
    }

    /// The key that is watched.
    pub fn key(&self) -> Key<'_> {
        Key { db: self.db, bytes: &self.bytes }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watches.end(self.key());
    }
}
