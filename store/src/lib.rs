//! A key-value engine on the heap: shards, index, records, hashes, sorted sets, expiry.
//!
//! A shard is a lane: one lock for a key's index, its records and their dirty bits. The key's hash
//! picks the shard, then the bucket. An operation ([`Store::run`]) holds the shards it declared,
//! changes what is reachable through the heap's undo log only, and commits in one store; so it is
//! whole or absent after a kill at any instruction, over any number of shards.
//!
//! Nothing waits while a shard is held. What an operation must wait for (budget, memory, room for a
//! large value) ends the attempt: it is rolled back, the shards are released, the wait is done, the
//! operation runs again. Records it had already written are kept for the next attempt, so that
//! attempts make progress.
//!
//! Volatile, made anew on open: key counts, the ordered index, the list of detached tables.

mod ahead;
mod api;
mod error;
mod expire;
mod hash;
mod packed;
mod record;
mod run;
mod scan;
mod shard;
mod sorted;
mod staging;
mod store;
mod table;
mod tx;
mod values;
mod watch;

pub use api::{Access, Entry, Expiry, Key, Kind};
pub use error::{OpenError, StoreError, TxError, WrongType};
pub use scan::Range;
pub use sorted::{Edge, Sorted};
pub use store::{Place, Store, StoreOptions, StoreStats};
pub use tx::Tx;
pub use watch::Watch;

pub use perdura_slots::{Heap, Unreadable};
/// Databases, numbered from 0.
pub const DATABASES: u8 = 16;
/// Longest key, hash field or member of a sorted set, bytes.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Longest value, bytes.
pub const VALUE_BYTES_MAX: usize = 512 << 20;
