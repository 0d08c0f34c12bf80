//! Opening a store, and following its index: that finds the memory that is free, counts the keys,
//! and refuses every word that no store writes.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicU16, AtomicU64};

use parking_lot::Mutex;
use perdura_media::Clock;
use perdura_slots::{Heap, HeapError, Lane, LaneId, Marks, Region};

use crate::api::{DATABASES, OWN_DATABASE};
use crate::counting::DbKeys;
use crate::entry::Entry;
use crate::error::{Damaged, OpenError, Unreadable};
use crate::evict::Evictor;
use crate::far::{FAR_WITHOUT_DEVICES, Far, FarAddress, FarStorage};
use crate::fields::FIELD_DB;
use crate::key_counts::{KeyCount, KeyCounts};
use crate::list;
use crate::listpack;
use crate::members;
use crate::own::{OWN_LANE, OWN_ROOT_NAME};
use crate::packed;
use crate::packed::small::SmallSets;
use crate::recency::Recency;
use crate::record::{Header, RecordKind};
use crate::shard::{Shard, reap};
use crate::store::Store;
use crate::stream;
use crate::table::{self, Part};
use crate::tree::Node;
use crate::tx::ChunkLimits;

/// Version of the store's format, which the store's named root holds.
const VERSION: u64 = 1;
const ROOT_NAME: &str = "store";
/// Name of the heap's root that names the set of devices on which values may lie.
pub const FAR_ROOT_NAME: &str = "far";

/// Settings of a store.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreOptions {
    /// Seed of the numbers that [`Store::random_key`] draws.
    pub seed: u64,
    /// Whether the store opens without looking at the records. The caller then calls
    /// [`Store::rebuild_next`] until it returns false; keys can be read and written meanwhile.
    pub defer_rebuild: bool,
}

impl Store {
    /// Opens the store in `heap`, or makes one if the heap is new. Every record is looked at once,
    /// unless that is deferred.
    ///
    /// # Errors
    /// The store has another version, or its memory holds a word that no store writes.
    pub fn open(
        heap: Heap,
        clock: Arc<dyn Clock>,
        options: StoreOptions,
    ) -> Result<Self, OpenError> {
        if Unreadable::catch(|| heap.root(FAR_ROOT_NAME))?.is_some() {
            return Err(OpenError::NeedsDevices);
        }
        Self::open_over(heap, clock, options, None)
    }

    /// Opens a store as [`Store::open`] does, of which `far` keeps values that are not in memory.
    /// The heap's root [`FAR_ROOT_NAME`] says from then on that there may be such values.
    ///
    /// # Errors
    /// The errors of [`Store::open`].
    pub fn open_with_far(
        heap: Heap,
        clock: Arc<dyn Clock>,
        options: StoreOptions,
        far: Arc<dyn FarStorage>,
    ) -> Result<Self, OpenError> {
        Self::open_over(heap, clock, options, Some(far))
    }

