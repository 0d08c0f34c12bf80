//! The index: linear hashing in region memory.
//!
//! A root (256 B) holds the number of buckets, then a word for each segment; the last word of a
//! table of fields or members is their number, that of a table of keys see `counting.rs`. Segment 0
//! holds 8 buckets, segment k as many as all before it, so growth never moves a bucket. A bucket is
//! a cache line: seven entries and a link to an overflow bucket. The file `pieces.rs` says where a
//! segment's buckets lie.
//! ```text
//! entry: tag (21 bits of the hash, from bit 6) | expires (1 bit) | record (42 bits);  0: empty
//! record: has a short header (1 bit) | its offset's bits 4, 5 (2 bits) | those from 6 on (39 bits)
//! ```
//! One bucket is split whenever an insert overflows one. An entry moves only to a bucket with a
//! higher number, so a scan in bucket order misses nothing. The tag holds the hash bits that splits
//! go by, so that only splits of the smallest tables read records. Tables do not shrink.

pub(crate) mod pick;
pub(crate) mod pieces;

use perdura_slots::{Heat, Lane, LaneId, OBJECT_ALIGN_BYTES, Op, Stop};

use crate::error::Damaged;
use crate::record::{Header, hash_record};

/// Bytes of a root.
pub(crate) const ROOT_BYTES: u64 = 256;
/// 8-byte words of a root.
pub(crate) const ROOT_WORDS: usize = 32;
const SEGMENTS: usize = 30;
const AT_LEN: u64 = ROOT_BYTES - 8;
const _: () = assert!(8 + 8 * SEGMENTS as u64 <= AT_LEN);

pub(crate) const BUCKET_BYTES: u64 = 64;
const ENTRIES: usize = 7;
const AT_LINK: u64 = 56;
const FIRST_BUCKETS: u64 = 8;

const TAG_FROM: u32 = 6;
const TAG_BITS: u32 = 21;
const OFFSET_BITS: u32 = 42;
const SHORT_BIT: u64 = 1 << (OFFSET_BITS - 1);
const SIXTEENTHS_AT: u32 = OFFSET_BITS - 3;
const _: () = assert!(OBJECT_ALIGN_BYTES == 16);
/// Most buckets that a root has words for.
pub(crate) const BUCKETS_MAX: u64 = FIRST_BUCKETS << (SEGMENTS - 1);
/// Every record lies below this offset, because an entry has no more bits for one.
pub(crate) const RECORDS_END: u64 = 1 << (SIXTEENTHS_AT + 6);
/// Marks the entry of a key that expires.
const EXPIRES_BIT: u64 = 1 << OFFSET_BITS;

/// An entry that was found, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// Region offset of the entry.
    pub at: u64,
    /// The entry's word.
    pub entry: u64,
}

impl Found {
    /// Offset of the entry's record.
    pub fn record(&self) -> u64 {
        record_of(self.entry)
    }

    /// Notes for the next start that the entry and its record were used.
    pub fn note_access(&self, lane: &Lane<'_>) {
        lane.note_access(self.at);
        lane.note_access(self.record());
    }

    /// Whether the entry's key expires.
    pub fn expires(&self) -> bool {
        expires(self.entry)
    }

    /// Bytes of the header of the entry's record.
    pub fn head_bytes(&self) -> u64 {
        head_of(self.entry)
    }

    /// The entry of the same record, with this mark of expiry.
    pub fn expiring(&self, expires: bool) -> u64 {
        self.entry & !EXPIRES_BIT | if expires { EXPIRES_BIT } else { 0 }
    }

    /// The entry of the same key for another record.
    pub fn replaced(&self, record: u64, header: &Header) -> u64 {
        let tag = self.entry >> (OFFSET_BITS + 1) << (OFFSET_BITS + 1);
        tag | value_of(record, header)
    }
}

/// The entry of a key with this hash for a record.
pub(crate) fn entry(hash: u64, record: u64, header: &Header) -> u64 {
    tag(hash) << (OFFSET_BITS + 1) | value_of(record, header)
}

/// An entry without its tag.
fn value_of(record: u64, header: &Header) -> u64 {
    let place = record >> 6 | (record & 0x30) << (SIXTEENTHS_AT - 4);
    let is_short = if header.is_short { SHORT_BIT } else { 0 };
    place | is_short | if header.expires() { EXPIRES_BIT } else { 0 }
}

