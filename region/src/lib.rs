//! Memory with a bounded dirty set (Viyojit, section 5, on a stock kernel).
//!
//! A region is a range of DRAM of which at most the *budget* is not yet on the SSD, at every
//! instant. Reads never trap. Writers either announce ranges (`barrier`) or just store (`trap`);
//! both mark *grains* in a ledger in shared memory before the bytes change. See
//! `docs/architecture.md`.
//!
//! Lock order: cleaner, then lanes in ascending order, then appender. Waiting for budget happens
//! with none of them held. A fault handler takes no lock at all (see `tracking::fault`).

mod ahead;
pub mod announce;
mod append;
mod assemble;
mod attachment;
mod checkpoint;
mod clean;
mod codec;
mod compact;
mod config;
mod core;
mod demand;
mod describe;
pub mod directory;
pub mod drill;
pub mod error;
mod floor;
pub mod flush;
pub mod format;
#[doc(hidden)]
pub mod fuzzing;
pub mod holder;
mod image;
pub mod inspect;
pub mod kinds;
mod load;
mod loaded;
pub mod paged;
pub mod prove;
mod recover;
pub mod region;
mod seal;
mod sweep;
#[cfg(test)]
mod testing;
mod tracking;
mod trapped;
mod watch;

pub use perdura_dirty::{geometry, planted, policy, promise, written};

pub use announce::{LaneGuard, Need};
pub use codec::Compression;
pub use error::{ImageError, OpenError, Unreadable};
pub use loaded::LoadProgress;
pub use paged::{PagedConfig, PagedError, PagedMemory};
pub use perdura_dirty::apart::Apart;
pub use perdura_dirty::error::RegionError;
pub use perdura_dirty::geometry::{BLOCK_BYTES, Geometry};
pub use perdura_dirty::heat::{Heat, Planes};
pub use perdura_dirty::kind::Kind;
pub use perdura_dirty::lanes::LaneId;
pub use perdura_dirty::policy::PolicyKind;
pub use perdura_dirty::stats::Stats;
pub use region::{Config, Region};
pub use tracking::{TrackingKind, TrapKind};
pub use trapped::{Prepared, TrappedMemory};