    fn open_over(
        heap: Heap,
        clock: Arc<dyn Clock>,
        options: StoreOptions,
        storage: Option<Arc<dyn FarStorage>>,
    ) -> Result<Self, OpenError> {
        match Unreadable::catch(|| heap.root(ROOT_NAME))? {
            Some(VERSION) => {}
            None => heap.set_root(ROOT_NAME, VERSION)?,
            Some(found) => return Err(OpenError::Version { found, supported: VERSION }),
        }
        let own_root = Unreadable::catch(|| heap.root(OWN_ROOT_NAME))?.unwrap_or(0);
        let reserved_bytes = heap.region().geometry().reserved_bytes;
        if reserved_bytes > table::RECORDS_END {
            return Err(OpenError::TooLarge { reserved_bytes, max_bytes: table::RECORDS_END });
        }
        for lane in heap.lanes() {
            heap.lock(lane).set_user(Shard::new(storage.clone()));
        }
        let key_counts = KeyCounts::new(heap.shards());
        let region_bytes = heap.region().len_bytes();
        let far = storage.map(|storage| Far::new(storage, region_bytes)).transpose()?;
        heap.set_reserve(match far {
            Some(_) => reserve_bytes(region_bytes, heap.shards()),
            None => small_reserve_bytes(region_bytes, heap.shards()),
        });
        let recency = Recency::new(region_bytes, clock.unix_ms())?;
        let store = Self {
            heap,
            clock,
            recency,
            evictor: Evictor::default(),
            random: AtomicU64::new(options.seed),
            sweep: Mutex::default(),
            expired_keys: AtomicU64::new(0),
            expired_fields: AtomicU64::new(0),
            watches: Arc::default(),
            audiences: Default::default(),
            expiry_holds: Default::default(),
            has_snapshot: Default::default(),
            key_counts,
            far,
            chunk_limits: ChunkLimits::default().words().map(AtomicU64::new),
            own_root: AtomicU64::new(own_root),
            shards_counted: AtomicU16::new(0),
            shards_rebuilt: AtomicU16::new(0),
            small_sets: AtomicU64::new(0),
        };
        store.set_small_sets(SmallSets::default());
        Unreadable::catch(|| store.take_saved_counts())??;
        if !options.defer_rebuild {
            while store.rebuild_next()? {}
        }
        Ok(store)
    }

    /// Finds the free memory of the next shard and counts its keys; the shard is held meanwhile.
    /// Returns false once no shard is left.
    ///
    /// # Errors
    /// The shard's memory holds a word that no store writes, or the final flush has begun. Memory
    /// of that shard which was in use when the store was opened is then never allocated anew.
    pub fn rebuild_next(&self) -> Result<bool, OpenError> {
        let done = self.shards_rebuilt.load(Acquire);
        // From the highest down: a cut takes them all from the lowest up, and would hold those it
        // has until the last was rebuilt if this went the same way.
        let Some(lane) = self.heap.shards().checked_sub(done + 1) else { return Ok(false) };
        let rebuilt = self.rebuild_shard(LaneId(lane));
        // A thread that rebuilds the same shard was held up until this one was done.
        self.shards_rebuilt.fetch_max(done + 1, AcqRel);
        rebuilt.map(|()| true)
    }

    /// The number of shards whose free memory is found.
    pub(crate) fn shards_rebuilt(&self) -> u16 {
        self.shards_rebuilt.load(Acquire)
    }

    /// Waits until all shards are rebuilt, and rebuilds them itself.
    pub(crate) fn await_rebuild(&self) {
        while self.shards_rebuilt() < self.heap.shards() && self.region().check_open().is_ok() {
            if let Err(error) = self.rebuild_next() {
                tracing::error!(%error, "the free memory of a shard cannot be found");
            }
        }
    }

    fn rebuild_shard(&self, lane: LaneId) -> Result<(), OpenError> {
        let region = self.region();
        let search = |lane: &mut Lane<'_>, marks: &mut Marks<'_>| {
            region.check_open().map_err(HeapError::from)?;
            // A detached table that was there on open is found free without being reaped; one that
            // was made since is not.
            reap(lane, u64::MAX);
            let mut counts = DbKeys::default();
            for (db, count) in (0..DATABASES).zip(&mut counts) {
                let root = self.root_of(lane.id(), db);
                let far = self.far.as_ref().map(|far| &*far.storage);
                Trace { region, lane, marks, far }.index(root, db, count)?;
            }
            let own_root = self.own_root.load(Acquire);
            if lane.id() == OWN_LANE && own_root != 0 {
                marks.mark(own_root)?;
                let far = self.far.as_ref().map(|far| &*far.storage);
                let uncounted = &mut KeyCount::default();
                Trace { region, lane, marks, far }.index(own_root, OWN_DATABASE, uncounted)?;
            }
            self.note_counted(lane, &counts)
        };
        Unreadable::catch(|| self.heap.rebuild_lane(lane, search))?
    }
}