/// Bytes of the header of an entry's record. They are known before the record comes from memory, so
/// that comparing the key need not wait for the header.
#[inline]
pub(crate) fn head_of(entry: u64) -> u64 {
    if entry & SHORT_BIT == 0 { Header::BYTES } else { Header::SHORT_BYTES }
}

/// Offset of an entry's record.
#[inline]
pub(crate) fn record_of(entry: u64) -> u64 {
    (entry & ((1 << SIXTEENTHS_AT) - 1)) << 6 | entry >> (SIXTEENTHS_AT - 4) & 0x30
}

/// Whether an entry's key expires.
pub(crate) fn expires(entry: u64) -> bool {
    entry & EXPIRES_BIT != 0
}

fn tag(hash: u64) -> u64 {
    hash >> TAG_FROM & ((1 << TAG_BITS) - 1)
}

/// The bucket of a hash in a table of so many.
pub(crate) fn bucket_of(hash: u64, buckets: u64) -> u64 {
    let mask = u64::MAX >> (buckets.leading_zeros());
    let bucket = hash & mask;
    if bucket < buckets { bucket } else { hash & mask >> 1 }
}

/// The number of buckets of a table; unwinds with [`Damaged`] if no table has as many.
#[inline]
pub(crate) fn buckets(lane: &Lane<'_>, root: u64) -> u64 {
    let buckets = lane.load(root);
    if buckets > BUCKETS_MAX {
        Damaged { what: "buckets of a table", offset: root, value: buckets }.unwind();
    }
    buckets
}

/// The number of fields or members that a table's root holds, or the word that saves the number of
/// keys.
pub(crate) fn stored_len(lane: &Lane<'_>, root: u64) -> u64 {
    lane.load(root + AT_LEN)
}

/// Stores the number of fields or members, or the word that saves the number of keys, in a table's
/// root.
pub(crate) fn store_len(op: &mut Op<'_>, id: LaneId, root: u64, len: u64) -> Result<(), Stop> {
    op.store(id, root + AT_LEN, len)
}

#[inline(always)]
fn bucket_at(lane: &Lane<'_>, root: u64, bucket: u64) -> u64 {
    pieces::bucket_at(|word| lane.load(root + word * 8), |at| lane.load(at), bucket)
}

#[inline(always)]
fn words(lane: &Lane<'_>, bucket_at: u64) -> [u64; 8] {
    let (chunks, _) = lane.bytes(bucket_at, BUCKET_BYTES as usize).as_chunks::<8>();
    std::array::from_fn(|index| u64::from_le_bytes(chunks[index]))
}

/// Follows the links of one bucket's chain, which may have any number of buckets. A damaged link
/// can lead back to a bucket of the same chain. This is found out by comparing each bucket with one
/// before it, which is replaced after 1, 2, 4, ... links (Brent's algorithm).
struct Chain {
    /// A bucket before the present one.
    before: u64,
    /// Links followed since that bucket.
    links: u64,
    /// Links after which the bucket is replaced.
    links_max: u64,
}

impl Chain {
    /// A chain that begins at this bucket.
    #[inline]
    fn from(first: u64) -> Self {
        Self { before: first, links: 0, links_max: 1 }
    }

    /// The bucket that the link of the bucket `at` leads to, 0 at the end; unwinds with [`Damaged`]
    /// if the chain comes round.
    #[inline]
    fn behind(&mut self, at: u64, link: u64) -> u64 {
        if link != 0 {
            self.follow(at, link);
        }
        link
    }

    fn follow(&mut self, at: u64, link: u64) {
        if link == self.before {
            Damaged { what: "chain of buckets", offset: at, value: link }.unwind();
        }
        self.links += 1;
        if self.links == self.links_max {
            *self = Self { before: link, links: 0, links_max: self.links_max * 2 };
        }
    }
}

/// Finds the entry whose tag fits and whose record `is_it`, which gets the record's offset and the
/// bytes of its header.
pub(crate) fn find(
    lane: &Lane<'_>,
    root: u64,
    hash: u64,
    is_it: impl Fn(u64, u64) -> bool,
) -> Option<Found> {
    search(lane, root, hash, is_it, |_, _| {})
}

