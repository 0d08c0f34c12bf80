//! Values as they are between two encodings.

use std::fmt;

use crate::strings::Strings;

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A string.
    String(Vec<u8>),
    /// The elements of a list.
    List(Strings),
    /// The members of a set, no two alike.
    Set(Strings),
    /// The members of a sorted set, no two alike, each with its score, which is a number.
    Sorted(Strings, Vec<f64>),
    /// The fields of a hash, no two alike, each with its value behind.
    Hash(Strings),
    /// The fields of a hash as in [`Value::Hash`], and when each goes away, in milliseconds since
    /// 1970; `None` for never.
    ExpiringHash(Strings, Vec<Option<u64>>),
    /// A stream.
    Stream(Box<Stream>),
}

impl Value {
    /// Whether a key with this value is no key: a collection has at least one element. A stream
    /// may be empty.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::String(_) | Self::Stream(_) => false,
            Self::List(strings) | Self::Set(strings) => strings.is_empty(),
            Self::Sorted(strings, _) | Self::Hash(strings) => strings.is_empty(),
            Self::ExpiringHash(fields, _) => fields.is_empty(),
        }
    }

    /// The number of elements, members, fields or entries; 1 of a string.
    pub fn len(&self) -> u64 {
        match self {
            Self::String(_) => 1,
            Self::List(strings) | Self::Set(strings) => strings.len() as u64,
            Self::Sorted(_, scores) => scores.len() as u64,
            Self::Hash(fields) | Self::ExpiringHash(fields, _) => fields.len() as u64 / 2,
            Self::Stream(stream) => stream.entries.len() as u64,
        }
    }
}

/// The name of an entry of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since 1970.
    pub ms: u64,
    /// Number among the entries of the same millisecond.
    pub seq: u64,
}

impl StreamId {
    /// The ID as it is stored: two numbers, their highest bytes first.
    pub(crate) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.ms.to_be_bytes());
        bytes[8..].copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; 16]) -> Self {
        let number = u128::from_be_bytes(bytes);
        Self { ms: (number >> 64) as u64, seq: number as u64 }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// A stream: its entries, what it remembers of those that are gone, its groups.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stream {
    /// The entries, by rising IDs.
    pub entries: Vec<StreamEntry>,
    /// The largest ID that an entry had.
    pub last_id: StreamId,
    /// The largest ID of an entry that was deleted.
    pub max_deleted_id: StreamId,
    /// Entries that were ever added.
    pub entries_added: u64,
    /// The groups.
    pub groups: Vec<Group>,
}

/// An entry of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamEntry {
    /// The entry's ID.
    pub id: StreamId,
    /// Fields, each with its value behind.
    pub fields: Strings,
}

/// A group of consumers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// The group's name.
    pub name: Vec<u8>,
    /// The last entry that was delivered.
    pub last_id: StreamId,
    /// Entries that the group has read; `None` where that is not known.
    pub entries_read: Option<u64>,
    /// Entries that were delivered and not acknowledged, by rising IDs.
    pub pending: Vec<Pending>,
    /// The consumers.
    pub consumers: Vec<Consumer>,
}

/// An entry that was delivered and not acknowledged.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    /// The entry's ID.
    pub id: StreamId,
    /// When it was delivered last, milliseconds since 1970.
    pub delivered_ms: u64,
    /// How many times it was delivered.
    pub deliveries: u64,
    /// Index of its consumer in the group.
    pub consumer: usize,
}

/// A consumer of a group.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Consumer {
    /// The consumer's name.
    pub name: Vec<u8>,
    /// When it was last seen, milliseconds since 1970.
    pub seen_ms: u64,
    /// When it last got an entry; `None`: never. As `seen_ms` where the dump does not say.
    pub active_ms: Option<u64>,
}