/// Bytes of spans that are kept for who empties runs of slots, so that values can be moved out of
/// memory that is used up: for each shard a span for addresses, and one for values that change
/// their slots; but no more than an eighth of memory.
pub(crate) fn reserve_bytes(region_bytes: u64, shards: u16) -> u64 {
    let least = region_bytes / 32;
    (2 * u64::from(shards) * (64 << 10)).max(least).min(region_bytes / 8)
}

/// Bytes of spans that are kept, where no values are moved out of memory, for what is to succeed
/// though memory is used up ([`crate::Tx::allow_reserve`]): for each shard a span for values that
/// change their slots and one for all else; but no more than a sixteenth of memory.
fn small_reserve_bytes(region_bytes: u64, shards: u16) -> u64 {
    let least = region_bytes / 64;
    (2 * u64::from(shards) * (64 << 10)).max(least).min(region_bytes / 16)
}

/// The records that a table may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Records {
    /// Keys of a database.
    Keys,
    /// Fields of a hash.
    Fields,
    /// Fields of a hash, some of which may have an expiry.
    ExpiringFields,
    /// Members of a sorted set.
    Members,
    /// Members of a set, which are fields without a value.
    Names,
}

impl Records {
    fn include(self, header: &Header) -> bool {
        match self {
            Self::Keys => header.kind.is_of_key(),
            Self::Fields => header.kind == RecordKind::Field && !header.expires(),
            Self::ExpiringFields => header.kind == RecordKind::Field,
            Self::Members => header.kind == RecordKind::Member,
            Self::Names => {
                header.kind == RecordKind::Field && header.value_len == 0 && !header.expires()
            }
        }
    }
}

/// One walk over all memory that a shard's references lead to.
struct Trace<'t, 'l, 'm> {
    region: &'t Region,
    lane: &'t Lane<'l>,
    marks: &'t mut Marks<'m>,
    far: Option<&'t dyn FarStorage>,
}

impl Trace<'_, '_, '_> {
    /// Marks everything that the index of a database leads to, and counts the database's keys.
    fn index(&mut self, root: u64, db: u8, count: &mut KeyCount) -> Result<(), OpenError> {
        self.table(root, db, Records::Keys, &mut |trace, entry, record| {
            count.keys += 1;
            count.with_expiry += u64::from(table::expires(entry));
            match (record.far(), trace.far) {
                (None, _) => {}
                (Some(at), Some(far)) => far.found(at),
                (Some(_), None) => {
                    let (what, value) = (FAR_WITHOUT_DEVICES, record.header.first_word());
                    return refuse(what, record.at, value);
                }
            }
            if let Some(root) = record.list_root() {
                return list::trace(trace.lane, trace.marks, &root);
            }
            if let Some(root) = record.stream_root() {
                return stream::pieces::trace(trace.lane, trace.marks, &root);
            }
            if !record.has_table() {
                return Ok(());
            }
            // Fields and members have no table of their own, so this goes no deeper.
            let root = record.table_root();
            trace.marks.mark(root)?;
            let records = match record.header.kind {
                RecordKind::TableSet => Records::Names,
                RecordKind::TreeSorted => Records::Members,
                RecordKind::ExpiringHash => Records::ExpiringFields,
                _ => Records::Fields,
            };
            let mut expiring = 0;
            trace.table(root, FIELD_DB, records, &mut |_, entry, _| {
                expiring += u64::from(table::expires(entry));
                Ok(())
            })?;
            let top = record.tree_top();
            if let Some(top) = top {
                members::trace(trace.lane, trace.marks, top)?;
            }
            if records == Records::ExpiringFields {
                let in_tree = top.map_or(0, |top| Node::load(trace.lane, top).members(trace.lane));
                if in_tree != expiring {
                    return refuse("number of expiring fields", root, in_tree);
                }
            }
            Ok(())
        })
    }

    /// Marks the buckets and records of a table, and calls `each` with every entry and its record.
    fn table(
        &mut self,
        root: u64,
        db: u8,
        records: Records,
        each: &mut dyn FnMut(&mut Self, u64, &Entry<'_>) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let words = table::root_words(self.lane, root);
        if words[0] > table::BUCKETS_MAX {
            return refuse("buckets of a table", root, words[0]);
        }
        table::pieces::for_each(self.lane, &words, |at| self.marks.mark(at))?;
        for bucket in 0..words[0] {
            // The final flush waits for this shard, on the warning's time, and memory that is not
            // loaded yet comes block by block.
            self.region.check_open().map_err(HeapError::from)?;
            let lane = self.lane;
            table::parts_of_bucket(lane, &words, bucket, &mut |part| {
                let entry = match part {
                    Part::Overflow(at) => return Ok(self.marks.mark(at)?),
                    Part::Entry(entry) => entry,
                };
                let at = table::record_of(entry);
                self.marks.mark(at)?;
                let header = Header::try_load(lane, at)?;
                check(lane, at, &header, entry, db, records)?;
                let record = Entry::of(lane, at, header);
                each(self, entry, &record)
            })?;
        }
        Ok(())
    }
}