/// Where an entry can be added to the chain of its bucket.
pub(crate) struct Room {
    /// Offset of the first free word, if there is one.
    free: Option<u64>,
    /// Offset of the chain's last bucket; 0 while the table has no buckets.
    last: u64,
}

/// Finds an entry as [`find`] does; else where it would be added.
pub(crate) fn find_or_room(
    lane: &Lane<'_>,
    root: u64,
    hash: u64,
    is_it: impl Fn(u64, u64) -> bool,
) -> Result<Found, Room> {
    let mut room = Room { free: None, last: 0 };
    let found = search(lane, root, hash, is_it, |at, words| {
        let free = |words: &[u64]| words.iter().position(|entry| *entry == 0);
        room.free = room.free.or_else(|| Some(at + free(&words[..ENTRIES])? as u64 * 8));
        room.last = at;
    });
    found.ok_or(room)
}

/// Looks for an entry in the chain of its bucket. `passed` gets the offset and the words of every
/// bucket that does not have it.
#[inline(always)]
fn search(
    lane: &Lane<'_>,
    root: u64,
    hash: u64,
    is_it: impl Fn(u64, u64) -> bool,
    mut passed: impl FnMut(u64, &[u64; 8]),
) -> Option<Found> {
    let buckets = buckets(lane, root);
    if buckets == 0 {
        return None;
    }
    let tag = tag(hash);
    let mut at = bucket_at(lane, root, bucket_of(hash, buckets));
    let mut chain = Chain::from(at);
    while at != 0 {
        let words = words(lane, at);
        for (index, &entry) in words[..ENTRIES].iter().enumerate() {
            let fits = entry >> (OFFSET_BITS + 1) == tag && entry != 0;
            if fits && is_it(record_of(entry), head_of(entry)) {
                return Some(Found { at: at + index as u64 * 8, entry });
            }
        }
        passed(at, &words);
        at = chain.behind(at, words[ENTRIES]);
    }
    None
}

/// The bucket that keys of this hash belong to; `None` while the table is empty. `load` reads a
/// word of region memory, perhaps without the shard's lock: the answer is a hint only.
pub(crate) fn first_bucket(load: impl Fn(u64) -> u64, root: u64, hash: u64) -> Option<u64> {
    let buckets = load(root);
    let word = |word| load(root + word * 8);
    (1..=BUCKETS_MAX)
        .contains(&buckets)
        .then(|| pieces::bucket_at(word, &load, bucket_of(hash, buckets)))
}

/// The record of a bucket's first entry whose tag fits, which is likely the one that is looked for.
/// `word` reads a word of the bucket.
pub(crate) fn likely_record(word: impl Fn(u64) -> u64, hash: u64) -> Option<u64> {
    let tag = tag(hash);
    let fits = |entry: &u64| *entry >> (OFFSET_BITS + 1) == tag && *entry != 0;
    (0..ENTRIES as u64).map(word).find(fits).map(record_of)
}

/// Makes the first buckets of an empty table.
fn create(op: &mut Op<'_>, id: LaneId, root: u64) -> Result<(), Stop> {
    let len = FIRST_BUCKETS * BUCKET_BYTES;
    let segment = op.alloc(id, len)?;
    op.fill(id, segment, len as usize, Some(Heat::COLD))?.fill(0);
    op.store(id, root + 8, segment)?;
    op.store(id, root, FIRST_BUCKETS)
}

/// The root of a new table of fields, to which no reference leads yet.
pub(crate) fn new_root(op: &mut Op<'_>, id: LaneId) -> Result<u64, Stop> {
    let root = op.alloc(id, ROOT_BYTES)?;
    op.fill(id, root, ROOT_BYTES as usize, Some(Heat::COLD))?.fill(0);
    Ok(root)
}

/// Adds an entry for a key that the table does not have. `room` is what [`find_or_room`] has found
/// for the key, if it was asked; the table has not changed since.
pub(crate) fn insert(
    op: &mut Op<'_>,
    id: LaneId,
    root: u64,
    room: Option<Room>,
    hash: u64,
    entry: u64,
) -> Result<(), Stop> {
    let room = match room {
        Some(room) if room.last != 0 => room,
        _ => room_in(op, id, root, hash)?,
    };
    match room.free {
        Some(at) => op.store(id, at, entry),
        None => {
            let more = write_chain(op, id, &[entry])?;
            op.store(id, room.last + AT_LINK, more)?;
            split(op, id, root)
        }
    }
}

