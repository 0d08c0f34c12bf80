//! A value as an operation finds it in its shard.

use perdura_slots::Lane;

use crate::api::Kind;
use crate::expiring::{self, Field};
use crate::far::{self, FarAddress};
use crate::list::{self, Root};
use crate::members;
use crate::packed;
use crate::record::{Header, RecordKind};
use crate::stream;
use crate::table::{self, Found};

/// A key's value as it is found, valid while the key's shard is held.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// The kind of the value.
    pub kind: Kind,
    /// When the key goes away, in milliseconds since 1970; `None` for never.
    pub expire_at_ms: Option<u64>,
    pub(crate) lane: &'a Lane<'a>,
    /// Offset of the record.
    pub(crate) at: u64,
    pub(crate) header: Header,
    /// The value, if it was far and an operation has read it.
    read: Option<&'a [u8]>,
    /// The time by which fields have expired, for a hash with expiring fields.
    now_ms: u64,
}

impl<'a> Entry<'a> {
    /// The record found of a key of `key_len` bytes. This length, and that of the header, are known
    /// beforehand: if they were taken from the header, the value's address would wait for the
    /// header to come from memory.
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

    /// The record at `at`; unwinds with [`crate::Damaged`] if no store writes such a record.
    #[inline(always)]
    pub(crate) fn new(lane: &'a Lane<'a>, at: u64) -> Self {
        Self::of(lane, at, Header::load(lane, at))
    }

    /// The record at `at`, whose header is known.
    #[inline(always)]
    pub(crate) fn of(lane: &'a Lane<'a>, at: u64, header: Header) -> Self {
        let kind = match header.kind {
            RecordKind::String | RecordKind::PatchedString => Kind::String,
            RecordKind::PackedHash | RecordKind::TableHash | RecordKind::Field => Kind::Hash,
            RecordKind::ExpiringHash => Kind::Hash,
            RecordKind::PackedSorted | RecordKind::TreeSorted | RecordKind::Member => Kind::Sorted,
            RecordKind::PackedList | RecordKind::LargeList | RecordKind::ListPart => Kind::List,
            RecordKind::IntSet | RecordKind::PackedSet | RecordKind::TableSet => Kind::Set,
            RecordKind::Stream | RecordKind::StreamChunk => Kind::Stream,
            RecordKind::StreamGroup | RecordKind::StreamConsumer => Kind::Stream,
            RecordKind::Far => return Self::of_far(lane, at, header),
        };
        let expire_at_ms = (header.expire_at_ms != 0).then_some(header.expire_at_ms);
        Self { kind, expire_at_ms, lane, at, header, read: None, now_ms: 0 }
    }

    /// The entry, without the fields that have expired at the time that `now_ms` returns.
    #[inline(always)]
    pub(crate) fn seen_at(self, now_ms: impl FnOnce() -> u64) -> Self {
        match self.header.kind {
            RecordKind::ExpiringHash => Self { now_ms: now_ms(), ..self },
            _ => self,
        }
    }

    /// The time by which fields have expired.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    #[cold]
    fn of_far(lane: &'a Lane<'a>, at: u64, header: Header) -> Self {
        let expire_at_ms = (header.expire_at_ms != 0).then_some(header.expire_at_ms);
        let entry =
            Self { kind: Kind::String, expire_at_ms, lane, at, header, read: None, now_ms: 0 };
        let kind = match far::address(lane, &entry).map(|at| at.record_kind()) {
            Some(RecordKind::PackedHash) => Kind::Hash,
            Some(RecordKind::PackedSorted) => Kind::Sorted,
            Some(RecordKind::PackedList) => Kind::List,
            Some(RecordKind::IntSet | RecordKind::PackedSet) => Kind::Set,
            _ => Kind::String,
        };
        Self { kind, ..entry }
    }

    /// The value's address, if the value is far and was not read.
    #[inline]
    pub(crate) fn far(&self) -> Option<FarAddress> {
        far::address(self.lane, self)
    }

    /// The entry with the value that was read at its address.
    #[inline]
    pub(crate) fn with_value(&self, at: &FarAddress, value: &'a [u8]) -> Self {
        let header = Header { kind: at.record_kind(), value_len: at.value_bytes, ..self.header };
        Self { header, read: Some(value), ..*self }
    }

    /// Whether the value was far and an operation has read it.
    pub(crate) fn was_far(&self) -> bool {
        self.read.is_some()
    }

