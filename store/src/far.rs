//! Far values: values that lie on a device and not in memory.
//!
//! The record of such a key has kind [`RecordKind::Far`] and, in the place of the value, the
//! value's [`FarAddress`]. Name, expiry and place in the index stay in memory, so that only reading
//! the value needs the device. Strings, packed hashes, small sets and packed sorted sets can be
//! far; values with a table of their own stay in memory.
//!
//! Who keeps the values implements [`FarStorage`]. A value is moved in two steps: first it is made
//! durable there, then [`Store::make_far`] replaces the record, if it still has those bytes. So an
//! address in memory always leads to bytes that a loss of power leaves alone. In the other
//! direction a write simply replaces the record.
//!
//! An operation that needs a far value ends its attempt, as one does that waits for budget. The
//! value is read while no shard is held, and the next attempt finds it with the operation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use perdura_region::Planted;
use perdura_slots::{Lane, LaneId};

use crate::api::{Access, DATABASES, Expiry, Key, VALUE_BYTES_MAX};
use crate::entry::Entry;
use crate::error::{Damaged, OpenError, StoreError, TxError, Unreadable};
use crate::record::{RecordKind, hash_key};
use crate::run::Patience;
use crate::store::{Place, Store, find};
use crate::table;
use crate::tx::Tx;
use crate::uses::Uses;

/// Fewest bytes of a value that is worth moving: the address itself takes 24.
pub(crate) const FAR_VALUE_BYTES_MIN: u64 = 64;
/// What is damaged if a value is far and nobody keeps values.
pub(crate) const FAR_WITHOUT_DEVICES: &str = "far value in a store without devices";
/// Values that one operation may find moved while they are read, until it is given up.
const MOVES_MAX: usize = 4096;

/// Where a far value lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FarAddress {
    /// Number of the device.
    pub device: u16,
    /// Offset of the value's record on the device, bytes.
    pub offset: u64,
    /// Bytes of that record.
    pub record_bytes: u32,
    /// Bytes of the value.
    pub value_bytes: u32,
    /// Checksum of that record.
    pub checksum: u32,
    /// What the value is; see [`NearValue::kind`].
    pub kind: u8,
}

impl FarAddress {
    /// Bytes of an address in memory.
    pub(crate) const BYTES: usize = 24;

    pub(crate) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.record_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.value_bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[20..22].copy_from_slice(&self.device.to_le_bytes());
        bytes[22] = self.kind;
        bytes
    }

    /// The address in these bytes; `None` if no store writes such bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        let kind = RecordKind::of_far_value(bytes[22])?;
        (bytes[23] == 0).then_some(Self {
            device: u16::from_le_bytes([bytes[20], bytes[21]]),
            offset: u64::from(word(0)) | u64::from(word(4)) << 32,
            record_bytes: word(8),
            value_bytes: word(12),
            checksum: word(16),
            kind: kind as u8,
        })
    }

    /// The kind of record that the value had in memory.
    pub(crate) fn record_kind(&self) -> RecordKind {
        match RecordKind::of_far_value(self.kind) {
            Some(kind) => kind,
            None => unreachable!("an address is decoded with its kind, or made from a record's"),
        }
    }
}

/// Why a far value cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the value lies on device {device} ({place}), which cannot give it: {why}")]
pub struct FarError {
    /// Number of the device.
    pub device: u16,
    /// The device's directory, or what else tells people which one it is.
    pub place: String,
    /// What went wrong.
    pub why: String,
}

/// A far value that an operation needs.
#[derive(Debug, Clone)]
pub struct FarValue {
    /// Number of the key's database.
    pub db: u8,
    /// The key's name.
    pub key: Box<[u8]>,
    /// Where the value lies.
    pub at: FarAddress,
}

