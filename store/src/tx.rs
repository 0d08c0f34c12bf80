//! One attempt of an operation: reading and changing keys of the shards that the operation holds.

mod fields;
mod hash;
mod hash_expiry;
mod list;
mod records;
mod set;
mod sorted;
mod stream;
mod strings;

use std::cell::{Cell, RefCell};

use perdura_region::Planted;
use perdura_slots::{LaneId, LaneSet, Op, Stop};

use crate::api::{Expiry, KEY_BYTES_MAX, Key, VALUE_BYTES_MAX};
use crate::building::HIDDEN_DATABASE;
use crate::entry::Entry;
use crate::error::{StoreError, TxError};
use crate::events::Event;
use crate::expiring;
use crate::far::{FarAddress, FarValue};
use crate::key_counts::KeyCount;
use crate::record::{Header, RecordKind, is_of};
use crate::shard::{Detached, Shard};
use crate::staging::{Halt, Session, Staged};
use crate::store::{Place, Store, find};
use crate::table::{self, Found};
use crate::watches::{Changed, Watch};

pub(crate) use hash_expiry::FieldWithExpiry;
pub use stream::{ChunkLimits, Delivery, StreamPart, StreamTrim, TrimTo};

/// One operation in progress; see [`Store::run`].
pub struct Tx<'s> {
    pub(crate) store: &'s Store,
    pub(crate) op: Op<'s>,
    pub(crate) session: &'s mut Session,
    /// The time that the operation has read, in milliseconds since 1970.
    now_ms: Cell<Option<u64>>,
    changes: Vec<Change>,
    /// The first record that this attempt wrote, kept apart so that one write needs no list.
    first_written: Option<Staged>,
    /// The other records that this attempt wrote.
    written: Vec<Staged>,
    /// The key of [`crate::Access::Key`] and its place: most operations ask for no other key.
    hint: Option<(Key<'s>, Place)>,
    /// The entry of that key as it was found, and how many changes the operation had begun then.
    found: Cell<Option<(u32, Option<Found>)>>,
    /// Tables that this attempt cuts off, each with its shard's lane.
    detached: Vec<(LaneId, Detached)>,
    /// Keys that this attempt wrote or removed, if somebody wants to know on commit.
    touched: Vec<Changed>,
    /// Whether this attempt has emptied a database, and somebody wants to know.
    has_emptied: bool,
    /// Whether this attempt has written or removed a key.
    has_changed: bool,
    /// Events of this attempt, which are told on commit.
    pub(crate) events: Vec<Event>,
    /// Why the attempt is over.
    pub(crate) halt: Option<Halt>,
    /// Values that the attempt needs and that are not in memory: it will be run again with them.
    wanted: RefCell<Vec<FarValue>>,
    /// Addresses that no key has any more once the attempt commits, each with its shard's lane.
    freed_far: Vec<(LaneId, FarAddress)>,
    /// Whether this attempt has made room in a chunk of a list, whose old bytes count until it
    /// commits.
    has_freed_room: bool,
}

/// A change of a shard's volatile state, made on commit.
struct Change {
    lane: LaneId,
    db: u8,
    /// Keys added or, below zero, removed.
    keys: i8,
    /// Keys with an expiry added or, below zero, removed.
    with_expiry: i8,
    /// The key that was added or removed, if the shard has an ordered index.
    key: Option<Box<[u8]>>,
    /// Whether the database's part of the shard was emptied before.
    cleared: bool,
}

/// How an attempt ended.
pub(crate) enum End<R> {
    /// The attempt has committed.
    Done(R),
    /// The operation is refused.
    Refused(StoreError),
    /// The operation runs again once the halt is relieved.
    Halted(Halt),
}

