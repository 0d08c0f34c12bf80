//! The reasons why there is no report on a trace.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::power::BatteryError;
use crate::sizing::SizingError;
use crate::skew::SkewError;
use crate::trace::TraceError;

/// Why there is no report on a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace cannot be analysed.
    #[error(transparent)]
    Skew(#[from] SkewError),
    /// The trace cannot be replayed.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// There is no such battery.
    #[error(transparent)]
    Battery(#[from] BatteryError),
    /// The trace is a pipe, which can be read once, and replays read it again.
    #[error(
        "{file}: is a pipe, which can be read once, and sizing reads a trace several times: store \
         it in a file, give it as `-` on standard input, which is kept in one, or give \
         --no-sizing"
    )]
    Once {
        /// The path of the pipe.
        file: String,
    },
    /// The memory is larger than any that is replayed.
    #[error(
        "a memory of {memory_bytes} bytes is more than the {limit_bytes} that a replay can have: \
         give a smaller --volume-size, or --no-sizing"
    )]
    Memory {
        /// The bytes of the memory.
        memory_bytes: u64,
        /// The most bytes that a replayed memory may have.
        limit_bytes: u64,
    },
    /// The trace holds no record of an access.
    #[error(
        "{files}: no record of an access is in there; is it the right file, and the right format?"
    )]
    NoRecords {
        /// The paths of the trace's files.
        files: String,
    },
    /// No image can hold the memory.
    #[error(transparent)]
    Image(#[from] perdura_region::OpenError),
    /// The warning or battery given allows less than the smallest budget there is.
    #[error(
        "the warning or battery given allows a budget of {} bytes, less than the smallest there \
         can be (128 KiB): give more of it, a faster --flush-rate, or a shorter --reserve",
        budget_max_bytes.unwrap_or(0)
    )]
    NoBudget {
        /// The budget that it allows, bytes.
        budget_max_bytes: Option<u64>,
    },
    /// The trace was another one the second time it was read.
    #[error(
        "the trace ended differently the second time it was read: {first} page writes, then \
         {then}; is somebody writing to it?"
    )]
    Changed {
        /// The page writes of the first pass.
        first: u64,
        /// The page writes of a later pass.
        then: u64,
    },
}

impl ReportError {
    /// The error of a path that cannot be read a second time.
    pub(super) fn once(path: &Path) -> Option<Self> {
        // The error of a path that cannot be looked at comes from opening it.
        let kind = std::fs::metadata(path).ok()?.file_type();
        let is_once = kind.is_fifo() || kind.is_socket();
        is_once.then(|| Self::Once { file: path.display().to_string() })
    }

    pub(super) fn no_records(paths: &[PathBuf]) -> Self {
        let files: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        Self::NoRecords { files: files.join(", ") }
    }
}
