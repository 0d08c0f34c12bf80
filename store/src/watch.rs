//! Watched keys: has anybody written one since?
//!
//! A counter for each watched key; an operation that wrote the key adds one on commit, while it
//! holds the shard; an attempt that is rolled back adds nothing, or its next one would meet its
//! own. So whoever holds the shard and finds the counter as it was knows that nothing was written
//! in between, even if the value is the same again. Removals are not counted: a key that was there
//! and is gone needs no counter, and one that came back was written. That way what expired before
//! it was watched may be swept at any time.
//!
//! While nothing is watched a write pays for one load.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::DATABASES;
use crate::api::Key;
use crate::store::Store;
use crate::tx::Tx;

/// The watched keys of a store.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Keys in `seen`. Relaxed is enough: who watches takes the key's shard afterwards, so a write
    /// that saw none was over by then.
    count: AtomicUsize,
    seen: Mutex<[HashMap<Box<[u8]>, Seen>; DATABASES as usize]>,
}

#[derive(Debug, Default)]
struct Seen {
    watchers: usize,
    writes: u64,
}

impl Watches {
    fn is_watched(&self, key: Key<'_>) -> bool {
        self.count.load(Relaxed) != 0
            && self.seen.lock()[usize::from(key.db)].contains_key(key.bytes)
    }

    /// These were written; their shards are still held.
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

/// A key watched since [`Store::watch`]; until dropped.
#[derive(Debug)]
pub struct Watch {
    watches: Arc<Watches>,
    db: u8,
    bytes: Box<[u8]>,
    writes: u64,
    was_there: bool,
}

impl Watch {
    /// The key.
    pub fn key(&self) -> Key<'_> {
        Key { db: self.db, bytes: &self.bytes }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watches.end(self.key());
    }
}

impl Store {
    /// Watches a key from now on; see [`Tx::is_unchanged`].
    pub fn watch(&self, key: Key<'_>) -> Watch {
        let watches = Arc::clone(&self.watches);
        // Counted first: a write between the two is seen as one after it.
        let writes = watches.begin(key);
        let mut watch =
            Watch { watches, db: key.db, bytes: key.bytes.into(), writes, was_there: false };
        watch.was_there = self.read(key, |entry| entry.is_some());
        watch
    }
}

impl Tx<'_> {
    /// Whether the key was neither written nor removed, and did not expire, from when it was
    /// watched to the beginning of this operation.
    pub fn is_unchanged(&self, watch: &Watch) -> bool {
        let key = watch.key();
        watch.watches.writes(key) == watch.writes && self.get(key).is_some() == watch.was_there
    }

    /// The key is about to be written.
    pub(crate) fn touch(&mut self, key: Key<'_>) {
        if self.store.watches.is_watched(key) {
            self.touched.push((key.db, key.bytes.into()));
        }
    }
}
