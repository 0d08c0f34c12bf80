//! A key-value engine on a heap of slots: shards, index, records, hashes, sets, sorted sets, lists,
//! streams, expiry.
//!
//! A shard is a lane: one lock for the index of some keys, their records and the dirty bits of
//! both. The key's hash picks the shard, then the bucket. An operation ([`Store::run`]) holds the
//! shards of the keys that it declared. It changes memory that references lead to through the
//! heap's undo log only, and commits in one store; so after a kill at any instruction the operation
//! is whole or absent, over any number of shards.
//!
//! Nothing waits while a shard is held. An attempt that must wait, for budget, for memory or for
//! room for a large value, ends: it is rolled back, the shards are released, the wait is done, the
//! operation runs again. Records that the attempt had written are kept for the next one, so that
//! attempts make progress.
//!
//! Counts of keys, the ordered index and the list of detached tables are volatile, and are made
//! anew on open. Counts of a shard that was quiet are saved beside its index.

mod ahead;
mod api;
mod building;
mod counting;
mod counts;
mod entry;
mod error;
mod events;
mod evict;
mod expire;
mod expiring;
mod far;
mod far_runs;
mod fields;
mod in_place;
mod key_counts;
mod list;
mod listpack;
mod members;
mod own;
mod packed;
mod read;
mod rebuild;
mod recency;
mod reclaim;
mod record;
mod run;
mod scan;
mod set;
mod shard;
mod simple;
mod snapshot;
mod sorted;
mod staging;
mod store;
mod stream;
mod table;
mod tree;
mod tx;
mod uses;
mod watches;

pub use ahead::Sought;
pub use api::{Access, DATABASES, Expiry, KEY_BYTES_MAX, Key, Kind, OWN_DATABASE, VALUE_BYTES_MAX};
pub use counts::StoreStats;
pub use entry::Entry;
pub use error::{Damaged, OpenError, StoreError, TxError, Unreadable, WrongType};
pub use events::{Audience, Event, EventClass};
pub use evict::{Eviction, EvictionPolicy, UseHint};
pub use expiring::{FIELD_EXPIRY_MAX_MS, Field};
pub use far::{FarAddress, FarCursor, FarError, FarStats, FarStorage, FarValue, NearValue};
pub use far_runs::{EmptyingRun, FoundRun};
pub use list::{End, List};
pub use packed::small::SmallSets;
pub use rebuild::{FAR_ROOT_NAME, StoreOptions};
pub use recency::quietly;
pub use scan::Range;
pub use set::{Set, SetForm};
pub use snapshot::{Snapshot, SnapshotError, SnapshotSink};
pub use sorted::Sorted;
pub use store::{Place, Store};
pub use stream::{Consumer, Fields, Group, Pending, Stream, StreamId};
pub use tree::Edge;
pub use tx::{ChunkLimits, Delivery, StreamPart, StreamTrim, TrimTo, Tx};
pub use watches::{Changed, Listener, Watch};

pub use perdura_slots::{Heap, HeapError};
