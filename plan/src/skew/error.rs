//! The errors of an analysis.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

/// Why an analysis was not begun, or cannot go on.
#[derive(Clone, Debug, Error)]
pub enum SkewError {
    /// The list of windows means nothing.
    #[error(
        "{given} windows: give 1 to {max} different ones, each longer than 0 (as in: 60, 600, 3600 \
         seconds)"
    )]
    Windows {
        /// The number of windows that were given.
        given: usize,
        /// The most windows that may be given.
        max: usize,
    },
    /// The share of writes is none that there can be.
    #[error(
        "a share of {percent} % of the writes: give more than 0 and at most 100, to 4 decimals"
    )]
    Share {
        /// The percentage that was given.
        percent: f64,
    },
    /// The time of a record is before that of the record before it.
    #[error(
        "time goes back from {from_ns} ns to {to_ns} ns: sort the trace, or give readers a span to \
         reorder in"
    )]
    TimeBack {
        /// The time of the record before, nanoseconds.
        from_ns: u64,
        /// The time of the record, nanoseconds.
        to_ns: u64,
    },
    /// A trace so long that its end and the length of a window could pass 64 bits together.
    #[error(
        "{time_ns} ns is 2^63 ns or more after {start_ns} ns, when the trace begins: that is 292 \
         years; is the time in other units?"
    )]
    Late {
        /// The time of the record, nanoseconds.
        time_ns: u64,
        /// The time of the first record, nanoseconds.
        start_ns: u64,
    },
    /// A request touches no page, or lies outside of what can be addressed.
    #[error(
        "volume {volume}, page {first_page}, {pages} pages: give 1 to {max} pages that end below \
         page 2^51"
    )]
    Request {
        /// The number of the request's volume.
        volume: u32,
        /// The first page of the request.
        first_page: u64,
        /// The number of pages in the request.
        pages: u64,
        /// The most pages that a request may have.
        max: u64,
    },
    /// The number of a volume is larger than any that readers give.
    #[error(
        "volume number {volume} of the trace is one too many: {max} can be counted: give parts of \
         it"
    )]
    Volume {
        /// The number that was given.
        volume: u32,
        /// The first number that is too large.
        max: u32,
    },
    /// More pages are written at one time than are counted.
    #[error(
        "more than {max} page writes at {time_ns} ns: a trace whose clock stands still cannot be \
         cut into windows"
    )]
    Instant {
        /// The time, nanoseconds.
        time_ns: u64,
        /// The most page writes that are counted at one time.
        max: u64,
    },
    /// The temporary file for long windows cannot be written.
    #[error(
        "the queue of the longest window, a temporary file in {dir}: {source} (name another \
         directory with more room)"
    )]
    Spill {
        /// The directory of the file.
        dir: PathBuf,
        /// The error that the system gave.
        source: Arc<std::io::Error>,
    },
    /// The system gives no thread for the windows.
    #[error("a thread to count windows in: {0} (raise the limit of threads, or give --jobs 1)")]
    Thread(Arc<std::io::Error>),
    /// The windows ended before the records, with an error that was given then.
    #[error("the analysis has ended: begin a new one")]
    Ended,
    /// The parts do not belong together.
    #[error("parts of different analyses: {what} is {left} in one and {right} in another")]
    Unlike {
        /// The name of what differs.
        what: &'static str,
        /// The value of the first part.
        left: String,
        /// The value of the other part.
        right: String,
    },
    /// The part cannot be merged.
    #[error(
        "a part with maxima only cannot be merged: analyse with `mergeable`, and not approximately"
    )]
    NotMergeable,
    /// The part is in slices, which have to be joined before there are figures.
    #[error("the part was cut by time: join its slices first")]
    Cut,
    /// The part is whole, and slices are joined to one that was cut.
    #[error("the part was not cut by time, and has nothing to join")]
    Uncut,
    /// Slices are missing, or there are too many.
    #[error(
        "the slices have {written} page writes, the part they were cut from has {page_writes}: \
         join each slice once"
    )]
    Slices {
        /// The page writes in the slices.
        written: u64,
        /// The page writes in the part that was cut.
        page_writes: u64,
    },
    /// There are no parts to merge.
    #[error("no part was given to merge")]
    NoParts,
    /// The bytes are not those of a part.
    #[error("not a part of an analysis, or a damaged one: {what} at byte {at} of {len_bytes}")]
    Damaged {
        /// The name of what is wrong.
        what: &'static str,
        /// The place of the byte at which it is wrong.
        at: u64,
        /// The number of bytes.
        len_bytes: u64,
    },
}

impl SkewError {
    pub(super) fn spill(dir: &Path, error: std::io::Error) -> Self {
        Self::Spill { dir: dir.to_owned(), source: Arc::new(error) }
    }
}
