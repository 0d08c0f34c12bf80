//! What can go wrong in an analysis, with the facts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// Why an analysis was not begun or not gone on with.
#[derive(Clone, Debug, Error)]
pub enum SkewError {
    /// A window list that means nothing.
    #[error(
        "{given} windows: give 1 to {max} different ones, each longer than 0 (as in: 60, 600, 3600 seconds)"
    )]
    Windows {
        /// How many were given.
        given: usize,
        /// How many may be.
        max: usize,
    },
    /// A share of writes that is none.
    #[error(
        "a share of {percent} % of the writes: give more than 0 and at most 100, to 4 decimals"
    )]
    Share {
        /// What was given.
        percent: f64,
    },
    /// Time fell.
    #[error(
        "time goes back from {from_ns} ns to {to_ns} ns: sort the trace, or give readers a span to reorder in"
    )]
    TimeBack {
        /// The time before.
        from_ns: u64,
        /// The time that is earlier.
        to_ns: u64,
    },
    /// A trace so long that its end and the length of a window could pass 64 bits together.
    #[error(
        "{time_ns} ns is 2^63 ns or more after {origin_ns} ns, when the trace begins: that is 292 years; is the time in other units?"
    )]
    Late {
        /// The time.
        time_ns: u64,
        /// That of the first record.
        origin_ns: u64,
    },
    /// A request that touches nothing, or lies outside of what can be addressed.
    #[error(
        "volume {volume}, page {first_page}, {pages} pages: give 1 to {max} pages that end below page 2^51"
    )]
    Request {
        /// Its volume.
        volume: u32,
        /// Its first page.
        first_page: u64,
        /// Its pages.
        pages: u64,
        /// How many it may have.
        max: u64,
    },
    /// A volume's number that no reader gives.
    #[error(
        "volume number {volume} of the trace is one too many: {max} can be counted: give parts of it"
    )]
    Volume {
        /// What was given.
        volume: u32,
        /// The first that is too large.
        max: u32,
    },
    /// More at one instant than is counted.
    #[error(
        "more than {max} page writes at {time_ns} ns: a trace whose clock stands still cannot be cut into windows"
    )]
    Instant {
        /// Which instant.
        time_ns: u64,
        /// How many can be.
        max: u64,
    },
    /// The temporary file for long windows.
    #[error(
        "the queue of the longest window, a temporary file in {dir}: {source} (name another directory with more room)"
    )]
    Spill {
        /// Where it was to lie.
        dir: PathBuf,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
    /// No thread for the windows.
    #[error("a thread to count windows in: {0} (raise the limit of threads, or give --jobs 1)")]
    Thread(Arc<std::io::Error>),
    /// The windows have ended already.
    #[error("the analysis has ended: begin a new one")]
    Ended,
    /// Parts that do not belong together.
    #[error("parts of different analyses: {what} is {left} in one and {right} in another")]
    Unlike {
        /// What differs.
        what: &'static str,
        /// In the first.
        left: String,
        /// In the other.
        right: String,
    },
    /// A part that cannot be merged.
    #[error(
        "a part with maxima only cannot be merged: analyse with `mergeable`, and not approximately"
    )]
    NotMergeable,
    /// A part in slices, of which figures are wanted.
    #[error("the part was cut by time: join its slices first")]
    Cut,
    /// A part that is whole, where slices are joined.
    #[error("the part was not cut by time, and has nothing to join")]
    Uncut,
    /// Slices that are missing, or too many.
    #[error(
        "the slices have {written} page writes, the part they were cut from has {page_writes}: join each slice once"
    )]
    Slices {
        /// In the slices.
        written: u64,
        /// In the part.
        page_writes: u64,
    },
    /// Nothing to merge.
    #[error("no part was given to merge")]
    NoParts,
    /// Bytes that are no part.
    #[error("not a part of an analysis, or a damaged one: {what} at byte {at} of {len_bytes}")]
    Damaged {
        /// What was found wrong.
        what: &'static str,
        /// Where.
        at: u64,
        /// How many bytes there are.
        len_bytes: u64,
    },
}

impl SkewError {
    pub(super) fn spill(dir: &Path, error: std::io::Error) -> Self {
        Self::Spill { dir: dir.to_owned(), source: Arc::new(error) }
    }
}
