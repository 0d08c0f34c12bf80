//! An operation's view of the store: reading and changing keys of the shards it holds.

use std::cell::Cell;

use perdura_slots::{Heat, Lane, LaneId, LaneSet, Op, Stop};

use crate::api::{Entry, Expiry, Key};
use crate::error::{StoreError, TxError};
use crate::record::{Header, RecordKind, is_of};
use crate::shard::{Detached, Shard, reap};
use crate::staging::{Halt, Session, Staged, Stash};
use crate::store::{Place, Store};
use crate::table::{self, Found};
use crate::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Parts of detached tables that each writing operation frees for those before it.
const REAPED_PER_OP: u64 = 64;

/// One operation in progress; see [`Store::run`].
pub struct Tx<'s> {
    pub(crate) store: &'s Store,
    pub(crate) op: Op<'s>,
    session: &'s mut Session,
    now_ms: Cell<Option<u64>>,
    changes: Vec<Change>,
    /// Records this attempt wrote; the first apart, so that one write needs no list.
    first_written: Option<Staged>,
    written: Vec<Staged>,
    /// Where the key of [`crate::Access::Key`] belongs: most operations ask for no other.
    hint: Option<(Key<'s>, Place)>,
    detached: Vec<(LaneId, Detached)>,
    /// Watched keys this attempt wrote, told to the watchers on commit.
    pub(crate) touched: Vec<(u8, Box<[u8]>)>,
    halt: Option<Halt>,
}

/// A change of volatile counts, applied on commit.
struct Change {
    lane: LaneId,
    db: u8,
    keys: i8,
    with_expiry: i8,
    /// The key, where an ordered index wants it.
    key: Option<Box<[u8]>>,
    /// The database's part of the shard was emptied.
    cleared: bool,
}

/// How an attempt ended.
pub(crate) enum End<R> {
    Done(R),
    Refused(StoreError),
    Halted(Halt),
}

