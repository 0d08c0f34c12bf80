//! Memory with a bounded dirty set (Viyojit, section 5, on a stock kernel).
//!
//! A region is a range of DRAM of which at most the *budget* is not yet on the SSD, at every
//! instant. Reads never trap. Writers either announce ranges (`barrier`) or just store (`trap`);
//! both mark *grains* in a ledger in shared memory before the bytes change. See
//! `docs/architecture.md`.
//!
//! What is not on the SSD yet is known to the crate `perdura-dirty`; the log on the SSD is the
//! crate `perdura-image`. Here they are joined: a cleaner, checkpoints, the promise and its proof,
//! flushes, and the holder that outlives a server.
//!
//! Lock order: cleaner, then lanes in ascending order, then appender. Waiting for budget happens
//! with none of them held. A fault handler takes no lock at all.

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
pub mod drill;
pub mod flush;
pub mod holder;
mod kind_change;
mod kinds;
mod load_first;
mod memory_files;
mod open;
pub mod paged;
pub mod prove;
pub mod region;
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

pub use perdura_dirty::{geometry, planted, policy, promise, written};
#[doc(hidden)]
pub use perdura_image::fuzzing;
pub use perdura_image::{format, inspect};

pub use paged::{PagedConfig, PagedError, PagedMemory};
pub use perdura_dirty::geometry::{BLOCK_BYTES, Geometry};
pub use perdura_dirty::policy::PolicyKind;
pub use perdura_dirty::{
    CachePadded, Heat, Kind, LaneGuard, LaneId, Need, Planes, RegionError, SetupError, Stats,
    TrackingKind, TrapKind,
};
pub use perdura_image::{Compression, ImageError, LoadProgress, OpenError, Unreadable};
pub use region::{Config, Region};
pub use trapped::{Prepared, TrappedMemory};
