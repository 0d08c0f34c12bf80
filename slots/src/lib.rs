//! Memory to build structures in, on a region: an allocator, an undo log, named roots.
//!
//! What is durable and what is not: the *span table* (which 64 KiB span belongs to which lane and
//! size class), the *undo logs* and the *roots* lie in region memory. Which slots of a span are
//! free is volatile and made anew on every open, from what the heap's user reaches
//! ([`Heap::rebuild`]): so an allocation dirties nothing but the object itself, and memory that a
//! killed process had taken and not yet linked is free again.
//!
//! An operation ([`Op`]) holds the lanes it works on. Objects it allocates are filled freely, since
//! nobody reaches them; what is reachable changes through the undo log only: record first, then
//! store. Commit is one 8-byte store. Freed memory is given out again only after it.
//!
//! Lock order: the user's lanes ascending, then the *meta lane* (the highest), which the heap takes
//! for the time of one span table change. Nothing here waits while a lane is held: what an
//! operation must wait for comes back as [`Stop::Need`].

#[cfg(target_endian = "big")]
compile_error!("region memory holds little-endian words; a big-endian machine would misread them");

pub mod check;
mod classes;
mod error;
mod heap;
mod lane;
mod layout;
mod log;
mod op;
mod pool;
mod rebuild;

pub use error::{HeapError, Stop};
pub use heap::{Heap, HeapStats};
pub use lane::Lane;
pub use layout::{LANE_ROOT_BYTES, OBJECT_ALIGN_BYTES, OBJECT_BYTES_MAX};
pub use op::{LaneSet, LastStore, Op};
pub use rebuild::Marks;

pub use perdura_region::{Heat, LaneId, Need, Region, RegionError, Unreadable};
