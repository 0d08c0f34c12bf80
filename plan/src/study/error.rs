//! Why there is no study.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::power::BatteryError;
use crate::sizing::SizingError;
use crate::skew::SkewError;
use crate::trace::TraceError;

/// Why there is no study.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// It cannot be analysed.
    #[error(transparent)]
    Skew(#[from] SkewError),
    /// It cannot be replayed.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// No such battery.
    #[error(transparent)]
    Battery(#[from] BatteryError),
    /// It can be read once, and replays read it again.
    #[error(
        "{file}: is a pipe, which can be read once, and sizing reads a trace several times: store it in a file, give it as `-` on \
         standard input, which is kept in one, or give --no-sizing"
    )]
    Once {
        /// The pipe.
        file: String,
    },
    /// Larger than any replay.
    #[error(
        "a memory of {memory_bytes} bytes is more than the {limit_bytes} that a replay can have: give a smaller --volume-size, or \
         --no-sizing"
    )]
    Memory {
        /// The memory.
        memory_bytes: u64,
        /// The largest.
        limit_bytes: u64,
    },
    /// Nothing in it.
    #[error(
        "{files}: no record of an access is in there; is it the right file, and the right format?"
    )]
    NoRecords {
        /// The files.
        files: String,
    },
    /// No image can hold it.
    #[error(transparent)]
    Image(#[from] perdura_region::OpenError),
    /// The warning or battery allows nothing.
    #[error(
        "the warning or battery given allows a budget of {} bytes, less than the smallest there can be (128 KiB): \
         give more of it, a faster --flush-rate, or a shorter --reserve",
        budget_max_bytes.unwrap_or(0)
    )]
    NoBudget {
        /// What it allows.
        budget_max_bytes: Option<u64>,
    },
    /// It changed while it was read.
    #[error(
        "the trace ended differently the second time it was read: {first} page writes, then {then}; is somebody writing to it?"
    )]
    Changed {
        /// Page writes in the first pass.
        first: u64,
        /// In a later one.
        then: u64,
    },
}

impl StudyError {
    /// A path that cannot be read a second time.
    pub(super) fn once(path: &Path) -> Option<Self> {
        // What cannot be looked at is for who opens it to tell.
        let kind = std::fs::metadata(path).ok()?.file_type();
        let is_once = kind.is_fifo() || kind.is_socket();
        is_once.then(|| Self::Once { file: path.display().to_string() })
    }

    pub(super) fn no_records(paths: &[PathBuf]) -> Self {
        let files: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        Self::NoRecords { files: files.join(", ") }
    }
}
