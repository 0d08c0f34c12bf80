//! Reading one key under its shard's lock.

use perdura_slots::Lane;

use crate::api::{Key, Kind};
use crate::entry::Entry;
use crate::error::WrongType;
use crate::expiring;
use crate::fields::field_of;
use crate::store::{Place, Store, find};
use crate::table::Found;
use crate::watches::Watch;

impl Store {
    /// Reads one key under its shard's lock. `f` gets `None` for a key that is not there or has
    /// expired.
    #[inline]
    pub fn read<R>(&self, key: Key<'_>, f: impl FnOnce(Option<Entry<'_>>) -> R) -> R {
        let place = self.place(key);
        self.prefetch_bucket(&place);
        self.read_at(key, place, f)
    }

    /// Reads one key, whose place is known, as [`Store::read`] does.
    pub fn read_at<R>(
        &self,
        key: Key<'_>,
        place: Place,
        f: impl FnOnce(Option<Entry<'_>>) -> R,
    ) -> R {
        let lane = self.heap.lock(place.lane);
        let entry = self.live(&lane, &place, key);
        if let Some(entry) = &entry {
            self.note_use(&place);
            if self.far.is_some()
                && let Some(at) = entry.far()
            {
                drop(lane);
                return self.read_far(key, &place, at, f);
            }
        }
        f(entry)
    }

    /// Reads kind and expiry of one key, as [`Store::read`] does; the value may not be in memory.
    #[inline]
    pub fn look<R>(&self, key: Key<'_>, f: impl FnOnce(Option<Entry<'_>>) -> R) -> R {
        let place = self.place(key);
        self.prefetch_bucket(&place);
        self.look_at(key, place, f)
    }

    /// Reads kind and expiry of one key, whose place is known, as [`Store::look`] does.
    pub fn look_at<R>(
        &self,
        key: Key<'_>,
        place: Place,
        f: impl FnOnce(Option<Entry<'_>>) -> R,
    ) -> R {
        let lane = self.heap.lock(place.lane);
        f(self.live(&lane, &place, key))
    }

    /// A copy of a string's value.
    pub fn get(&self, key: Key<'_>) -> Option<Vec<u8>> {
        self.read(key, |entry| entry.and_then(|entry| entry.string().map(<[u8]>::to_vec)))
    }

    /// Reads one field of a hash under its shard's lock.
    ///
    /// # Errors
    /// The key holds another kind of value.
    pub fn hash_get<R>(
        &self,
        key: Key<'_>,
        field: &[u8],
        f: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, WrongType> {
        self.hash_get_at(key, self.place(key), field, f)
    }

    /// Reads one field of a hash, whose key's place is known, as [`Store::hash_get`] does.
    ///
    /// # Errors
    /// The key holds another kind of value.
    pub fn hash_get_at<R>(
        &self,
        key: Key<'_>,
        place: Place,
        field: &[u8],
        f: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, WrongType> {
        self.read_at(key, place, |entry| match entry {
            None => Ok(f(None)),
            Some(entry) if entry.kind != Kind::Hash => Err(WrongType),
            Some(entry) => Ok(f(field_of(&entry, field))),
        })
    }

    /// Watches a key from now on; see [`crate::Tx::is_unchanged`].
    pub fn watch(&self, key: Key<'_>) -> Watch {
        // The watch begins first, so that a write between the two counts as one after it.
        let mut watch = Watch::begin(&self.watches, key);
        watch.was_there = self.look(key, |entry| entry.is_some());
        watch
    }

    /// The key's entry, unless it has expired.
    pub(crate) fn live<'l>(
        &self,
        lane: &'l Lane<'l>,
        place: &Place,
        key: Key<'_>,
    ) -> Option<Entry<'l>> {
        let found = self.find_live(lane, place, key)?;
        Some(Entry::found(lane, &found, key.bytes.len()).seen_at(|| self.expiry_ms()))
    }

    /// The key's place in the index, unless the key has expired.
    #[inline]
    pub(crate) fn find_live(&self, lane: &Lane<'_>, place: &Place, key: Key<'_>) -> Option<Found> {
        let found = find(lane, place, key)?;
        found.note_access(lane);
        let is_live = !found.expires() || expiring::is_live(lane, &found, self.expiry_ms());
        is_live.then_some(found)
    }
}