/// Who keeps far values. Nothing here is called while a shard is held, but for [`Self::freed`] and
/// [`Self::found`], which must not call the store.
pub trait FarStorage: Send + Sync {
    /// Reads values, those of several devices at the same time. A value is returned only if it is
    /// the one that was written for this key.
    fn read(&self, wanted: &[FarValue]) -> Vec<Result<Box<[u8]>, FarError>>;
    /// No key of the store has this address any more. `was_found` says that it was made, or
    /// [`Self::found`], since the opening: before memory is searched, addresses go unseen.
    fn freed(&self, at: FarAddress, was_found: bool);
    /// A key has this address. Called once for each such key while the store's memory is searched
    /// after an opening.
    fn found(&self, at: FarAddress);
    /// Waits until values were moved out of memory, if that is possible. Returns whether it is
    /// worth trying again to allocate.
    fn make_room(&self) -> bool;
    /// Whether a value that was just read at this address is better kept in memory: `uses` is how
    /// often its key was used lately.
    fn keeps_near(&self, uses: u8, at: FarAddress) -> bool;
}

/// A value in memory that can be made far.
#[derive(Debug, Clone, Copy)]
pub struct NearValue<'a> {
    /// The key.
    pub key: Key<'a>,
    /// What the value is: a number to be given back in [`FarAddress::kind`].
    pub kind: u8,
    /// The value's bytes.
    pub value: &'a [u8],
    /// How often the key was used lately, 0 to 255.
    pub uses: u8,
    /// Bytes of memory that the record takes.
    pub memory_bytes: u64,
}

/// Where a walk over the values in memory goes on. The first walk begins with the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FarCursor {
    lane: u16,
    db: u8,
    bucket: u64,
}

/// What a store has that keeps values elsewhere, too.
pub(crate) struct Far {
    pub storage: Arc<dyn FarStorage>,
    pub uses: Uses,
    /// Values that were read before the operations that need them.
    arrived: Mutex<BTreeMap<FarAddress, Box<[u8]>>>,
    /// Values that were read, and of these those that were kept in memory.
    reads: AtomicU64,
    kept: AtomicU64,
}

/// Counts of reads of far values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FarStats {
    /// Values read from a device since the store was opened.
    pub reads: u64,
    /// Values of these that went back to memory.
    pub kept: u64,
}

impl Far {
    pub fn new(storage: Arc<dyn FarStorage>, region_bytes: u64) -> Result<Self, OpenError> {
        let arrived = Mutex::default();
        let uses = Uses::new(region_bytes)?;
        Ok(Self { storage, uses, arrived, reads: AtomicU64::new(0), kept: AtomicU64::new(0) })
    }

    /// Reads values, or takes those that were read ahead.
    fn read(&self, wanted: &[FarValue]) -> Vec<Result<Box<[u8]>, FarError>> {
        let mut values: Vec<_> = {
            let mut arrived = self.arrived.lock();
            wanted.iter().map(|value| arrived.remove(&value.at).map(Ok)).collect()
        };
        let missing = wanted.iter().zip(&values).filter(|(_, value)| value.is_none());
        let missing: Vec<_> = missing.map(|(value, _)| value.clone()).collect();
        if !missing.is_empty() {
            self.reads.fetch_add(missing.len() as u64, Relaxed);
            let mut read = self.storage.read(&missing).into_iter();
            values
                .iter_mut()
                .filter(|value| value.is_none())
                .for_each(|value| *value = read.next());
        }
        values.into_iter().flatten().collect()
    }
}

/// The far values that an operation has read for its next attempt.
#[derive(Default)]
pub(crate) struct Fetched {
    values: BTreeMap<FarAddress, Box<[u8]>>,
    bytes: u64,
    /// Reads that failed once: the values may have been moved meanwhile.
    failed: Vec<FarAddress>,
}

impl Fetched {
    pub fn get(&self, at: &FarAddress) -> Option<&[u8]> {
        self.values.get(at).map(|value| &**value)
    }
}

impl Store {
    /// Who keeps the values; unwinds with [`Damaged`] if nobody does, for then no store has written
    /// the address.
    fn far_or_damaged(&self, at: &FarAddress) -> &Far {
        match &self.far {
            Some(far) => far,
            None => Damaged { what: FAR_WITHOUT_DEVICES, offset: at.offset, value: 0 }.unwind(),
        }
    }

