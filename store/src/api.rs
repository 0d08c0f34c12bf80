//! The words that callers speak in: keys, kinds of values, expiry, and the keys an operation uses.

use crate::store::Place;

/// Databases of a store, numbered from 0.
pub const DATABASES: u8 = 16;
/// The program's own database, for what a server keeps beside its users' keys. Nothing that works
/// on all databases, from 0 to [`DATABASES`], sees or removes its keys; a walk over all keys cannot
/// be asked for it. See [`crate::Store::make_own_database`].
pub const OWN_DATABASE: u8 = DATABASES;
/// Bytes of the longest key, hash field or member of a set.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Bytes of the longest value.
pub const VALUE_BYTES_MAX: usize = 512 << 20;

/// A key of one of the store's databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key<'a> {
    /// Number of the database, below [`DATABASES`], or [`OWN_DATABASE`].
    pub db: u8,
    /// The key's name, of at most [`KEY_BYTES_MAX`] bytes.
    pub bytes: &'a [u8],
}

impl<'a> Key<'a> {
    /// A key of database 0.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { db: 0, bytes }
    }
}

/// The kinds of values that a key can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A string of bytes.
    String,
    /// Fields, each with a value.
    Hash,
    /// A sorted set: members in the order of their scores.
    Sorted,
    /// A list: elements in an order of their own.
    List,
    /// A set: members without an order.
    Set,
    /// A stream: entries in the order of their IDs, and groups of consumers.
    Stream,
}

/// When a value that is written goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// The value never goes away by itself.
    None,
    /// The value goes away when the one it replaces would have.
    Keep,
    /// The value goes away at this time, in milliseconds since 1970.
    AtMs(u64),
}

/// The keys that an operation may use, which decide the shards it holds. An operation that uses a
/// key of another shard panics: that is a mistake of the program.
#[derive(Debug, Clone, Copy)]
pub enum Access<'a> {
    /// A single key.
    Key(Key<'a>),
    /// A single key, with its place, which the caller has asked for before.
    Placed(Key<'a>, Place),
    /// Several keys.
    Keys(&'a [Key<'a>]),
    /// All keys of all databases.
    Everything,
}