/// Where an entry of this hash can be added to a table, which has buckets afterwards.
fn room_in(op: &mut Op<'_>, id: LaneId, root: u64, hash: u64) -> Result<Room, Stop> {
    if buckets(op.lane(id), root) == 0 {
        create(op, id, root)?;
    }
    match find_or_room(op.lane(id), root, hash, |_, _| false) {
        Ok(_) => unreachable!("an entry that is none of those in the table"),
        Err(room) => Ok(room),
    }
}

/// Writes entries into a new chain of buckets, to which no reference leads yet. Returns the chain's
/// first bucket.
fn write_chain(op: &mut Op<'_>, id: LaneId, entries: &[u64]) -> Result<u64, Stop> {
    let mut link = 0;
    for entries in entries.chunks(ENTRIES).rev() {
        let bucket = op.alloc_lasting_grain(id)?;
        write_bucket(op, id, bucket, entries, link)?;
        link = bucket;
    }
    Ok(link)
}

fn write_bucket(
    op: &mut Op<'_>,
    id: LaneId,
    at: u64,
    entries: &[u64],
    link: u64,
) -> Result<(), Stop> {
    let bytes = op.fill(id, at, BUCKET_BYTES as usize, Some(Heat::COLD))?;
    bytes.fill(0);
    for (word, entry) in bytes.chunks_exact_mut(8).zip(entries) {
        word.copy_from_slice(&entry.to_le_bytes());
    }
    bytes[AT_LINK as usize..].copy_from_slice(&link.to_le_bytes());
    Ok(())
}

/// Adds one bucket, by splitting the next bucket in turn in two.
fn split(op: &mut Op<'_>, id: LaneId, root: u64) -> Result<(), Stop> {
    let lane = op.lane(id);
    let count = buckets(lane, root);
    let level = 63 - count.leading_zeros();
    if !pieces::make_room(op, id, root, count)? {
        // The table is as large as it gets, or its growth can wait. The entry has its place; from
        // here on chains grow longer.
        return Ok(());
    }
    let lane = op.lane(id);
    let source = bucket_at(lane, root, count - (1 << level));
    let (mut chain, mut stay, mut go) =
        (Vec::new(), Vec::with_capacity(16), Vec::with_capacity(16));
    let (mut at, mut links) = (source, Chain::from(source));
    while at != 0 {
        let words = words(lane, at);
        for &entry in words[..ENTRIES].iter().filter(|entry| **entry != 0) {
            if split_bit(lane, entry, level) { go.push(entry) } else { stay.push(entry) }
        }
        chain.push(at);
        at = links.behind(at, words[ENTRIES]);
    }
    let (first, more) = go.split_at(go.len().min(ENTRIES));
    let link = write_chain(op, id, more)?;
    let target = bucket_at(op.lane(id), root, count);
    write_bucket(op, id, target, first, link)?;
    keep_in_chain(op, id, &chain, &stay)?;
    op.store(id, root, count + 1)
}

/// The hash bit that decides whether an entry moves when its bucket is split at this level.
fn split_bit(lane: &Lane<'_>, entry: u64, level: u32) -> bool {
    if (TAG_FROM..TAG_FROM + TAG_BITS).contains(&level) {
        return entry >> (OFFSET_BITS + 1 + level - TAG_FROM) & 1 != 0;
    }
    hash_record(lane, record_of(entry)) >> level & 1 != 0
}

/// Leaves `entries`, which are all in the chain, in the fewest of its buckets that hold them.
fn keep_in_chain(op: &mut Op<'_>, id: LaneId, chain: &[u64], entries: &[u64]) -> Result<(), Stop> {
    let keep = entries.len().div_ceil(ENTRIES).max(1);
    for (number, &at) in chain[..keep].iter().enumerate() {
        let from = (number * ENTRIES).min(entries.len());
        let part = &entries[from..entries.len().min(from + ENTRIES)];
        for index in 0..ENTRIES {
            let value = part.get(index).copied().unwrap_or(0);
            op.store(id, at + index as u64 * 8, value)?;
        }
    }
    if keep < chain.len() {
        op.store(id, chain[keep - 1] + AT_LINK, 0)?;
        chain[keep..].iter().for_each(|bucket| op.free(*bucket));
    }
    Ok(())
}

