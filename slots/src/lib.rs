//! The store's own heap: objects on a region, in slots of size classes, with an undo log and roots.
//!
//! The *span table* (which lane and size class each 8 KiB span belongs to), the *undo logs* and
//! the *roots* lie in region memory and are durable. The allocator's state, that is which slots of
//! a span are free, is volatile. It is made anew on every open from the references that the heap's
//! user follows ([`Heap::rebuild`]). So an allocation makes nothing dirty but the object itself,
//! and memory that a killed process had taken and not yet linked is free again.
//!
//! An operation ([`Op`]) holds the lanes that it works on. An operation fills the objects that it
//! allocates without logging, because no reference leads to them yet. Memory that references lead
//! to changes through the undo log only: the old value is recorded, then the new one is stored. A
//! commit is one 8-byte store. Freed memory is given out again only after the commit.
//!
//! Lock order: the user's lanes ascending, then the *meta lane* (the highest), which the heap takes
//! for the time of one change of the span table. Nothing here waits while a lane is held: an
//! operation that must wait ends with [`Stop::Need`].

#[cfg(target_endian = "big")]
compile_error!("region memory holds little-endian words; a big-endian machine would misread them");

pub mod check;
mod classes;
mod error;
mod fuse;
mod heap;
mod lane;
mod layout;
mod log;
mod op;
mod open;
mod pool;
mod rebuild;
mod roots;
mod runs;
mod span_word;
mod spans;

pub use error::{HeapError, Stop};
pub use heap::{Heap, HeapStats};
pub use lane::Lane;
pub use layout::{LANE_ROOT_BYTES, OBJECT_ALIGN_BYTES, OBJECT_BYTES_MAX};
pub use op::{LaneSet, LastStore, Op};
pub use rebuild::Marks;
pub use runs::Run;

pub use perdura_region::{Heat, LaneId, Need, Rank, Ranked, Region, RegionError, Unreadable};
