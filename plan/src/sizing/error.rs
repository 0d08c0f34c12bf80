//! What can be wrong with a replay.

use perdura_region::OpenError;

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SizingError {
    /// A setting that no region takes.
    #[error("{name} of {value}: expected {expected}")]
    Setting {
        /// Which.
        name: &'static str,
        /// As given.
        value: u64,
        /// What would do.
        expected: &'static str,
    },
    /// Sizes no image can have.
    #[error("a region of {region_bytes} bytes: {source}")]
    Geometry {
        /// The region's size.
        region_bytes: u64,
        /// Why not.
        source: OpenError,
    },
    /// The trace writes to more pages than the memory has.
    #[error(
        "the trace writes to more than the {region_bytes} bytes of memory it is replayed on; give at least the bytes of its written pages"
    )]
    Footprint {
        /// The memory's size.
        region_bytes: u64,
    },
    /// A real region, to compare with, could not be opened.
    #[error("a region to compare with: {0}")]
    Open(#[from] OpenError),
    /// Time went back.
    #[error(
        "a record at {found_ns} ns follows one at {before_ns} ns: records must be in order of time"
    )]
    Order {
        /// The time before.
        before_ns: u64,
        /// The time found.
        found_ns: u64,
    },
}