impl<'s> Tx<'s> {
    pub(crate) fn begin(
        store: &'s Store,
        lanes: LaneSet<'_>,
        hint: Option<(Key<'s>, Place)>,
        credit: u64,
        session: &'s mut Session,
    ) -> Self {
        let mut op = store.heap.begin(lanes, credit);
        reap_a_little(op.lead_mut());
        let now_ms = Cell::new(session.now_ms);
        let (changes, written, detached) = (Vec::new(), Vec::new(), Vec::new());
        let (first_written, halt, touched) = (None, None, Vec::new());
        Self {
            store,
            op,
            session,
            now_ms,
            changes,
            first_written,
            written,
            hint,
            detached,
            touched,
            halt,
        }
    }

    pub(crate) fn end<R>(mut self, result: Result<R, TxError>) -> End<R> {
        self.session.now_ms = self.now_ms.get();
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
                self.store.watches.count_writes(&self.touched);
                match self.op.commit() {
                    Ok(()) => End::Done(value),
                    Err(stop) => End::Halted(Halt::Stop(stop)),
                }
            }
            Err(error) => {
                drop(self.op);
                self.session.staged.iter_mut().for_each(|staged| staged.used = false);
                End::Refused(error.into())
            }
        }
    }

    /// Volatile counts follow what is about to be committed.
    fn apply_changes(&mut self) {
        for change in self.changes.drain(..) {
            let Some(shard) = self.op.lane_mut(change.lane).user_mut::<Shard>() else { continue };
            let db = &mut shard.dbs[usize::from(change.db)];
            if change.cleared {
                *db = Default::default();
            }
            db.keys = db.keys.wrapping_add_signed(i64::from(change.keys));
            db.keys_with_expiry =
                db.keys_with_expiry.wrapping_add_signed(i64::from(change.with_expiry));
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
    }

    /// Milliseconds since 1970; the same in all attempts.
    pub fn now_ms(&self) -> u64 {
        let now_ms = self.now_ms.get().unwrap_or_else(|| self.store.clock.unix_ms());
        self.now_ms.set(Some(now_ms));
        now_ms
    }

    /// Ends the operation without any change.
    ///
    /// # Errors
    /// Always [`TxError::Abort`].
    pub fn abort<T>(&self, why: &'static str) -> Result<T, TxError> {
        Err(TxError::Abort(why))
    }

    /// The key's value; `None` if there is none, or it has expired.
    pub fn get(&self, key: Key<'_>) -> Option<Entry<'_>> {
        let place = self.place(key);
        let found = self.find_live(&place, key)?;
        Some(Entry::new(self.op.lane(place.lane), found.record()))
    }

    /// Sets the key to a string, whatever it held.
    ///
    /// # Errors
    /// Key or value too long; the attempt is over ([`TxError::Again`]).
    pub fn put(&mut self, key: Key<'_>, value: &[u8], expiry: Expiry) -> Result<(), TxError> {
        let place = self.place(key);
        self.put_record(&place, key, RecordKind::String, &[value], expiry, 0)
    }

    /// Removes the key. Returns whether it was there.
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
        let entry = self.entry(&place, &found);
        if entry.header.is_short {
            let Some(at_ms) = at_ms else { return Ok(true) };
            // It has no room for an expiry.
            let (kind, value) = (entry.header.kind, entry.value().to_vec());
            self.put_record(&place, key, kind, &[&value], Expiry::AtMs(at_ms), 0)?;
            return Ok(true);
        }
        self.touch(key);
        let word = at_ms.map_or(0, |at_ms| at_ms.max(1));
        self.store_word(place.lane, found.record() + Header::AT_EXPIRY, word)?;
        if found.expires() != at_ms.is_some() {
            self.store_word(place.lane, found.at, found.expiring(at_ms.is_some()))?;
            self.count(&place, 0, if at_ms.is_some() { 1 } else { -1 }, None);
        }
        Ok(true)
    }

    /// Where a key belongs.
    pub(crate) fn place(&self, key: Key<'_>) -> Place {
        match &self.hint {
            // The same bytes at the same address, not only equal ones: no need to compare them.
            Some((hinted, place))
                if std::ptr::eq(hinted.bytes, key.bytes) && hinted.db == key.db =>
            {
                *place
            }
            _ => self.store.place(key),
        }
    }

    /// Whether this is the one key the operation was begun for.
    fn is_hinted(&self, key: Key<'_>) -> bool {
        self.hint.is_some_and(|(hinted, _)| hinted == key)
    }

    /// Changes a key's entry: with the commit, if it is all that the operation changes.
    fn link(&mut self, lane: LaneId, key: Key<'_>, at: u64, entry: u64) -> Result<(), TxError> {
        let stored = match self.is_hinted(key) {
            true => self.op.store_last(lane, at, entry),
            false => self.op.store(lane, at, entry),
        };
        stored.map_err(|stop| self.stop(stop))
    }

    /// The key's entry, expired or not.
    pub(crate) fn find(&self, place: &Place, key: Key<'_>) -> Option<Found> {
        if let Some(last) = self.op.last_store()
            && self.is_hinted(key)
        {
            return (last.value != 0).then_some(Found { at: last.offset, entry: last.value });
        }
        find(self.op.lane(place.lane), place, key)
    }

    /// As `find`, where the record found is about to be replaced.
    fn find_to_replace(&self, place: &Place, key: Key<'_>) -> Option<Found> {
        if self.op.last_store().is_some() {
            return self.find(place, key);
        }
        let lane = self.op.lane(place.lane);
        table::find(lane, place.root, place.hash, |record, head| {
            lane.prefetch_entry(record);
            is_of(lane, record, head, key.db, key.bytes)
        })
    }

    pub(crate) fn find_live(&self, place: &Place, key: Key<'_>) -> Option<Found> {
        self.find(place, key).filter(|found| self.is_live(place, found))
    }

    pub(crate) fn is_live(&self, place: &Place, found: &Found) -> bool {
        let at = found.record() + Header::AT_EXPIRY;
        !found.expires() || self.op.lane(place.lane).load(at) > self.now_ms()
    }

    pub(crate) fn entry(&self, place: &Place, found: &Found) -> Entry<'_> {
        Entry::new(self.op.lane(place.lane), found.record())
    }

    /// Writes a record and makes the key's entry point to it. `slack_bytes`: room behind the value.
    pub(crate) fn put_record(
        &mut self,
        place: &Place,
        key: Key<'_>,
        kind: RecordKind,
        value: &[&[u8]],
        expiry: Expiry,
        slack_bytes: u64,
    ) -> Result<(), TxError> {
        self.touch(key);
        // Bucket, old record, new record and the ledger's entries of both lie in five places, none
        // in a cache.
        let value_len = value.iter().map(|part| part.len() as u64).sum::<u64>();
        // Whether it will expire is not known yet where that is kept; most do not.
        let likely_expiry = if let Expiry::AtMs(at_ms) = expiry { at_ms } else { 0 };
        let likely = Header::of(key.bytes, key.db, kind, value_len, likely_expiry);
        self.op.lane(place.lane).prefetch_alloc(likely.len_bytes() + slack_bytes);
        let found = self.find_to_replace(place, key);
        let expire_at_ms = match (expiry, &found) {
            (Expiry::None, _) | (Expiry::Keep, None) => 0,
            (Expiry::AtMs(at_ms), _) => at_ms.max(1),
            (Expiry::Keep, Some(found)) if !self.is_live(place, found) => 0,
            (Expiry::Keep, Some(found)) => self.entry(place, found).header.expire_at_ms,
        };
        let header = header_of(key, kind, value, expire_at_ms)?;
        let heat = found
            .map_or(Heat::COLD, |found| self.op.lane(place.lane).heat_of_successor(found.record()));
        let record = self.write(place.lane, header, key.bytes, value, slack_bytes, heat)?;
        let expires = header.expires();
        match found {
            Some(found) => {
                self.link(place.lane, key, found.at, found.replaced(record, &header))?;
                self.free_record(place.lane, found.record());
                let change = i8::from(expires) - i8::from(found.expires());
                if change != 0 {
                    self.count(place, 0, change, None);
                }
            }
            None => {
                let entry = table::entry(place.hash, record, &header);
                let inserted =
                    table::insert(&mut self.op, place.lane, place.root, place.hash, entry);
                inserted.map_err(|stop| self.stop(stop))?;
                self.count(place, 1, i8::from(expires), Some(key.bytes));
            }
        }
        Ok(())
    }

    /// Writes a record that nothing reaches yet, or finds it staged.
    pub(crate) fn write(
        &mut self,
        lane: LaneId,
        header: Header,
        key: &[u8],
        value: &[&[u8]],
        slack_bytes: u64,
        heat: Heat,
    ) -> Result<u64, TxError> {
        let capacity = header.len_bytes() + slack_bytes;
        if !self.session.staged.is_empty()
            && let Some(staged) = self.take_staged(lane, capacity, &header, key, value)?
        {
            return Ok(staged);
        }
        if header.len_bytes() > self.store.stage_above_bytes(self.session) {
            let mut bytes = Vec::with_capacity(header.len_bytes() as usize);
            bytes.extend_from_slice(&header.encode()[..header.head_bytes() as usize]);
            bytes.extend_from_slice(key);
            value.iter().for_each(|part| bytes.extend_from_slice(part));
            self.halt.get_or_insert(Halt::Stage(Stash { lane, capacity, bytes }));
            return Err(TxError::Again);
        }
        let record = self.op.alloc(lane, capacity).map_err(|stop| self.stop(stop))?;
        let filled = self.op.fill(lane, record, header.len_bytes() as usize, Some(heat));
        match filled {
            Ok(bytes) => fill(bytes, &header, key, value),
            Err(stop) => return Err(self.stop(stop)),
        }
        let written = Staged { lane, offset: record, capacity, used: false };
        match self.first_written {
            None => self.first_written = Some(written),
            Some(_) => self.written.push(written),
        }
        Ok(record)
    }

    fn take_staged(
        &mut self,
        lane: LaneId,
        capacity: u64,
        header: &Header,
        key: &[u8],
        value: &[&[u8]],
    ) -> Result<Option<u64>, TxError> {
        let mut parts = Vec::with_capacity(1 + value.len());
        parts.push(key);
        parts.extend_from_slice(value);
        let found = self.session.take(self.op.lane(lane), capacity, header, &parts);
        let Some(record) = found else { return Ok(None) };
        let at = record + Header::AT_EXPIRY;
        if !header.is_short && self.op.lane(lane).load(at) != header.expire_at_ms {
            match self.op.fill(lane, at, 8, None) {
                Ok(word) => word.copy_from_slice(&header.expire_at_ms.to_le_bytes()),
                Err(stop) => return Err(self.stop(stop)),
            }
        }
        Ok(Some(record))
    }

    /// Removes an entry and all that hangs from it.
    pub(crate) fn remove(
        &mut self,
        place: &Place,
        key: Key<'_>,
        found: Found,
    ) -> Result<(), TxError> {
        self.link(place.lane, key, found.at, 0)?;
        self.free_record(place.lane, found.record());
        self.count(place, -1, -i8::from(found.expires()), Some(key.bytes));
        Ok(())
    }

    /// Frees a record, on commit; its table, if it has one, is detached and freed piece by piece.
    pub(crate) fn free_record(&mut self, lane: LaneId, record: u64) {
        let entry = Entry::new(self.op.lane(lane), record);
        if let Some(table) = Detached::of(&entry) {
            self.detached.push((lane, table));
        }
        self.op.free(record);
    }

    /// Removes all keys of a database, in a few stores; to be called with
    /// [`crate::Access::Everything`].
    ///
    /// # Errors
    /// The attempt is over ([`TxError::Again`]).
    pub fn clear(&mut self, db: u8) -> Result<(), TxError> {
        for lane in self.store.heap.lanes() {
            let root = self.store.root_of(lane, db);
            if table::buckets(self.op.lane(lane), root) == 0 {
                continue;
            }
            self.detached.push((lane, Detached::new(self.op.lane(lane), root, false)));
            self.store_word(lane, root, 0)?;
            let (keys, with_expiry, key, cleared) = (0, 0, None, true);
            self.changes.push(Change { lane, db, keys, with_expiry, key, cleared });
        }
        Ok(())
    }

    pub(crate) fn store_word(&mut self, lane: LaneId, at: u64, word: u64) -> Result<(), TxError> {
        self.op.store(lane, at, word).map_err(|stop| self.stop(stop))
    }

    /// Notes why the attempt is over.
    pub(crate) fn stop(&mut self, stop: Stop) -> TxError {
        self.halt(Halt::Stop(stop))
    }

    pub(crate) fn halt(&mut self, halt: Halt) -> TxError {
        self.halt.get_or_insert(halt);
        TxError::Again
    }

    fn count(&mut self, place: &Place, keys: i8, with_expiry: i8, key: Option<&[u8]>) {
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
    }
}

