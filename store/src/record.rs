//! A record: header, key, value, in one slot of the heap.
//!
//! ```text
//! 0   value length u32    4  key length u16    6  database u8    7  kind u8 (7 bits), short (1 bit)
//! 8   expire_at_ms u64 (0: never); of a sorted set's member its score f64;  not there if short
//! 16  (short: 8)  key, then value; what follows the value in the slot is slack
//! ```
//! Small records that never expire have the short header; one that is to expire after all is
//! written anew, so larger ones have the long one from the beginning. An entry of the index says
//! which, too.
//!
//! The first word changes in one store, so an append becomes visible at once. A hash that outgrew
//! its record keeps its root's offset as the value, at the next multiple of 8 behind the key; so
//! does a sorted set.

use perdura_slots::Lane;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What a record holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    String = 0,
    /// Fields packed in the value.
    PackedHash = 1,
    /// A table of [`RecordKind::Field`] records.
    TableHash = 2,
    /// A field of a hash; the key is its name.
    Field = 3,
    /// A small sorted set.
    PackedSorted = 4,
    /// A table of [`RecordKind::Member`] records, and a tree of them.
    TreeSorted = 5,
    /// A member of a sorted set; the key is its name.
    Member = 6,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub value_len: u32,
    pub key_len: u16,
    pub db: u8,
    pub kind: RecordKind,
    /// Without the word of the expiry.
    pub is_short: bool,
    pub expire_at_ms: u64,
}

/// In the first word.
const SHORT_FLAG: u64 = 1 << 63;

/// Seed of field hashes: no database's number.
const FIELD_SEED: u64 = 0x4649_454c;

impl Header {
    /// Bytes of a header.
    pub const BYTES: u64 = 16;
    /// Bytes of a short one.
    pub const SHORT_BYTES: u64 = 8;
    /// Longest record that has one.
    const SHORT_UP_TO_BYTES: u64 = 256;
    /// Where the expiry word lies.
    pub const AT_EXPIRY: u64 = 8;
    /// Where a member's score lies: it never expires by itself.
    pub const AT_SCORE: u64 = Self::AT_EXPIRY;

    pub fn load(lane: &Lane<'_>, at: u64) -> Self {
        let (words, _) = lane.bytes(at, 16).as_chunks::<8>();
        Self::decode([u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])])
    }

    fn decode([first, expire_at_ms]: [u64; 2]) -> Self {
        let is_short = first & SHORT_FLAG != 0;
        let kind = match first >> 56 & 0x7f {
            0 => RecordKind::String,
            1 => RecordKind::PackedHash,
            2 => RecordKind::TableHash,
            4 => RecordKind::PackedSorted,
            5 => RecordKind::TreeSorted,
            6 => RecordKind::Member,
            _ => RecordKind::Field,
        };
        Self {
            value_len: first as u32,
            key_len: (first >> 32) as u16,
            db: (first >> 48) as u8,
            kind,
            is_short,
            expire_at_ms: if is_short { 0 } else { expire_at_ms },
        }
    }

    /// A record's header: short if it can be.
    pub fn of(key: &[u8], db: u8, kind: RecordKind, value_len: u64, expire_at_ms: u64) -> Self {
        let can_be = match kind {
            RecordKind::String | RecordKind::PackedHash | RecordKind::PackedSorted => true,
            RecordKind::Field => true,
            // What is behind the key has its place; the score lies in the expiry's word.
            RecordKind::TableHash | RecordKind::TreeSorted | RecordKind::Member => false,
        };
        let len = Self::SHORT_BYTES + key.len() as u64 + value_len;
        let is_short = can_be && expire_at_ms == 0 && len <= Self::SHORT_UP_TO_BYTES;
        let (value_len, key_len) = (value_len as u32, key.len() as u16);
        Self { value_len, key_len, db, kind, is_short, expire_at_ms }
    }

    /// Whether the key goes away by itself.
    pub fn expires(&self) -> bool {
        self.expire_at_ms != 0 && self.kind != RecordKind::Member
    }

    /// Bytes of this header.
    #[inline]
    pub fn head_bytes(&self) -> u64 {
        if self.is_short { Self::SHORT_BYTES } else { Self::BYTES }
    }

    /// The word that a change of length stores.
    pub fn first_word(&self) -> u64 {
        u64::from(self.value_len)
            | u64::from(self.key_len) << 32
            | u64::from(self.db) << 48
            | (self.kind as u64) << 56
            | if self.is_short { SHORT_FLAG } else { 0 }
    }

    /// The header's words; of a short one only the first is written.
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

    /// Bytes in use.
    pub fn len_bytes(&self) -> u64 {
        self.value_at() + u64::from(self.value_len)
    }
}

/// Hash of a key.
pub(crate) fn hash_key(db: u8, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, u64::from(db))
}

/// Hash of a hash's field, or of a sorted set's member.
pub(crate) fn hash_field(field: &[u8]) -> u64 {
    xxh3_64_with_seed(field, FIELD_SEED)
}

/// Hash of what a record is found by.
pub(crate) fn hash_record(lane: &Lane<'_>, at: u64) -> u64 {
    let header = Header::load(lane, at);
    let key = lane.bytes(at + header.head_bytes(), usize::from(header.key_len));
    match header.kind {
        RecordKind::Field | RecordKind::Member => hash_field(key),
        _ => hash_key(header.db, key),
    }
}

/// Whether the record at `at`, with a header of so many bytes, is `key`'s. The header is looked at
/// first: a record found by chance may be shorter than the key.
#[inline]
pub(crate) fn is_of(lane: &Lane<'_>, at: u64, head_bytes: u64, db: u8, key: &[u8]) -> bool {
    let wanted = key.len() as u64 | u64::from(db) << 16;
    lane.load(at) >> 32 & 0xff_ffff == wanted && lane.bytes(at + head_bytes, key.len()) == key
}
