//! The words callers speak in: keys, entries, expiry, access.

use perdura_slots::Lane;

use crate::record::{Header, RecordKind};
use crate::table::Found;
use crate::{sorted, table};

/// A key of one of 16 databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key<'a> {
    /// Database, below [`crate::DATABASES`].
    pub db: u8,
    /// At most [`crate::KEY_BYTES_MAX`] bytes.
    pub bytes: &'a [u8],
}

impl<'a> Key<'a> {
    /// A key of database 0.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { db: 0, bytes }
    }
}

/// Kind of value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    String,
    /// Fields with values.
    Hash,
    /// Members in order of their scores.
    Sorted,
}

/// When a value written goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    None,
    /// When the value it replaces would have.
    Keep,
    /// At this time, milliseconds since 1970.
    AtMs(u64),
}

/// Which shards an operation holds. A key outside of them makes the operation panic: it is the
/// caller's own mistake.
#[derive(Debug, Clone, Copy)]
pub enum Access<'a> {
    /// That of one key.
    Key(Key<'a>),
    /// Those of several keys.
    Keys(&'a [Key<'a>]),
    /// All.
    Everything,
}

/// A value as it is found, valid while its shard is held.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// Kind of value.
    pub kind: Kind,
    /// When it goes away, milliseconds since 1970.
    pub expire_at_ms: Option<u64>,
    pub(crate) lane: &'a Lane<'a>,
    pub(crate) at: u64,
    pub(crate) header: Header,
}

impl<'a> Entry<'a> {
    /// The record found of a key of `key_len` bytes. That length and the header's are known; taken
    /// from the header, the value's address would wait for the header to come from memory.
    #[inline]
    pub(crate) fn found(lane: &'a Lane<'a>, found: &Found, key_len: usize) -> Self {
        let entry = Self::new(lane, found.record());
        let is_short = found.head_bytes() == Header::SHORT_BYTES;
        debug_assert_eq!(
            (usize::from(entry.header.key_len), entry.header.is_short),
            (key_len, is_short)
        );
        Self { header: Header { key_len: key_len as u16, is_short, ..entry.header }, ..entry }
    }

    #[inline]
    pub(crate) fn new(lane: &'a Lane<'a>, at: u64) -> Self {
        let header = Header::load(lane, at);
        let kind = match header.kind {
            RecordKind::String => Kind::String,
            RecordKind::PackedHash | RecordKind::TableHash | RecordKind::Field => Kind::Hash,
            RecordKind::PackedSorted | RecordKind::TreeSorted | RecordKind::Member => Kind::Sorted,
        };
        let expire_at_ms = (header.expire_at_ms != 0).then_some(header.expire_at_ms);
        Self { kind, expire_at_ms, lane, at, header }
    }

    /// The record's value bytes, whatever they mean.
    #[inline]
    pub(crate) fn value(&self) -> &'a [u8] {
        let at = self.at + self.header.value_at();
        self.lane.bytes(at, self.header.value_len as usize)
    }

    pub(crate) fn key(&self) -> &'a [u8] {
        self.lane.bytes(self.at + self.header.head_bytes(), usize::from(self.header.key_len))
    }

    /// The value, if it is a string.
    pub fn string(&self) -> Option<&'a [u8]> {
        (self.kind == Kind::String).then(|| self.value())
    }

    /// Number of fields, if it is a hash.
    pub fn hash_len(&self) -> Option<u64> {
        match self.header.kind {
            RecordKind::PackedHash => Some(crate::packed::iter(self.value()).count() as u64),
            RecordKind::TableHash => Some(table::stored_len(self.lane, self.table_root())),
            _ => None,
        }
    }

    /// Whether what it holds lies in a table of its own.
    pub(crate) fn has_table(&self) -> bool {
        matches!(self.header.kind, RecordKind::TableHash | RecordKind::TreeSorted)
    }

    /// Root of the fields' table, or of a sorted set's.
    pub(crate) fn table_root(&self) -> u64 {
        self.lane.load(self.at + self.header.value_at().next_multiple_of(8))
    }

    /// Bytes of memory it takes, slack included. Looks at every field or member of a large one.
    pub fn memory_bytes(&self) -> u64 {
        let own = self.lane.usable_bytes(self.at);
        if !self.has_table() {
            return own;
        }
        let nodes = sorted::top_of(self).map_or(0, |top| sorted::memory_bytes(self.lane, top));
        own + table::memory_bytes(self.lane, self.table_root()) + nodes
    }
}