    /// The bytes of the record's value, whatever they mean.
    #[inline]
    pub(crate) fn value(&self) -> &'a [u8] {
        if let Some(value) = self.read {
            return value;
        }
        assert!(self.header.kind != RecordKind::Far, "a far value is used that was not read");
        self.record_value()
    }

    /// The bytes that the record has in the place of a value, be it a value or a far value's
    /// address.
    pub(crate) fn record_value(&self) -> &'a [u8] {
        self.lane.bytes(self.at + self.header.value_at(), self.header.value_len as usize)
    }

    /// The key's name.
    pub(crate) fn key(&self) -> &'a [u8] {
        self.lane.bytes(self.at + self.header.head_bytes(), usize::from(self.header.key_len))
    }

    /// The value, if it is a string.
    pub fn string(&self) -> Option<&'a [u8]> {
        (self.kind == Kind::String).then(|| self.value())
    }

    /// Bytes of the value, if it is a string. The value need not be in memory.
    pub fn string_len(&self) -> Option<u64> {
        let len = || self.far().map_or(self.header.value_len, |at| at.value_bytes);
        (self.kind == Kind::String).then(|| u64::from(len()))
    }

    /// Calls `f` with every field, and with when it goes away, if the value is a hash.
    pub fn for_each_expiring_field(&self, f: &mut dyn FnMut(Field<'_>)) {
        if !self.has_table() || self.kind != Kind::Hash {
            return self.for_each_field(&mut |name, value| {
                f(Field { name, value, expire_at_ms: None });
            });
        }
        let root = self.table_root();
        for bucket in 0..table::buckets(self.lane, root) {
            expiring::for_each_live(self.lane, root, bucket, self.now_ms, |record| {
                let (name, value) = (record.key(), record.value());
                f(Field { name, value, expire_at_ms: record.expire_at_ms });
            });
        }
    }

    /// The number of fields, if the value is a hash.
    pub fn hash_len(&self) -> Option<u64> {
        match self.header.kind {
            RecordKind::PackedHash => Some(packed::iter(self.value()).count() as u64),
            RecordKind::TableHash => Some(table::stored_len(self.lane, self.table_root())),
            RecordKind::ExpiringHash => {
                Some(expiring::live_len(self.lane, self.table_root(), self.now_ms))
            }
            _ => None,
        }
    }

    /// Calls `f` with every field and its value, if the value is a hash.
    pub fn for_each_field(&self, f: &mut dyn FnMut(&[u8], &[u8])) {
        match self.header.kind {
            RecordKind::PackedHash => {
                packed::iter(self.value()).for_each(|(name, value)| f(name, value))
            }
            RecordKind::TableHash | RecordKind::ExpiringHash => {
                self.for_each_expiring_field(&mut |field| f(field.name, field.value));
            }
            _ => {}
        }
    }

    /// Whether fields or members lie in a table of the value's own.
    pub(crate) fn has_table(&self) -> bool {
        self.header.has_table()
    }

    /// The root of the table of fields or members.
    pub(crate) fn table_root(&self) -> u64 {
        self.lane.load(self.at + self.header.value_at().next_multiple_of(8))
    }

    /// The top of the tree of a large sorted set's members, or of the fields that have an expiry,
    /// if the value has such a tree.
    pub(crate) fn tree_top(&self) -> Option<u64> {
        let has_tree =
            matches!(self.header.kind, RecordKind::TreeSorted | RecordKind::ExpiringHash);
        let top = has_tree.then(|| members::top(self.lane, self.table_root()))?;
        // A hash without fields that expire has no tree; a sorted set always has one.
        (top != 0 || self.header.kind == RecordKind::TreeSorted).then_some(top)
    }

    /// Whether the value is a hash of which fields have an expiry, or had one.
    pub fn has_expiring_fields(&self) -> bool {
        self.header.kind == RecordKind::ExpiringHash
    }

    /// Whether the value is a string of which a part was changed since it was set.
    pub fn is_patched_string(&self) -> bool {
        self.header.kind == RecordKind::PatchedString
    }

    /// The root of a large list.
    pub(crate) fn list_root(&self) -> Option<Root> {
        (self.header.kind == RecordKind::LargeList).then(|| Root::of(self))
    }

    /// The root of a stream.
    pub(crate) fn stream_root(&self) -> Option<stream::Root> {
        (self.header.kind == RecordKind::Stream).then(|| stream::Root::of(self))
    }

    /// Bytes of memory that the key takes, slack included. The call looks at every field or member
    /// of a large value.
    pub fn memory_bytes(&self) -> u64 {
        let own = self.lane.usable_bytes(self.at);
        if let Some(root) = self.list_root() {
            return own + list::memory_bytes(self.lane, &root);
        }
        if let Some(root) = self.stream_root() {
            return own + stream::pieces::memory_bytes(self.lane, &root);
        }
        if !self.has_table() {
            return own;
        }
        let nodes = self.tree_top().map_or(0, |top| members::nodes_bytes(self.lane, top));
        own + table::memory_bytes(self.lane, self.table_root()) + nodes
    }
}