/// Calls `f` with every entry of a bucket.
pub(crate) fn for_each(lane: &Lane<'_>, root: u64, bucket: u64, mut f: impl FnMut(Found)) {
    let mut at = bucket_at(lane, root, bucket);
    let mut chain = Chain::from(at);
    while at != 0 {
        let words = words(lane, at);
        for (index, &entry) in words[..ENTRIES].iter().enumerate().filter(|(_, e)| **e != 0) {
            f(Found { at: at + index as u64 * 8, entry });
        }
        at = chain.behind(at, words[ENTRIES]);
    }
}

/// The words of a root, by which a table can be walked that was cut off from its root.
pub(crate) fn root_words(lane: &Lane<'_>, root: u64) -> [u64; ROOT_WORDS] {
    std::array::from_fn(|word| lane.load(root + word as u64 * 8))
}

/// A part of one bucket's chain.
pub(crate) enum Part {
    /// The offset of an overflow bucket.
    Overflow(u64),
    /// The word of an entry.
    Entry(u64),
}

/// Calls `f` with all parts of one bucket's chain.
pub(crate) fn parts_of_bucket<E>(
    lane: &Lane<'_>,
    root: &[u64; ROOT_WORDS],
    bucket: u64,
    f: &mut impl FnMut(Part) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = pieces::bucket_at(|word| root[word as usize], |at| lane.load(at), bucket);
    let mut chain = Chain::from(at);
    let mut is_overflow = false;
    while at != 0 {
        if is_overflow {
            f(Part::Overflow(at))?;
        }
        is_overflow = true;
        let words = words(lane, at);
        for &entry in words[..ENTRIES].iter().filter(|entry| **entry != 0) {
            f(Part::Entry(entry))?;
        }
        at = chain.behind(at, words[ENTRIES]);
    }
    Ok(())
}

/// Bytes of memory that a table takes together with its records.
pub(crate) fn memory_bytes(lane: &Lane<'_>, root: u64) -> u64 {
    let words = root_words(lane, root);
    let mut sum = lane.usable_bytes(root);
    let counted = pieces::for_each::<()>(lane, &words, |at| {
        sum += lane.usable_bytes(at);
        Ok(())
    });
    debug_assert!(counted.is_ok());
    for bucket in 0..words[0] {
        let walked = parts_of_bucket::<()>(lane, &words, bucket, &mut |part| {
            sum += match part {
                Part::Overflow(at) => lane.usable_bytes(at),
                Part::Entry(entry) => lane.usable_bytes(record_of(entry)),
            };
            Ok(())
        });
        debug_assert!(walked.is_ok());
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordKind;

    #[test]
    fn entries_name_record_header_and_expiry() {
        let hash = 0x1234_5678_9abc_def0;
        let header = |len, at_ms| Header::of(b"key", 0, RecordKind::String, len, at_ms);
        for record in [0x40, 0x1_0010, 0x7_fff0, RECORDS_END - 16] {
            for header in [header(8, 0), header(8, 77), header(300, 0)] {
                let entry = entry(hash, record, &header);
                assert_eq!(record_of(entry), record);
                assert_eq!(
                    (head_of(entry), expires(entry)),
                    (header.head_bytes(), header.expires())
                );
                assert_eq!(entry >> (OFFSET_BITS + 1), tag(hash));
                let found = Found { at: 0, entry };
                assert_eq!(found.replaced(record, &header), entry);
                assert_eq!(expires(found.expiring(true)), !expires(found.expiring(false)));
            }
        }
        // A record at a multiple of 64 with a long header is named by its offset / 64.
        for (record, expiry) in [(0x40, 0), (0x7_ffc0, EXPIRES_BIT), (RECORDS_END - 64, 0)] {
            let word = tag(hash) << (OFFSET_BITS + 1) | expiry | (record / 64);
            assert_eq!((record_of(word), head_of(word)), (record, Header::BYTES));
            assert_eq!(word, entry(hash, record, &header(300, expiry)));
        }
    }
}