/// Refuses a record that no store writes into a table of such records.
fn check(
    lane: &Lane<'_>,
    at: u64,
    header: &Header,
    entry: u64,
    db: u8,
    records: Records,
) -> Result<(), OpenError> {
    let value = || lane.bytes(at + header.value_at(), header.value_len as usize);
    if header.head_bytes() != table::head_of(entry) {
        return refuse("record's header", at, header.first_word());
    }
    if header.len_bytes() > lane.usable_bytes(at) {
        return refuse("record length", at, header.len_bytes());
    }
    if !records.include(header) {
        return refuse("record's kind", at, header.first_word());
    }
    if header.db != db {
        return refuse("record's database", at, header.first_word());
    }
    if header.expires() != table::expires(entry) {
        return refuse("record's expiry", at + Header::AT_EXPIRY, header.expire_at_ms);
    }
    match header.kind {
        RecordKind::PackedHash if !packed::is_whole(value()) => {
            refuse("packed hash", at, header.first_word())
        }
        RecordKind::PackedSorted if !packed::members::is_whole(value()) => {
            refuse("packed sorted set", at, header.first_word())
        }
        RecordKind::PackedList if !is_packed_list(value()) => {
            refuse("packed list", at, header.first_word())
        }
        RecordKind::IntSet if !packed::ints::is_whole(value()) => {
            refuse("set of integers", at, header.first_word())
        }
        RecordKind::PackedSet if !packed::names::is_whole(value()) => {
            refuse("packed set", at, header.first_word())
        }
        RecordKind::Far if FarAddress::decode(value()).is_none() => {
            refuse("far value's address", at, header.first_word())
        }
        RecordKind::Member if f64::from_bits(header.expire_at_ms).is_nan() => {
            refuse("score of a member", at + Header::AT_SCORE, header.expire_at_ms)
        }
        RecordKind::TableHash
        | RecordKind::ExpiringHash
        | RecordKind::TableSet
        | RecordKind::TreeSorted
        | RecordKind::LargeList
        | RecordKind::Stream => {
            // The value is the padding before the root's offset, and the offset; or the root.
            let word_bytes = match header.kind {
                RecordKind::LargeList => list::ROOT_BYTES as u64,
                RecordKind::Stream => stream::ROOT_BYTES as u64,
                _ => 8,
            };
            let needed = header.value_at().next_multiple_of(8) - header.value_at() + word_bytes;
            // A small stream's only chunk follows.
            let has_more = header.kind == RecordKind::Stream;
            let len = u64::from(header.value_len);
            match len == needed || (has_more && len > needed) {
                true => Ok(()),
                false => refuse("record length", at, header.len_bytes()),
            }
        }
        _ => Ok(()),
    }
}

/// Whether these are the entries of a list that is one record: some, and no parts.
fn is_packed_list(value: &[u8]) -> bool {
    matches!(listpack::count(value), Some((1.., 0)))
}

fn refuse(what: &'static str, offset: u64, value: u64) -> Result<(), OpenError> {
    Err(Damaged { what, offset, value }.into())
}