    /// Reads the far values that an attempt has asked for.
    ///
    /// # Errors
    /// A value cannot be read, though its key still has the address; the values are too many bytes.
    pub(crate) fn fetch(
        &self,
        mut wanted: Vec<FarValue>,
        fetched: &mut Fetched,
    ) -> Result<(), StoreError> {
        let far = self.far_or_damaged(&wanted[0].at);
        wanted.sort_unstable_by_key(|value| value.at);
        wanted.dedup_by_key(|value| value.at);
        fetched.bytes += wanted.iter().map(|value| u64::from(value.at.value_bytes)).sum::<u64>();
        let max_bytes = VALUE_BYTES_MAX as u64;
        if fetched.bytes > max_bytes {
            return Err(StoreError::TooMuchFar { needed_bytes: fetched.bytes, max_bytes });
        }
        for (value, read) in wanted.iter().zip(far.read(&wanted)) {
            match read {
                Ok(bytes) => {
                    let key = Key { db: value.db, bytes: &value.key };
                    let uses = far.uses.of(hash_key(value.db, &value.key));
                    if far.storage.keeps_near(uses, value.at) {
                        self.bring_near(far, key, value.at, &bytes);
                    }
                    fetched.values.insert(value.at, bytes);
                }
                // The value may have been moved while it was read; the next attempt finds out.
                Err(_) if !fetched.failed.contains(&value.at) => {
                    fetched.failed.push(value.at);
                    if fetched.failed.len() > MOVES_MAX {
                        let attempts = fetched.failed.len() as u32;
                        return Err(StoreError::Contended { attempts });
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Goes on with a read that has met a far value: `at` is its address.
    #[cold]
    pub(crate) fn read_far<R>(
        &self,
        key: Key<'_>,
        place: &Place,
        mut at: FarAddress,
        f: impl FnOnce(Option<Entry<'_>>) -> R,
    ) -> R {
        let far = self.far_or_damaged(&at);
        let mut failed = None;
        loop {
            let wanted = FarValue { db: key.db, key: key.bytes.into(), at };
            let read = far.read(std::slice::from_ref(&wanted)).pop();
            let lane = self.heap.lock(place.lane);
            let Some(entry) = self.live(&lane, place, key) else { return f(None) };
            let Some(now) = entry.far() else { return f(Some(entry)) };
            match read {
                Some(Ok(value)) if now == at => {
                    let result = f(Some(entry.with_value(&at, &value)));
                    drop(lane);
                    if far.storage.keeps_near(far.uses.of(place.hash), at) {
                        self.bring_near(far, key, at, &value);
                    }
                    return result;
                }
                Some(Err(error)) if now == at && failed == Some(at) => {
                    drop(lane);
                    Unreadable::Far(error).unwind()
                }
                Some(Err(_)) => failed = Some(at),
                _ => {}
            }
            at = now;
        }
    }

    /// Puts a value that was read back to memory, if its key still has the address and nothing has
    /// to be waited for.
    fn bring_near(&self, far: &Far, key: Key<'_>, at: FarAddress, value: &[u8]) {
        let kind = at.record_kind();
        let done = self.run_once(key, |tx| match tx.far_at(key) {
            Some(now) if now == at => tx.replace(key, kind, value).map(|()| true),
            _ => Ok(false),
        });
        far.kept.fetch_add(u64::from(done.unwrap_or(false)), Relaxed);
    }

    /// What has to be read for a key's value, if that is far and was not read ahead.
    pub fn far_value(&self, key: Key<'_>) -> Option<FarValue> {
        let far = self.far.as_ref()?;
        let place = self.place(key);
        let lane = self.heap.lock(place.lane);
        let at = self.live(&lane, &place, key)?.far()?;
        drop(lane);
        let is_missing = !far.arrived.lock().contains_key(&at);
        is_missing.then(|| FarValue { db: key.db, key: key.bytes.into(), at })
    }

    /// Reads values, so that operations on their keys that follow do not wait for a device one by
    /// one. Values that were read ahead and never used are forgotten after a while.
    pub fn fetch_ahead(&self, mut wanted: Vec<FarValue>) {
        let Some(far) = &self.far else { return };
        let mut bytes = 0;
        wanted.retain(|value| {
            bytes += u64::from(value.at.value_bytes);
            bytes <= AHEAD_BYTES_MAX
        });
        far.reads.fetch_add(wanted.len() as u64, Relaxed);
        let read = far.storage.read(&wanted);
        let mut arrived = far.arrived.lock();
        let held_bytes: u64 = arrived.values().map(|value| value.len() as u64).sum();
        if held_bytes + bytes > AHEAD_BYTES_MAX {
            arrived.clear();
        }
        let whole =
            wanted.iter().zip(read).filter_map(|(value, read)| Some((value.at, read.ok()?)));
        arrived.extend(whole);
    }

    /// Whether values can be far, so that it is worth to call [`Store::fetch_ahead`].
    pub fn has_far(&self) -> bool {
        self.far.is_some()
    }

    /// Counts of the reads of far values.
    pub fn far_stats(&self) -> FarStats {
        let count =
            |far: &Far| FarStats { reads: far.reads.load(Relaxed), kept: far.kept.load(Relaxed) };
        self.far.as_ref().map(count).unwrap_or_default()
    }

    /// Makes the counts of uses smaller where they have become large, so that they tell of lately.
    pub fn age_uses(&self) {
        if let Some(far) = &self.far {
            far.uses.age();
        }
    }

    /// Calls `f` with the values of some buckets of one shard that can be made far, and moves the
    /// cursor behind them. Returns false at the end of all shards, and the cursor is at the
    /// beginning again. `f` runs under the shard's lock and must not call the store.
    pub fn near_values(
        &self,
        cursor: &mut FarCursor,
        buckets: u64,
        mut f: impl FnMut(NearValue<'_>),
    ) -> bool {
        let Some(far) = &self.far else { return false };
        let lane = self.heap.lock(LaneId(cursor.lane));
        let root = self.root_of(lane.id(), cursor.db);
        let end = table::buckets(&lane, root).min(cursor.bucket + buckets);
        for bucket in cursor.bucket..end {
            table::for_each(&lane, root, bucket, |found| {
                let entry = Entry::new(&lane, found.record());
                let header = &entry.header;
                let is_movable = RecordKind::of_far_value(header.kind as u8).is_some()
                    && u64::from(header.value_len) >= FAR_VALUE_BYTES_MIN
                    && self.is_live_in(&lane, &found);
                if is_movable {
                    f(NearValue {
                        key: Key { db: header.db, bytes: entry.key() },
                        kind: header.kind as u8,
                        value: entry.value(),
                        uses: far.uses.of(hash_key(header.db, entry.key())),
                        memory_bytes: lane.usable_bytes(entry.at),
                    });
                }
            });
        }
        if end < table::buckets(&lane, root) {
            cursor.bucket = end;
            return true;
        }
        let (db, lane) = match cursor.db + 1 {
            DATABASES => (0, cursor.lane + 1),
            db => (db, cursor.lane),
        };
        let is_over = lane == self.heap.shards();
        *cursor = FarCursor { lane: if is_over { 0 } else { lane }, db, bucket: 0 };
        !is_over
    }

    /// Replaces a value in memory by its address, if the value is still this one. The value must be
    /// durable at the address. `empties_run` says that the value's run of slots is being emptied:
    /// the address may then take memory of the reserve. Returns whether that was done.
    ///
    /// # Errors
    /// The errors of [`Store::run`].
    pub fn make_far(
        &self,
        key: Key<'_>,
        value: &[u8],
        at: FarAddress,
        empties_run: bool,
    ) -> Result<bool, StoreError> {
        let patience = match empties_run {
            true => Patience::ForBudgetFromReserve,
            false => Patience::ForBudget,
        };
        self.run_with(Access::Key(key), patience, |tx| {
            let is_planted = self.region().planted().is(Planted::FarIgnoreChange);
            let near = tx.near_at(key, at.kind);
            let is_same = near.is_some_and(|near| near == value || is_planted);
            if is_same {
                tx.replace(key, RecordKind::Far, &at.encode())?;
            }
            Ok(is_same)
        })
    }

    /// Replaces the address of a far value by another, at which the same value is durable. Returns
    /// whether the key had the old address.
    ///
    /// # Errors
    /// The errors of [`Store::run`].
    pub fn move_far(
        &self,
        key: Key<'_>,
        from: FarAddress,
        to: FarAddress,
    ) -> Result<bool, StoreError> {
        self.run_with(Access::Key(key), Patience::ForBudget, |tx| {
            let is_there = tx.far_at(key) == Some(from);
            if is_there {
                tx.replace(key, RecordKind::Far, &to.encode())?;
            }
            Ok(is_there)
        })
    }

    /// The address of a key's value, if the value is far.
    pub fn far_address(&self, key: Key<'_>) -> Option<FarAddress> {
        let place = self.place(key);
        let lane = self.heap.lock(place.lane);
        let found = find(&lane, &place, key)?;
        Entry::new(&lane, found.record()).far()
    }

    /// Whether every far value was [`FarStorage::found`] since the opening; `None` while memory is
    /// still being searched. A shard whose search has failed has values that nobody found.
    pub fn all_far_found(&self) -> Option<bool> {
        let is_over = self.shards_rebuilt() == self.heap.shards();
        is_over.then(|| self.heap.lanes().all(|lane| self.heap.lock(lane).is_searched()))
    }
}

/// Most bytes of values that are read ahead and wait for their operations.
const AHEAD_BYTES_MAX: u64 = 32 << 20;

/// The address that a record has in the place of a value.
pub(crate) fn address(lane: &Lane<'_>, entry: &Entry<'_>) -> Option<FarAddress> {
    if entry.header.kind != RecordKind::Far {
        return None;
    }
    let at = entry.at + entry.header.value_at();
    let bytes = lane.bytes(at, entry.header.value_len as usize);
    match FarAddress::decode(bytes) {
        Some(address) => Some(address),
        None => {
            let (what, value) = ("far value's address", entry.header.first_word());
            Damaged { what, offset: entry.at, value }.unwind()
        }
    }
}

impl Tx<'_> {
    /// The address of a key's value, if the value is far.
    fn far_at(&self, key: Key<'_>) -> Option<FarAddress> {
        let place = self.place(key);
        let found = self.find(&place, key)?;
        self.raw(&place, &found).far()
    }

    /// The bytes of a key's value, if it is in memory and of this kind.
    pub(crate) fn near_at(&self, key: Key<'_>, kind: u8) -> Option<&[u8]> {
        let place = self.place(key);
        let found = self.find(&place, key)?;
        let entry = self.raw(&place, &found);
        (entry.header.kind as u8 == kind).then(|| entry.value())
    }

    /// Where a key's record lies, and its kind.
    pub(crate) fn record_at(&self, key: Key<'_>) -> Option<(u64, RecordKind)> {
        let place = self.place(key);
        let found = self.find(&place, key)?;
        Some((found.record(), self.raw(&place, &found).header.kind))
    }

    /// Writes another form of the same value, which no watch counts as a write.
    pub(crate) fn replace(
        &mut self,
        key: Key<'_>,
        kind: RecordKind,
        value: &[u8],
    ) -> Result<(), TxError> {
        let place = self.place(key);
        // Of a key that has expired, too: it must not come back to life.
        let old = self.find(&place, key).and_then(|found| self.raw(&place, &found).expire_at_ms);
        let expiry = old.map_or(Expiry::None, Expiry::AtMs);
        self.write_record(&place, key, kind, &[value], expiry, 0)
    }
}

impl Store {
    /// Runs one attempt of an operation; `None` if it would have to wait for anything.
    fn run_once<R>(
        &self,
        key: Key<'_>,
        op: impl FnMut(&mut Tx<'_>) -> Result<R, TxError>,
    ) -> Option<R> {
        self.run_with(Access::Key(key), Patience::None, op).ok()
    }
}
