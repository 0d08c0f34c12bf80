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
pub mod budget;
mod checkpoint;
mod clean;
mod codec;
mod compact;
mod config;
mod core;
mod count;
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
mod gathered;
pub mod geometry;
mod heat;
pub mod holder;
mod homes;
mod image;
pub mod inspect;
pub mod kinds;
mod lanes;
mod ledger;
mod load;
mod loaded;
mod observed;
pub mod paged;
pub mod planted;
pub mod policy;
pub mod promise;
pub mod prove;
mod recover;
pub mod region;
mod seal;
pub mod stats;
mod summary;
mod sweep;
mod sys;
#[cfg(test)]
mod testing;
mod tracking;
mod trapped;
mod waited;
mod watch;
pub mod written;

pub use announce::{LaneGuard, Need};
pub use codec::Compression;
pub use error::{ImageError, OpenError, RegionError, Unreadable};
pub use geometry::{BLOCK_BYTES, Geometry};
pub use heat::{Heat, Planes};
pub use kinds::Kind;
pub use lanes::{Apart, LaneId};
pub use loaded::LoadProgress;
pub use paged::{PagedConfig, PagedError, PagedMemory};
pub use policy::PolicyKind;
pub use region::{Config, Region};
pub use stats::Stats;
pub use tracking::{TrackingKind, TrapKind};
pub use trapped::{Prepared, TrappedMemory};
