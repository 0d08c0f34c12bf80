//! A record: header, key and value in one slot of the heap.
//!
//! ```text
//! 0   value length u32   4  key length u16   6  database u8   7  kind u8 (7 bits), short (1 bit)
//! 8   expire_at_ms u64 (0: never); of a sorted set's member its score f64; not there if short
//! 16  (short: 8)  key, then value; the rest of the slot is slack
//! ```
//! Small records that never expire have the short header. One that is to expire after all is
//! written anew; larger records have the long header from the beginning. The entry of the index
//! says which header the record has, too.
//!
//! The first word changes in one store, so an append becomes visible at once. A hash, a set or a
//! sorted set that outgrew its record keeps, as the value, the offset of its root, at the next
//! multiple of 8 behind the key; a list keeps its root itself there.

use perdura_slots::{Heat, Lane, LaneId, Op, Stop};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::Damaged;

/// The kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// A string.
    String = 0,
    /// A hash whose fields are packed in the value.
    PackedHash = 1,
    /// A hash whose fields are a table of [`RecordKind::Field`] records.
    TableHash = 2,
    /// A field of a hash, or a member of a set; the key is its name.
    Field = 3,
    /// A sorted set whose members are packed in the value.
    PackedSorted = 4,
    /// A sorted set whose members are a table of [`RecordKind::Member`] records and a tree.
    TreeSorted = 5,
    /// A member of a sorted set; the key is the member's name.
    Member = 6,
    /// A value that is not in memory; the record's value is its address (`far.rs`).
    Far = 7,
    /// A list whose elements are packed in the value.
    PackedList = 8,
    /// A list whose elements are in chunks, to which the value leads (`list.rs`).
    LargeList = 9,
    /// A part of a large list: a chunk, or an element too long for a chunk. It has no key.
    ListPart = 10,
    /// A set of integers that are packed in the value.
    IntSet = 11,
    /// A set whose members are packed in the value.
    PackedSet = 12,
    /// A set whose members are a table of [`RecordKind::Field`] records without values.
    TableSet = 13,
    /// A stream, to whose entries and groups the value leads (`stream.rs`).
    Stream = 14,
    /// A chunk of a stream. It has no key, as the next two.
    StreamChunk = 15,
    /// A group of a stream's consumers.
    StreamGroup = 16,
    /// A consumer of a group.
    StreamConsumer = 17,
    /// A hash as [`RecordKind::TableHash`], of whose fields some have an expiry or had one; the
    /// root leads to these by time (`expiring.rs`).
    ExpiringHash = 18,
    /// A string of which a part was changed since it was set. Only what clients are told of its
    /// encoding depends on that.
    PatchedString = 19,
}

impl RecordKind {
    fn decode(kind: u8) -> Option<Self> {
        match kind {
            0 => Some(Self::String),
            1 => Some(Self::PackedHash),
            2 => Some(Self::TableHash),
            3 => Some(Self::Field),
            4 => Some(Self::PackedSorted),
            5 => Some(Self::TreeSorted),
            6 => Some(Self::Member),
            7 => Some(Self::Far),
            8 => Some(Self::PackedList),
            9 => Some(Self::LargeList),
            10 => Some(Self::ListPart),
            11 => Some(Self::IntSet),
            12 => Some(Self::PackedSet),
            13 => Some(Self::TableSet),
            14 => Some(Self::Stream),
            15 => Some(Self::StreamChunk),
            16 => Some(Self::StreamGroup),
            17 => Some(Self::StreamConsumer),
            18 => Some(Self::ExpiringHash),
            19 => Some(Self::PatchedString),
            _ => None,
        }
    }

    /// The kind with this number, if values of that kind can be far.
    #[inline]
    pub fn of_far_value(kind: u8) -> Option<Self> {
        let kind = Self::decode(kind)?;
        let is_string = matches!(kind, Self::String | Self::PatchedString);
        (is_string || kind.is_packed()).then_some(kind)
    }

    /// Whether the value is the parts of a small collection, one behind the other.
    #[inline]
    pub fn is_packed(self) -> bool {
        matches!(
            self,
            Self::PackedHash
                | Self::PackedSorted
                | Self::PackedList
                | Self::IntSet
                | Self::PackedSet
        )
    }

    /// Whether a key of a database, and not a part of another value, has such a record.
    pub fn is_of_key(self) -> bool {
        !matches!(
            self,
            Self::Field
                | Self::Member
                | Self::ListPart
                | Self::StreamChunk
                | Self::StreamGroup
                | Self::StreamConsumer
        )
    }
}

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Bytes of the value.
    pub value_len: u32,
    /// Bytes of the key.
    pub key_len: u16,
    /// Number of the key's database; 0 for a field and for a member.
    pub db: u8,
    pub kind: RecordKind,
    /// Whether the header ends before the word of the expiry.
    pub is_short: bool,
    /// When the key goes away, in milliseconds since 1970; 0 for never. The bits of a member's
    /// score.
    pub expire_at_ms: u64,
}

