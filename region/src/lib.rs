//! Memory with a bounded dirty set (Viyojit, section 5, on a stock kernel).
//!
//! A region is a range of DRAM of which at most the *budget* is not yet on the SSD, at every
//! instant. Reads never trap. Writers either announce ranges (`barrier`) or just store (`trap`);
//! both mark *grains* in a ledger in shared memory before the bytes change. See
//! `docs/architecture.md`.
//!
//! The crate `perdura-dirty` knows what is not on the SSD yet, and `perdura-image` is the log on
//! the SSD. This crate joins them: with a cleaner, checkpoints, the promise and its proof, flushes,
//! and the holder that outlives a server.
//!
//! - [`Region`] is opened on a device, or by [`directory::Directory`] with everything that a
//!   program needs.
//! - [`holder`] is the process that keeps a region's memory when its server is gone.
//! - [`PagedMemory`](paged::PagedMemory) is memory of which only a part is in DRAM.
//!
//! Lock order: the cleaner, then lanes in ascending order, then the appender. Waiting for budget
//! happens with none of them held. A fault handler takes no lock at all.

#![warn(unreachable_pub)]

mod attachment;
mod budgeting;
mod capacity;
mod checkpoint;
mod clean;
mod closing;
mod config;
mod demand;
mod describe;
pub mod directory;
mod drill;
mod flush;
pub mod holder;
mod kind_change;
mod kinds;
mod load_first;
mod memory_files;
mod open;
pub mod paged;
mod panics;
mod prove;
mod region;
pub mod room;
mod rounds;
mod running;
mod satisfy;
mod space;
mod sweep;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod thread;
mod trapped;

// A region, how it is opened, and how it is flushed.
pub use attachment::Attachment;
pub use config::Config;
pub use drill::DrillReport;
pub use flush::{FlushOptions, FlushReport};
pub use prove::Proof;
pub use region::{Origin, Region};
pub use trapped::{Prepared, TrappedMemory};

// The types of other rooms that settings, methods and errors of a region are made of.
pub use perdura_dirty::geometry::{BLOCK_BYTES, BUDGET_MIN_BYTES, Geometry, REGION_MIN_BYTES};
pub use perdura_dirty::planted::Planted;
pub use perdura_dirty::policy::PolicyKind;
pub use perdura_dirty::promise::{
    BudgetWish, Promise, Terms, default_reserve, flush_time, largest_within, promise,
};
pub use perdura_dirty::sys::{Mapping, prefetch, prefetch_to_store};
pub use perdura_dirty::{
    Guest, Heat, Kind, LaneGuard, LaneId, Need, Rank, Ranked, RegionError, SetupError, Stats,
    TrackingKind, TrapKind, Undo,
};
pub use perdura_image::superblock::change_key;
pub use perdura_image::{Compression, ImageError, Key, LoadProgress, OpenError, Unreadable};
