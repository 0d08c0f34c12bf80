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
//! A listener, if there is one, is told of every key that an operation changed or removed, while
//! the operation holds the key's shard.
//!
//! While no key is watched and nobody listens, a write pays for one load.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perdura_slots::{Rank, Ranked};

use crate::api::{Key, OWN_DATABASE};
use crate::record::hash_key;

/// The watched keys of a store.
#[derive(Debug)]
pub(crate) struct Watches {
    /// The number of keys in `seen`, and [`LISTENED`]. Relaxed is enough: a thread that watches a
    /// key takes the key's shard afterwards, so a write that saw no watched keys was over by then.
    /// The same holds for a thread that listens and then reads a key.
    count: AtomicUsize,
    /// The listener, in several copies, so that operations on several shards do not meet in one
    /// lock.
    listeners: [Copy; COPIES],
    /// The watched keys of each database.
    seen: Ranked<[HashMap<Box<[u8]>, Seen>; OWN_DATABASE as usize + 1]>,
}

/// Number of copies of the listener.
const COPIES: usize = 32;

/// A copy of the listener, in cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Copy(Mutex<Option<Arc<dyn Listener>>>);

/// Bit of [`Watches::count`] that says that somebody listens.
const LISTENED: usize = 1 << (usize::BITS - 1);

/// Who is told of every key that operations change.
pub trait Listener: Send + Sync + std::fmt::Debug {
    /// An operation is about to commit that has written or removed these keys, and perhaps emptied
    /// databases. It holds the shards of all of them, so a read that begins now sees its changes;
    /// a failing device may still undo them. It must not be kept waiting for a shard.
    fn changed(&self, keys: &[Changed], has_emptied: bool);
}

/// A key that an operation has written or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The key's database.
    pub db: u8,
    /// The key's name.
    pub key: Box<[u8]>,
    /// Whether the operation has removed the key, and not written it.
    pub is_removal: bool,
}

/// The state of one watched key.
#[derive(Debug, Default)]
struct Seen {
    /// How many times the key is watched.
    watchers: usize,
    /// Writes that were committed since the key is watched.
    writes: u64,
}

impl Copy {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn Listener>>> {
        // One assignment sets it, so it is whole whatever thread has panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Watches {
    fn default() -> Self {
        Self {
            count: AtomicUsize::new(0),
            listeners: Default::default(),
            seen: Ranked::new(Rank::Watches, Default::default()),
        }
    }
}

impl Watches {
    /// Whether somebody wants to know of a change of the key: an operation that watches it, or the
    /// listener. Removals are for the listener only.
    #[inline]
    pub fn is_awaited(&self, key: Key<'_>, is_removal: bool) -> bool {
        let count = self.count.load(Relaxed);
        count != 0 && self.is_awaited_by(count, key, is_removal)
    }

    #[cold]
    fn is_awaited_by(&self, count: usize, key: Key<'_>, is_removal: bool) -> bool {
        // Nobody knows the hidden keys under which values are built.
        if key.db > OWN_DATABASE {
            return false;
        }
        count & LISTENED != 0
            || !is_removal && self.seen.lock()[usize::from(key.db)].contains_key(key.bytes)
    }

    /// Whether somebody listens.
    pub fn is_listened(&self) -> bool {
        self.count.load(Relaxed) & LISTENED != 0
    }

    /// Counts a write of each of these keys, whose shards are still held, and tells the listener.
    pub fn count_writes(&self, touched: &[Changed], has_emptied: bool) {
        if touched.is_empty() && !has_emptied {
            return;
        }
        let count = self.count.load(Relaxed);
        if count & !LISTENED != 0 {
            let mut all = self.seen.lock();
            for changed in touched.iter().filter(|changed| !changed.is_removal) {
                if let Some(seen) = all[usize::from(changed.db)].get_mut(&changed.key) {
                    seen.writes += 1;
                }
            }
        }
        if count & LISTENED != 0 {
            let hash = touched.first().map_or(0, |changed| hash_key(changed.db, &changed.key));
            let listener = self.listeners[hash as usize % COPIES].lock().clone();
            if let Some(listener) = listener {
                listener.changed(touched, has_emptied);
            }
        }
    }

    /// Lets a listener know of every change from now on, or nobody.
    pub fn listen(&self, listener: Option<Arc<dyn Listener>>) {
        self.listeners.iter().for_each(|copy| (*copy.lock()).clone_from(&listener));
        match listener.is_some() {
            true => self.count.fetch_or(LISTENED, Relaxed),
            false => self.count.fetch_and(!LISTENED, Relaxed),
        };
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