/// Marks, in the first word, a header that ends behind this word.
const SHORT_FLAG: u64 = 1 << 63;

/// Seed of the hashes of fields and members; no database has this number.
const FIELD_SEED: u64 = 0x4649_454c;

impl Header {
    /// Bytes of a long header.
    pub const BYTES: u64 = 16;
    /// Bytes of a short header.
    pub const SHORT_BYTES: u64 = 8;
    /// Bytes of the longest record that may have a short header.
    const SHORT_UP_TO_BYTES: u64 = 256;
    /// Where the word of the expiry lies, from the record's start.
    pub const AT_EXPIRY: u64 = 8;
    /// Where a member's score lies, from the record's start: in the word of the expiry, because a
    /// member never expires by itself.
    pub const AT_SCORE: u64 = Self::AT_EXPIRY;

    /// Reads the header of the record at `at`, and unwinds with [`Damaged`] if no store writes such
    /// a header.
    #[inline]
    pub fn load(lane: &Lane<'_>, at: u64) -> Self {
        match Self::try_load(lane, at) {
            Ok(header) => header,
            Err(damaged) => damaged.unwind(),
        }
    }

    /// Reads the header of the record at `at`.
    #[inline]
    pub fn try_load(lane: &Lane<'_>, at: u64) -> Result<Self, Damaged> {
        let (words, _) = lane.bytes(at, 16).as_chunks::<8>();
        let words = [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])];
        let what = "record's kind";
        Self::decode(words).ok_or(Damaged { what, offset: at, value: words[0] })
    }

    /// The name of the member of a sorted set, or of the field with an expiry, whose record lies at
    /// `at`; unwinds with [`Damaged`] if the record is neither's. Reads one word of the header:
    /// searches compare many names.
    #[inline]
    pub fn load_member_name<'l>(lane: &'l Lane<'_>, at: u64) -> &'l [u8] {
        let first = lane.load(at);
        // The flag of a short header, which a field with an expiry does not have, is among the
        // bits.
        let kind = first >> 56;
        if kind != RecordKind::Member as u64 && kind != RecordKind::Field as u64 {
            Damaged { what: "record's kind", offset: at, value: first }.unwind();
        }
        lane.bytes(at + Self::BYTES, usize::from((first >> 32) as u16))
    }

    /// The number of the kind that a header with this first word names.
    pub fn kind_of(first: u64) -> u8 {
        (first >> 56 & 0x7f) as u8
    }

    fn decode([first, expire_at_ms]: [u64; 2]) -> Option<Self> {
        let is_short = first & SHORT_FLAG != 0;
        Some(Self {
            value_len: first as u32,
            key_len: (first >> 32) as u16,
            db: (first >> 48) as u8,
            kind: RecordKind::decode(Self::kind_of(first))?,
            is_short,
            expire_at_ms: if is_short { 0 } else { expire_at_ms },
        })
    }

    /// The header of a new record, short if such a record can have a short one.
    pub fn of(key: &[u8], db: u8, kind: RecordKind, value_len: u64, expire_at_ms: u64) -> Self {
        let can_be_short = match kind {
            RecordKind::String | RecordKind::PatchedString => true,
            RecordKind::PackedHash | RecordKind::PackedSorted => true,
            RecordKind::IntSet | RecordKind::PackedSet | RecordKind::PackedList => true,
            RecordKind::Field | RecordKind::Far => true,
            // Never one of a key: made by `list::chunk::part_header`.
            RecordKind::ListPart => true,
            // Nor these, which `stream::chunk::part_header` makes.
            RecordKind::StreamChunk | RecordKind::StreamGroup => true,
            RecordKind::StreamConsumer => true,
            // The word behind the key has a fixed place, and the score lies in the expiry's word.
            RecordKind::TableHash | RecordKind::TableSet | RecordKind::LargeList => false,
            RecordKind::TreeSorted | RecordKind::Member | RecordKind::Stream => false,
            RecordKind::ExpiringHash => false,
        };
        let len = Self::SHORT_BYTES + key.len() as u64 + value_len;
        let is_short = can_be_short && expire_at_ms == 0 && len <= Self::SHORT_UP_TO_BYTES;
        let (value_len, key_len) = (value_len as u32, key.len() as u16);
        Self { value_len, key_len, db, kind, is_short, expire_at_ms }
    }

    /// Whether the key, or the field, may go away by itself: a key may without an expiry of its
    /// own, with its last field.
    pub fn expires(&self) -> bool {
        match self.kind {
            RecordKind::Member => false,
            RecordKind::ExpiringHash => true,
            _ => self.expire_at_ms != 0,
        }
    }

    /// Whether the value leads to other objects, which belong to this record alone.
    pub fn leads_on(&self) -> bool {
        self.has_table() || matches!(self.kind, RecordKind::LargeList | RecordKind::Stream)
    }

    /// Whether the value is the offset of a table's root.
    pub fn has_table(&self) -> bool {
        matches!(
            self.kind,
            RecordKind::TableHash
                | RecordKind::TableSet
                | RecordKind::TreeSorted
                | RecordKind::ExpiringHash
        )
    }

    /// Where the offset of a table's root lies in the record with this first word, if it has one.
    pub fn root_at(first_word: u64) -> Option<u64> {
        let header = Self::decode([first_word, 0]).filter(Self::has_table)?;
        Some(header.value_at().next_multiple_of(8))
    }

    /// Bytes of this header.
    #[inline]
    pub fn head_bytes(&self) -> u64 {
        if self.is_short { Self::SHORT_BYTES } else { Self::BYTES }
    }

    /// The first word, the only one that a change of length stores.
    pub fn first_word(&self) -> u64 {
        u64::from(self.value_len)
            | u64::from(self.key_len) << 32
            | u64::from(self.db) << 48
            | (self.kind as u64) << 56
            | if self.is_short { SHORT_FLAG } else { 0 }
    }

    /// Both words of the header; a short header has only the first.
    pub fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.first_word().to_le_bytes());
        bytes[8..].copy_from_slice(&self.expire_at_ms.to_le_bytes());
        bytes
    }

    /// Where the value begins, from the record's start.
    pub fn value_at(&self) -> u64 {
        self.head_bytes() + u64::from(self.key_len)
    }

    /// Bytes of the record, without the slack behind it.
    pub fn len_bytes(&self) -> u64 {
        self.value_at() + u64::from(self.value_len)
    }
}

