//! The part of a region's memory that is not on the SSD yet: the ledger that records it, the locks
//! and traps by which every write is noticed before it happens, the budget that bounds it, and the
//! policies that choose what is cleaned first.
//!
//! Nothing here knows the image or the SSD. Some writes need them, because the old bytes are still
//! owed to a closing epoch or were not loaded yet: these go through the trait [`Backing`].

#![warn(unreachable_pub)]

mod announce;
mod backing;
mod block_heat;
mod budget;
mod cache_padded;
mod count;
mod error;
mod event_count;
mod floor;
mod gate;
mod gathered;
mod heat;
mod hints;
mod huge_pages;
mod kind;
mod lane_memory;
mod lanes;
mod ledger;
mod locations;
mod memory;
mod observed;
mod ranks;
mod rate;
mod stats;
mod summary;
mod sync;
mod thread_number;
mod tracked;
mod tracking;
mod waited;

// Sizes, policies and arithmetic, which planning tools use as well.
pub mod extent;
pub mod geometry;
pub mod planted;
pub mod policy;
pub mod promise;
pub mod schedule;

// Memory, and the ledger of it in shared memory.
pub use count::count_live;
pub use huge_pages::HugePages;
pub use kind::{Kind, KindBits};
pub use ledger::{
    BufferState, FrameBuffer, LIVE_LAYOUT, Ledger, Packed, SegmentState, UNDO_BYTES_MAX,
};
pub use locations::NO_LOCATION;
pub use memory::{Memory, MemoryParts};
pub use stats::{Counters, Stats};

// How writes are noticed.
pub use announce::{LaneGuard, Undo};
pub use backing::{Backing, Need};
pub use lanes::{LaneId, LaneState, Lanes};
pub use tracked::Tracked;
pub use tracking::{Blocked, Guest, PageTracker, Service, TrackingKind, TrapKind};

// What is cleaned, and how much may be dirty.
pub use block_heat::BlockHeat;
pub use budget::Tell;
pub use floor::Floor;
pub use heat::{Heat, Planes};
pub use rate::RateWatch;

// Errors, locks and the unsafe seam.
pub mod sys;
pub mod written;
pub use cache_padded::CachePadded;
pub use error::{RegionError, SetupError};
pub use event_count::EventCount;
pub use gate::Inside;
pub use ranks::{Held, Rank, Ranked, RankedGuard, taken, taking};
pub use waited::{Waited, WaitedGuard};
