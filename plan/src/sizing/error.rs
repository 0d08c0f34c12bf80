//! The errors of a replay.

use perdura_region::OpenError;

/// Why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SizingError {
    /// A setting has a value that no region takes.
    #[error("{name} of {value}: expected {expected}")]
    Setting {
        /// The name of the setting.
        name: &'static str,
        /// The value that was given.
        value: u64,
        /// The values that a region takes.
        expected: &'static str,
    },
    /// No image can have these sizes.
    #[error("a region of {region_bytes} bytes: {source}")]
    Geometry {
        /// The bytes of the region.
        region_bytes: u64,
        /// The error that a region gives.
        source: OpenError,
    },
    /// The trace writes to more pages than the memory has.
    #[error(
        "the trace writes to more than the {region_bytes} bytes of memory it is replayed on; give \
         at least the bytes of its written pages"
    )]
    Footprint {
        /// The bytes of the memory.
        region_bytes: u64,
    },
    /// The real region to compare with could not be opened.
    #[error("a region to compare with: {0}")]
    Open(#[from] OpenError),
    /// The time of a record is before that of the record before it.
    #[error(
        "a record at {found_ns} ns follows one at {before_ns} ns: records must be in order of time"
    )]
    Order {
        /// The time of the record before, nanoseconds.
        before_ns: u64,
        /// The time of the record, nanoseconds.
        found_ns: u64,
    },
}