/// The hash by which a key of a database is found.
pub(crate) fn hash_key(db: u8, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, u64::from(db))
}

/// The hash by which a field of a hash, or a member of a set or a sorted set, is found.
pub(crate) fn hash_field(field: &[u8]) -> u64 {
    xxh3_64_with_seed(field, FIELD_SEED)
}

/// The hash by which the record at `at` is found.
pub(crate) fn hash_record(lane: &Lane<'_>, at: u64) -> u64 {
    let header = Header::load(lane, at);
    let key = lane.bytes(at + header.head_bytes(), usize::from(header.key_len));
    if header.kind.is_of_key() { hash_key(header.db, key) } else { hash_field(key) }
}

/// Whether the record at `at`, with a header of `head_bytes`, is that of `key`. The header is
/// compared first: a record that only has the same tag may be shorter than the key.
#[inline(always)]
pub(crate) fn is_of(lane: &Lane<'_>, at: u64, head_bytes: u64, db: u8, key: &[u8]) -> bool {
    let wanted = key.len() as u64 | u64::from(db) << 16;
    lane.load(at) >> 32 & 0xff_ffff == wanted && lane.bytes(at + head_bytes, key.len()) == key
}

/// Writes a record to which no reference leads yet, in a slot of `capacity` bytes.
pub(crate) fn write(
    op: &mut Op<'_>,
    id: LaneId,
    capacity: u64,
    (header, key, value): (&Header, &[u8], &[&[u8]]),
    heat: Heat,
) -> Result<u64, Stop> {
    let record = op.alloc(id, capacity)?;
    let bytes = op.fill(id, record, header.len_bytes() as usize, Some(heat))?;
    fill(bytes, header, key, value);
    Ok(record)
}

/// Writes header, key and value one behind the other.
pub(crate) fn fill(bytes: &mut [u8], header: &Header, key: &[u8], value: &[&[u8]]) {
    let (head, mut rest) = bytes.split_at_mut(header.head_bytes() as usize);
    head.copy_from_slice(&header.encode()[..head.len()]);
    for part in std::iter::once(&key).chain(value) {
        let (here, behind) = rest.split_at_mut(part.len());
        here.copy_from_slice(part);
        rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_a_kind_that_there_is_not_is_no_header() {
        let mut kinds = Vec::new();
        for kind in 0..=0x7f_u8 {
            if let Some(header) = Header::decode([u64::from(kind) << 56, 0]) {
                assert_eq!(header.kind as u8, kind);
                kinds.push(kind);
            }
        }
        assert_eq!(kinds, (0..=19).collect::<Vec<_>>());
    }
}