impl<'s> Tx<'s> {
    /// Locks the lanes and begins an attempt.
    #[inline]
    pub(crate) fn begin(
        store: &'s Store,
        lanes: LaneSet<'_>,
        hint: Option<(Key<'s>, Place)>,
        credit: u64,
        session: &'s mut Session,
    ) -> Self {
        let mut op = store.heap.begin(lanes, credit);
        if session.uses_reserve {
            op.use_reserve();
        }
        let now_ms = Cell::new(session.now_ms);
        let (changes, written, detached) = (Vec::new(), Vec::new(), Vec::new());
        let (first_written, halt, touched) = (None, None, Vec::new());
        let (wanted, freed_far) = (RefCell::default(), Vec::new());
        Self {
            store,
            op,
            session,
            now_ms,
            changes,
            first_written,
            written,
            hint,
            found: Cell::new(None),
            detached,
            touched,
            has_emptied: false,
            has_changed: false,
            events: Vec::new(),
            halt,
            wanted,
            freed_far,
            has_freed_room: false,
        }
    }

    /// Commits the attempt, or rolls it back if `result` or a halt asks for that.
    /// A roll-back happens when the transaction is dropped, which also releases the lanes.
    pub(crate) fn end<R>(&mut self, result: Result<R, TxError>) -> End<R> {
        self.session.now_ms = self.now_ms.get();
        if !self.wanted.get_mut().is_empty() && !matches!(self.halt, Some(Halt::Stop(Stop::Killed)))
        {
            // What the attempt has done since may rest on a value's absence, and is rolled back.
            let wanted = self.wanted.take();
            self.session.disuse();
            return End::Halted(Halt::Fetch(wanted));
        }
        if let Some(halt) = self.halt.take() {
            if !matches!(halt, Halt::Stop(Stop::OutOfMemory { .. } | Stop::Killed)) {
                self.written.extend(self.first_written.take());
                self.op.disown(self.written.iter().map(|staged| staged.offset));
                self.session.keep(&mut self.written);
            }
            return End::Halted(halt);
        }
        match result {
            Ok(value) => {
                self.apply_changes();
                self.store.watches.count_writes(&self.touched, self.has_emptied);
                if !self.events.is_empty() {
                    self.store.audiences.tell(&self.events);
                }
                match self.op.conclude() {
                    Ok(()) => End::Done(value),
                    Err(stop) => End::Halted(Halt::Stop(stop)),
                }
            }
            Err(error) => {
                self.session.disuse();
                End::Refused(error.into())
            }
        }
    }

    /// Changes volatile state as the attempt that is about to commit does durable state.
    fn apply_changes(&mut self) {
        if self.changes.is_empty() && self.detached.is_empty() && self.freed_far.is_empty() {
            return;
        }
        for change in self.changes.drain(..) {
            let Some(shard) = self.op.lane_mut(change.lane).user_mut::<Shard>() else { continue };
            let counts = self.store.key_counts.of(change.lane);
            let db = &mut shard.dbs[usize::from(change.db)];
            db.is_saved = false;
            if change.cleared {
                db.ordered = None;
                counts.set(change.db, KeyCount::default());
            }
            counts.add(change.db, change.keys, change.with_expiry);
            if let (Some(ordered), Some(key)) = (&mut db.ordered, change.key) {
                if change.keys > 0 {
                    ordered.insert(key)
                } else {
                    ordered.remove(&key)
                };
            }
        }
        for (lane, detached) in self.detached.drain(..) {
            if let Some(shard) = self.op.lane_mut(lane).user_mut::<Shard>() {
                shard.detached.push(detached);
            }
        }
        if let Some(far) = &self.store.far {
            for (lane, at) in self.freed_far.drain(..) {
                far.storage.freed(at, self.op.lane(lane).is_searched());
            }
        }
    }

    /// The time up to which keys have expired, in milliseconds since 1970, which is the same in all
    /// attempts of the operation: now, or 0 while expiry is held up ([`Store::hold_expiry`]).
    pub fn now_ms(&self) -> u64 {
        let now_ms = self.now_ms.get().unwrap_or_else(|| self.store.expiry_ms());
        self.now_ms.set(Some(now_ms));
        now_ms
    }

    /// Lets the operation have memory of the reserve, once there is no other: for one that is to
    /// succeed though memory is used up, because it frees memory or needs little.
    pub fn allow_reserve(&mut self) {
        self.session.may_use_reserve = true;
    }

    /// Bytes of the store's memory.
    pub fn memory_bytes(&self) -> u64 {
        self.store.region().len_bytes()
    }

    /// Ends the operation without any change.
    ///
    /// # Errors
    /// Always [`TxError::Abort`].
    pub fn abort<T>(&self, why: &'static str) -> Result<T, TxError> {
        Err(TxError::Abort(why))
    }

    /// The key's value; `None` if there is no such key or it has expired. `None`, too, if the value
    /// is not in memory: the operation is run again then, and finds it.
    pub fn get(&self, key: Key<'_>) -> Option<Entry<'_>> {
        let place = self.place(key);
        let found = self.find_live(&place, key)?;
        let lane = self.op.lane(place.lane);
        found.note_access(lane);
        self.store.note_use(&place);
        self.entry(&place, &found)
    }

    /// Whether the operation holds the key's shard, so that it may use the key.
    #[inline]
    pub fn holds(&self, key: Key<'_>) -> bool {
        self.op.holds(self.place(key).lane)
    }

    /// Whether there is such a key, and it has not expired.
    #[inline]
    pub fn has(&self, key: Key<'_>) -> bool {
        self.look(key).is_some()
    }

    /// The key's entry as [`Tx::get`] returns it, for its kind and its expiry only: the value may
    /// not be in memory.
    pub fn look(&self, key: Key<'_>) -> Option<Entry<'_>> {
        let place = self.place(key);
        let found = self.find_live(&place, key)?;
        found.note_access(self.op.lane(place.lane));
        Some(self.raw(&place, &found))
    }

    /// Sets the key to a string, whatever the key held.
    ///
    /// # Errors
    /// Key or value are too long; the attempt is over ([`TxError::Again`]).
    pub fn put(&mut self, key: Key<'_>, value: &[u8], expiry: Expiry) -> Result<(), TxError> {
        let place = self.place(key);
        self.put_record(&place, key, RecordKind::String, &[value], expiry, 0)
    }

    /// Removes the key. Returns whether the key was there.
    ///
    /// # Errors
    /// The attempt is over ([`TxError::Again`]).
    pub fn delete(&mut self, key: Key<'_>) -> Result<bool, TxError> {
        let place = self.place(key);
        let Some(found) = self.find(&place, key) else { return Ok(false) };
        let was_live = self.is_live(&place, &found);
        self.remove(&place, key, found)?;
        Ok(was_live)
    }

    /// Sets or removes the time at which the key goes away. Returns whether there is such a key.
    ///
    /// # Errors
    /// The attempt is over ([`TxError::Again`]).
    pub fn set_expiry(&mut self, key: Key<'_>, at_ms: Option<u64>) -> Result<bool, TxError> {
        let place = self.place(key);
        let Some(found) = self.find_live(&place, key) else { return Ok(false) };
        let entry = self.raw(&place, &found);
        let is_expiring_hash = entry.has_expiring_fields();
        if entry.header.is_short {
            let Some(at_ms) = at_ms else { return Ok(true) };
            // A short header has no room for an expiry, so the record is written anew.
            let (kind, value) = (entry.header.kind, entry.record_value().to_vec());
            self.put_record(&place, key, kind, &[&value], Expiry::AtMs(at_ms), 0)?;
            return Ok(true);
        }
        self.touch(key);
        let word = at_ms.map_or(0, |at_ms| at_ms.max(1));
        self.store_word(place.lane, found.record() + Header::AT_EXPIRY, word)?;
        // A hash with expiring fields has the mark for these, too.
        let has_mark = is_expiring_hash || at_ms.is_some();
        if found.expires() != has_mark {
            self.store_word(place.lane, found.at, found.expiring(at_ms.is_some()))?;
            self.count(&place, 0, if at_ms.is_some() { 1 } else { -1 }, None)?;
        }
        Ok(true)
    }

    /// The place of a key in the index.
    pub(crate) fn place(&self, key: Key<'_>) -> Place {
        match &self.hint {
            // Bytes at the same address are equal, and need not be compared.
            Some((hinted, place))
                if std::ptr::eq(hinted.bytes, key.bytes) && hinted.db == key.db =>
            {
                *place
            }
            _ => self.store.place(key),
        }
    }

    /// Whether this is the one key that the operation was begun for.
    #[inline]
    fn is_hinted(&self, key: Key<'_>) -> bool {
        // Bytes at the same address are equal, and need not be compared.
        self.hint.is_some_and(|(hinted, _)| {
            hinted.db == key.db
                && (std::ptr::eq(hinted.bytes, key.bytes) || hinted.bytes == key.bytes)
        })
    }

    /// Changes a key's entry, in the same store as the commit if the operation changes nothing
    /// else.
    fn link(&mut self, lane: LaneId, key: Key<'_>, at: u64, entry: u64) -> Result<(), TxError> {
        let stored = match self.is_hinted(key) {
            true => self.op.store_last(lane, at, entry),
            false => self.op.store(lane, at, entry),
        };
        stored.map_err(|stop| self.stop(stop))
    }

    /// The key's entry, expired or not.
    pub(crate) fn find(&self, place: &Place, key: Key<'_>) -> Option<Found> {
        if !self.is_hinted(key) {
            return find(self.op.lane(place.lane), place, key);
        }
        if let Some(last) = self.op.last_store() {
            return (last.value != 0).then_some(Found { at: last.offset, entry: last.value });
        }
        if let Some(found) = self.found_before() {
            return found;
        }
        let found = find(self.op.lane(place.lane), place, key);
        self.found.set(Some((self.op.changes(), found)));
        found
    }

    /// The entry of the key that the operation was begun for, if it was found before and nothing
    /// was changed since.
    fn found_before(&self) -> Option<Option<Found>> {
        self.found.get().filter(|(changes, _)| *changes == self.op.changes()).map(|(_, at)| at)
    }

    /// Finds the key's entry as [`Tx::find`] does, when its record is about to be replaced by one
    /// of `bytes`.
    fn find_to_replace(&self, place: &Place, key: Key<'_>, bytes: u64) -> Option<Found> {
        if self.op.last_store().is_some() {
            return self.find(place, key);
        }
        let lane = self.op.lane(place.lane);
        if self.is_hinted(key)
            && let Some(found) = self.found_before()
        {
            found.iter().for_each(|found| lane.prefetch_replaced(found.record(), bytes));
            return found;
        }
        table::find(lane, place.root, place.hash, |record, head| {
            lane.prefetch_replaced(record, bytes);
            is_of(lane, record, head, key.db, key.bytes)
        })
    }

    /// The key's entry, unless the key has expired.
    fn find_live(&self, place: &Place, key: Key<'_>) -> Option<Found> {
        self.find(place, key).filter(|found| self.is_live(place, found))
    }

    /// Whether the key of an entry has not expired.
    pub(crate) fn is_live(&self, place: &Place, found: &Found) -> bool {
        !found.expires() || expiring::is_live(self.op.lane(place.lane), found, self.now_ms())
    }

    /// The record that an entry leads to, with its value if that is in memory.
    #[inline(always)]
    pub(crate) fn raw(&self, place: &Place, found: &Found) -> Entry<'_> {
        Entry::new(self.op.lane(place.lane), found.record()).seen_at(|| self.now_ms())
    }

    /// The value that an entry leads to; `None` if the value is far and not read yet. The attempt
    /// is over then, whatever the operation makes of that.
    #[inline(always)]
    fn entry(&self, place: &Place, found: &Found) -> Option<Entry<'_>> {
        let entry = self.raw(place, found);
        let Some(at) = entry.far() else { return Some(entry) };
        self.fetched(entry, at)
    }

    /// The entry with its value, if an attempt before has read it from its address.
    #[cold]
    fn fetched<'t>(&'t self, entry: Entry<'t>, at: FarAddress) -> Option<Entry<'t>> {
        if let Some(value) = self.session.fetched.as_ref().and_then(|all| all.get(&at)) {
            return Some(entry.with_value(&at, value));
        }
        let wanted = FarValue { db: entry.header.db, key: entry.key().into(), at };
        self.wanted.borrow_mut().push(wanted);
        None
    }

    /// Calls `f` with the name of every key of a database, as this operation has left them. The
    /// operation must have been begun with [`crate::Access::Everything`]: then no key comes or goes
    /// before it ends.
    pub fn each_name(&self, db: u8, f: &mut dyn FnMut(&[u8])) {
        for id in self.store.heap.lanes() {
            let (lane, root) = (self.op.lane(id), self.store.root_of(id, db));
            for bucket in 0..table::buckets(lane, root) {
                table::for_each(lane, root, bucket, |found| {
                    f(Entry::new(lane, found.record()).key());
                });
            }
        }
    }

    /// Removes all keys of a database in a few stores. The operation must have been begun with
    /// [`crate::Access::Everything`].
    ///
    /// # Errors
    /// The attempt is over ([`TxError::Again`]).
    pub fn clear(&mut self, db: u8) -> Result<(), TxError> {
        self.has_emptied |= self.store.watches.is_listened();
        for lane in self.store.heap.lanes() {
            let root = self.store.root_of(lane, db);
            if table::buckets(self.op.lane(lane), root) == 0 {
                continue;
            }
            self.settle_all(lane, db);
            self.detached.push((lane, Detached::new(self.op.lane(lane), root, false)));
            self.store_word(lane, root, 0)?;
            self.clear_saved_count(lane, db)?;
            let (keys, with_expiry, key, cleared) = (0, 0, None, true);
            self.changes.push(Change { lane, db, keys, with_expiry, key, cleared });
        }
        Ok(())
    }

    /// Notes that the key is about to be written, for operations that watch the key. Every call
    /// that changes the key notes it; this is for commands that leave it as it was and count as
    /// writes.
    pub fn touch(&mut self, key: Key<'_>) {
        self.settle(key);
        self.note_change(key, false);
    }

    fn note_change(&mut self, key: Key<'_>, is_removal: bool) {
        self.has_changed = true;
        if self.store.watches.is_awaited(key, is_removal) {
            self.touched.push(Changed { db: key.db, key: key.bytes.into(), is_removal });
        }
    }

    /// Whether this attempt has written or removed a key, as those see it who watch the key.
    pub fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Whether the key was neither written nor removed, and did not expire, from when it was
    /// watched to the beginning of this operation.
    pub fn is_unchanged(&self, watch: &Watch) -> bool {
        watch.is_unwritten() && self.has(watch.key()) == watch.was_there
    }

    fn store_word(&mut self, lane: LaneId, at: u64, word: u64) -> Result<(), TxError> {
        self.op.store(lane, at, word).map_err(|stop| self.stop(stop))
    }

    /// Notes why the attempt is over.
    pub(crate) fn stop(&mut self, stop: Stop) -> TxError {
        self.halt.get_or_insert(Halt::Stop(stop));
        TxError::Again
    }

    /// Notes a change of the counts of the key's shard, and of its ordered index.
    fn count(
        &mut self,
        place: &Place,
        keys: i8,
        with_expiry: i8,
        key: Option<&[u8]>,
    ) -> Result<(), TxError> {
        if place.db == HIDDEN_DATABASE {
            return Ok(());
        }
        self.clear_saved_count(place.lane, place.db)?;
        let shard = self.op.lane(place.lane).user::<Shard>();
        let is_ordered =
            shard.is_some_and(|shard| shard.dbs[usize::from(place.db)].ordered.is_some());
        self.changes.push(Change {
            lane: place.lane,
            db: place.db,
            keys,
            with_expiry,
            key: key.filter(|_| is_ordered).map(Box::from),
            cleared: false,
        });
        Ok(())
    }

    /// Clears the number of keys that a root has, if it was saved, because the number changes.
    fn clear_saved_count(&mut self, lane: LaneId, db: u8) -> Result<(), TxError> {
        let shard = self.op.lane(lane).user::<Shard>();
        let is_saved = shard.is_some_and(|shard| shard.dbs[usize::from(db)].is_saved);
        if !is_saved || self.store.region().planted().is(Planted::KeepSavedCount) {
            return Ok(());
        }
        let root = self.store.root_of(lane, db);
        let cleared = table::store_len(&mut self.op, lane, root, 0);
        cleared.map_err(|stop| self.stop(stop))
    }
}

/// Refuses a key that is too long.
fn check_key(key: &[u8]) -> Result<(), TxError> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    let (len_bytes, max_bytes) = (key.len() as u64, KEY_BYTES_MAX as u64);
    Err(TxError::Refused(StoreError::KeyTooLong { len_bytes, max_bytes }))
}

/// Refuses a value that is too long.
fn check_value(len_bytes: u64) -> Result<(), TxError> {
    let max_bytes = VALUE_BYTES_MAX as u64;
    if len_bytes <= max_bytes {
        return Ok(());
    }
    Err(TxError::Refused(StoreError::ValueTooLarge { len_bytes, max_bytes }))
}