/// Frees a little of what operations before this one detached.
fn reap_a_little(lane: &mut Lane<'_>) {
    if lane.user::<Shard>().is_some_and(|shard| !shard.detached.is_empty()) {
        reap(lane, REAPED_PER_OP);
    }
}

/// The key's entry in its shard, expired or not.
pub(crate) fn find(lane: &Lane<'_>, place: &Place, key: Key<'_>) -> Option<Found> {
    table::find(lane, place.root, place.hash, |record, head| {
        is_of(lane, record, head, key.db, key.bytes)
    })
}

fn header_of(
    key: Key<'_>,
    kind: RecordKind,
    value: &[&[u8]],
    expire_at_ms: u64,
) -> Result<Header, TxError> {
    check_key(key.bytes)?;
    let value_len = value.iter().map(|part| part.len() as u64).sum::<u64>();
    check_value(value_len)?;
    Ok(Header::of(key.bytes, key.db, kind, value_len, expire_at_ms))
}

/// Refuses a key that is too long.
pub(crate) fn check_key(key: &[u8]) -> Result<(), TxError> {
    if key.len() <= KEY_BYTES_MAX {
        return Ok(());
    }
    let (len_bytes, max_bytes) = (key.len() as u64, KEY_BYTES_MAX as u64);
    Err(TxError::Refused(StoreError::KeyTooLong { len_bytes, max_bytes }))
}

/// Refuses a value that is too long.
pub(crate) fn check_value(len_bytes: u64) -> Result<(), TxError> {
    let max_bytes = VALUE_BYTES_MAX as u64;
    if len_bytes <= max_bytes {
        return Ok(());
    }
    Err(TxError::Refused(StoreError::ValueTooLarge { len_bytes, max_bytes }))
}

fn fill(bytes: &mut [u8], header: &Header, key: &[u8], value: &[&[u8]]) {
    let (head, mut rest) = bytes.split_at_mut(header.head_bytes() as usize);
    head.copy_from_slice(&header.encode()[..head.len()]);
    for part in std::iter::once(&key).chain(value) {
        let (here, behind) = rest.split_at_mut(part.len());
        here.copy_from_slice(part);
        rest = behind;
    }
}
