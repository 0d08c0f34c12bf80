//! The durable map.

use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use perdura_media::{Clock, RealClock};
use perdura_region::{Promise, RegionError, TrackingKind};
use perdura_store::{Access, Entry, Expiry, Key, StoreError, WrongType};

use crate::closing::{Closing, Flushed};
use crate::commits::Commits;
use crate::error::{CloseError, OpenError};
use crate::guarded;
use crate::options::{Durability, Options};
use crate::transaction::Transaction;

/// One write in this many removes expired keys and frees deleted values, so that no other thread
/// has to.
const SWEEP_EVERY: u32 = 16;
/// Number of index buckets in which such a write looks for expired keys.
const SWEPT_BUCKETS: usize = 32;
/// Parts of deleted values that such a write frees.
const FREED_PARTS: u64 = 256;

/// A durable map from bytes to bytes, at DRAM speed.
///
/// Keys have up to 65,535 bytes, values up to 512 MiB. Any thread may use it by reference; calls
/// run on the caller's thread. A call's change is whole or absent after a crash, of any number of
/// keys. The map is database 0 of what `perdura serve` serves from the same directory.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let dir = dir.path().join("data");
/// use perdura::{Options, Store};
///
/// let store = Store::open_with(&dir, &Options::new().memory_bytes(64 << 20))?;
/// store.set("greeting", "hello")?;
/// assert_eq!(store.get("greeting")?.as_deref(), Some(&b"hello"[..]));
/// assert!(store.delete("greeting")?);
/// store.close()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Store {
    engine: Arc<perdura_store::Store>,
    durability: Durability,
    commits: Commits,
    writes: AtomicU32,
    promise: Promise,
    closing: Arc<Closing>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("durability", &self.durability)
            .field("promise", &self.promise)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the map in a directory, or makes it, with the default [`Options`]: 256 MiB of memory,
    /// and each change on the SSD before its call returns.
    ///
    /// # Errors
    /// The directory cannot be had, holds something else, or its promise cannot be kept.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(dir, &Options::default())
    }

    /// Opens the map in a directory, or makes it.
    ///
    /// # Errors
    /// The errors of [`Store::open`], or an option is refused.
    pub fn open_with(dir: impl AsRef<Path>, options: &Options) -> Result<Self, OpenError> {
        let opened = options.open(dir.as_ref(), TrackingKind::Barrier)?;
        let heap =
            perdura_store::Heap::open(opened.region).map_err(perdura_store::OpenError::from)?;
        let clock = Arc::new(RealClock);
        let engine = perdura_store::Store::open(heap, clock, Default::default())?;
        let engine = Arc::new(engine);
        guarded::follow(opened.following, &engine, &opened.closing)?;
        Ok(Self {
            engine,
            durability: options.chosen_durability(),
            commits: Commits::default(),
            writes: AtomicU32::new(0),
            promise: opened.promise,
            closing: opened.closing,
        })
    }

    /// A copy of the key's value; `None`: there is no such key, or it has expired.
    ///
    /// # Errors
    /// The key holds another kind of value, which a Redis client has written.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(key, |value| value.map(<[u8]>::to_vec))
    }

    /// Calls `look` with the key's value where it lies, without a copy. `look` runs under the lock
    /// of the key's shard and must not call the map.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = perdura::Options::new().memory_bytes(16 << 20);
    /// # let store = perdura::Store::open_with(dir.path().join("data"), &options)?;
    /// store.set("key", "value")?;
    /// let len = store.read("key", |value| value.map(<[u8]>::len))?; // without a copy
    /// assert_eq!(len, Some(5));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The key holds another kind of value, which a Redis client has written.
    pub fn read<R>(
        &self,
        key: impl AsRef<[u8]>,
        look: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, StoreError> {
        self.engine.read(Key::new(key.as_ref()), |entry| Ok(look(bytes_of(entry)?)))
    }

    /// Whether there is such a key.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        self.engine.read(Key::new(key.as_ref()), |entry| entry.is_some())
    }

    /// Sets the key to a value that does not expire.
    ///
    /// # Errors
    /// Key or value are too long, memory is used up, or the SSD has failed. With
    /// [`Durability::Fsync`] a change whose commit failed is in memory and may be lost.
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), StoreError> {
        self.committed(|| self.engine.put(Key::new(key.as_ref()), value.as_ref()))
    }

    /// Sets the key to a value that goes away after a time, to the millisecond of the machine's
    /// clock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = perdura::Options::new().memory_bytes(16 << 20);
    /// # let store = perdura::Store::open_with(dir.path().join("data"), &options)?;
    /// use std::time::Duration;
    ///
    /// store.set_expiring("session", "alice", Duration::from_secs(600))?;
    /// assert!(store.expires_in("session").is_some());
    /// store.persist("session")?;
    /// assert!(store.expires_in("session").is_none());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Store::set`].
    pub fn set_expiring(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        after: Duration,
    ) -> Result<(), StoreError> {
        let (key, expiry) = (Key::new(key.as_ref()), Expiry::AtMs(time_after(after)));
        self.committed(|| {
            self.engine.run(Access::Key(key), |tx| tx.put(key, value.as_ref(), expiry))
        })
    }

    /// Removes the key. Returns whether it was there.
    ///
    /// # Errors
    /// The errors of [`Store::set`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, StoreError> {
        self.committed(|| self.engine.delete(Key::new(key.as_ref())))
    }

    /// Replaces the key's value by what `change` makes of it, and keeps its expiry; `None` removes
    /// the key. No other thread changes the key in between. `change` may be called more than once,
    /// with the same value, and must not call the map.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path().join("data");
    /// # use perdura::{Options, Store};
    /// # let store = Store::open_with(&dir, &Options::new().memory_bytes(64 << 20))?;
    /// store.set("list", "a")?;
    /// store.update("list", |old| Some([old.unwrap_or_default(), b",b"].concat()))?;
    /// assert_eq!(store.get("list")?.as_deref(), Some(&b"a,b"[..]));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Store::set`], or the key holds another kind of value.
    pub fn update(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<(), StoreError> {
        self.committed(|| self.engine.update(Key::new(key.as_ref()), change))
    }

    /// Runs `change` on the keys named, and no others: all of its changes happen or none, after a
    /// crash too, and no other thread sees a part of them.
    ///
    /// `change` may be run more than once; everything it did is undone before. So it returns the
    /// errors of its calls, and sets what it captured anew each time. It must not call the map.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path().join("data");
    /// # use perdura::{Options, Store};
    /// # let store = Store::open_with(&dir, &Options::new().memory_bytes(64 << 20))?;
    /// store.set("alice", "7 coins")?;
    /// store.transaction(&["alice", "bob"], |tx| {
    ///     let Some(coins) = tx.get("alice")? else { return tx.abort("alice has nothing") };
    ///     tx.delete("alice")?;
    ///     tx.set("bob", coins)
    /// })?;
    /// assert!(store.contains("bob") && !store.contains("alice"));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The error that `change` returned, or the errors of [`Store::set`]. Nothing has changed then.
    pub fn transaction<K: AsRef<[u8]>, R>(
        &self,
        keys: &[K],
        mut change: impl FnMut(&mut Transaction<'_, '_>) -> Result<R, perdura_store::TxError>,
    ) -> Result<R, StoreError> {
        let mut keys: Vec<Key<'_>> = keys.iter().map(|key| Key::new(key.as_ref())).collect();
        // Each call of the transaction looks its key up.
        keys.sort_unstable_by_key(|key| key.bytes);
        self.committed(|| {
            self.engine.run(Access::Keys(&keys), |tx| change(&mut Transaction::new(tx, &keys)))
        })
    }

    /// Lets the key go away after a time. Returns whether there is such a key.
    ///
    /// # Errors
    /// The errors of [`Store::set`].
    pub fn expire(&self, key: impl AsRef<[u8]>, after: Duration) -> Result<bool, StoreError> {
        self.set_expiry(key.as_ref(), Some(time_after(after)))
    }

    /// Keeps the key for good. Returns whether there is such a key.
    ///
    /// # Errors
    /// The errors of [`Store::set`].
    pub fn persist(&self, key: impl AsRef<[u8]>) -> Result<bool, StoreError> {
        self.set_expiry(key.as_ref(), None)
    }

    /// The time until the key goes away; `None`: there is no such key, or it does not expire.
    pub fn expires_in(&self, key: impl AsRef<[u8]>) -> Option<Duration> {
        let at_ms =
            self.engine.read(Key::new(key.as_ref()), |entry| entry.and_then(|e| e.expire_at_ms));
        at_ms.map(|at_ms| Duration::from_millis(at_ms.saturating_sub(RealClock.unix_ms())))
    }

    /// Number of keys, with those that have expired and were not met yet.
    pub fn len(&self) -> u64 {
        self.engine.len(0)
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all keys, in one step.
    ///
    /// # Errors
    /// The errors of [`Store::set`].
    pub fn clear(&self) -> Result<(), StoreError> {
        self.committed(|| self.engine.flush_db(0))
    }

    /// All keys and values, in the order of the keys. Keys that come or go meanwhile may be met or
    /// not. The first call builds an ordered index, which takes memory of this process for each
    /// key.
    pub fn iter(&self) -> Range<'_> {
        self.range::<&[u8], _>(..)
    }

    /// The keys of a range with their values, in the order of the keys; otherwise as
    /// [`Store::iter`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path().join("data");
    /// # use perdura::{Options, Store};
    /// # let store = Store::open_with(&dir, &Options::new().memory_bytes(64 << 20))?;
    /// for name in ["ada", "bob", "cleo"] {
    ///     store.set(name, "")?;
    /// }
    /// let keys: Vec<_> = store.range("b"..).map(|(key, _)| key).collect();
    /// assert_eq!(keys, [b"bob".to_vec(), b"cleo".to_vec()]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn range<K: AsRef<[u8]>, B: RangeBounds<K>>(&self, bounds: B) -> Range<'_> {
        let (from, skipped) = match bounds.start_bound() {
            Bound::Included(key) => (key.as_ref(), None),
            Bound::Excluded(key) => (key.as_ref(), Some(key.as_ref().to_vec())),
            Bound::Unbounded => (&[][..], None),
        };
        let end = match bounds.end_bound() {
            Bound::Included(key) => Bound::Included(key.as_ref().to_vec()),
            Bound::Excluded(key) => Bound::Excluded(key.as_ref().to_vec()),
            Bound::Unbounded => Bound::Unbounded,
        };
        Range { inner: self.engine.range(0, from), skipped, end }
    }

    /// The keys of a range in their order, without copies of their values; otherwise as
    /// [`Store::range`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path().join("data");
    /// # use std::ops::Bound;
    /// # use perdura::{Options, Store};
    /// # let store = Store::open_with(&dir, &Options::new().memory_bytes(64 << 20))?;
    /// for name in ["ada", "bob", "cleo", "dan"] {
    ///     store.set(name, "a long value")?;
    /// }
    /// let inner = (Bound::Excluded("ada"), Bound::Excluded("dan"));
    /// let keys: Vec<_> = store.keys::<&str, _>(inner).collect();
    /// assert_eq!(keys, [b"bob".to_vec(), b"cleo".to_vec()]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn keys<K: AsRef<[u8]>, B: RangeBounds<K>>(&self, bounds: B) -> Keys<'_> {
        Keys(self.range(bounds))
    }

    /// The promise: the budget, and the time of its flush.
    pub fn promise(&self) -> Promise {
        self.promise
    }

    /// Makes the state of this moment the one that an unwarned loss goes back to.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = perdura::Options::new().memory_bytes(16 << 20);
    /// # let store = perdura::Store::open_with(dir.path().join("data"), &options)?;
    /// store.set("key", "value")?;
    /// store.checkpoint()?; // an unwarned loss goes back to here
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The SSD has failed, or the map is closed.
    pub fn checkpoint(&self) -> Result<(), RegionError> {
        self.engine.region().checkpoint()
    }

    /// Stops writers for good, flushes within the warning, lets the holder go, and reports. What is
    /// in memory can be read on. A change that another thread tries meanwhile is refused when the
    /// flush is over. A second call repeats the report.
    ///
    /// # Errors
    /// The flush failed, and the call may be repeated; or the holder did not end.
    pub fn close(&self) -> Result<Flushed, CloseError> {
        self.closing.close(self.engine.region())
    }

    /// The engine below, which has hashes, sorted sets, 16 databases, counts, and the region with
    /// its budget. Its changes are durable as [`Durability::Warned`] says.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let options = perdura::Options::new().memory_bytes(16 << 20);
    /// # let store = perdura::Store::open_with(dir.path().join("data"), &options)?;
    /// use perdura::engine::{Access, Key};
    ///
    /// let key = Key::new(b"user:1");
    /// store.engine().run(Access::Key(key), |tx| tx.hash_set(key, b"name", b"Alice").map(drop))?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn engine(&self) -> &Arc<perdura_store::Store> {
        &self.engine
    }

    fn set_expiry(&self, key: &[u8], at_ms: Option<u64>) -> Result<bool, StoreError> {
        let key = Key::new(key);
        self.committed(|| self.engine.run(Access::Key(key), |tx| tx.set_expiry(key, at_ms)))
    }

    /// Makes a change, and with [`Durability::Fsync`] waits until it is durable.
    fn committed<R>(
        &self,
        change: impl FnOnce() -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        self.change_and_commit(change).inspect_err(|error| {
            if let StoreError::NotDurable(refused) = error {
                self.closing.await_end(refused);
            }
        })
    }

    fn change_and_commit<R>(
        &self,
        change: impl FnOnce() -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let result = change()?;
        if self.writes.fetch_add(1, Relaxed).is_multiple_of(SWEEP_EVERY) {
            self.engine.free_some(FREED_PARTS);
            if let Err(error) = self.engine.expire_some(SWEPT_BUCKETS) {
                // The change itself is done. The next change meets the error of the SSD.
                tracing::debug!(%error, "expired keys stay for now");
            }
        }
        if self.durability == Durability::Fsync {
            self.commits.wait(self.engine.region())?;
        }
        Ok(result)
    }
}

impl Drop for Store {
    /// Flushes as [`Store::close`] does, if that has not been done. A failure is logged only.
    fn drop(&mut self) {
        if self.closing.is_forked() {
            // Everything belongs to the parent, which a destructor here would disturb.
            std::mem::forget(Arc::clone(&self.engine));
            return;
        }
        self.closing.close_at_drop(self.engine.region());
    }
}

/// Keys and values of a [`Store`] in the order of the keys; made by [`Store::range`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let options = perdura::Options::new().memory_bytes(16 << 20);
/// # let store = perdura::Store::open_with(dir.path().join("data"), &options)?;
/// store.set("b", "2")?;
/// store.set("a", "1")?;
/// let keys: Vec<_> = store.range("a"..).map(|(key, _)| key).collect();
/// assert_eq!(keys, [b"a", b"b"]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use = "iterators do nothing until they are used"]
pub struct Range<'s> {
    inner: perdura_store::Range<'s>,
    /// The excluded first key.
    skipped: Option<Vec<u8>>,
    end: Bound<Vec<u8>>,
}

impl std::fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").field("end", &self.end).finish_non_exhaustive()
    }
}

impl Range<'_> {
    /// Whether the key is not behind the end of the range.
    fn is_within(&self, key: &[u8]) -> bool {
        match &self.end {
            Bound::Included(end) => key <= &end[..],
            Bound::Excluded(end) => key < &end[..],
            Bound::Unbounded => true,
        }
    }
}

impl Iterator for Range<'_> {
    type Item = (Vec<u8>, Vec<u8>);

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.inner.by_ref().find(|(key, _)| self.skipped.as_ref() != Some(key))?;
        self.is_within(&found.0).then_some(found)
    }
}

/// Keys of a [`Store`] in their order; made by [`Store::keys`].
#[must_use = "iterators do nothing until they are used"]
#[derive(Debug)]
pub struct Keys<'s>(Range<'s>);

impl Iterator for Keys<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let Range { inner, skipped, .. } = &mut self.0;
        let next = || inner.next_key();
        let key = std::iter::from_fn(next).find(|key| skipped.as_ref() != Some(key))?;
        self.0.is_within(&key).then_some(key)
    }
}

impl<'s> IntoIterator for &'s Store {
    type Item = (Vec<u8>, Vec<u8>);
    type IntoIter = Range<'s>;

    fn into_iter(self) -> Range<'s> {
        self.iter()
    }
}

fn bytes_of(entry: Option<Entry<'_>>) -> Result<Option<&[u8]>, StoreError> {
    entry.map(|entry| entry.string().ok_or(StoreError::WrongType(WrongType))).transpose()
}

/// The time at which a span from now ends, milliseconds since 1970.
fn time_after(after: Duration) -> u64 {
    let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
    RealClock.unix_ms().saturating_add(after_ms)
}
