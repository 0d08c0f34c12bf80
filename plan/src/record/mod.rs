//! Records the page writes of a live program as a trace.
//!
//! Each *look* asks the kernel which pages were written since the last look, and protects them
//! again in the same step (`PAGEMAP_SCAN`). The program's first store to a page removes the
//! protection in the kernel, and nobody waits (userfaultfd, `WP_ASYNC`). So a page that is written
//! many times between two looks is one write in the trace, at the time of the later look. Counts of
//! page writes, which a plan calls adversarial, therefore depend on the time between looks. Counts
//! of distinct pages do not, except for windows that are shorter.
//!
//! A write is known from the page table at the next look. Pages that are unmapped or given back
//! (`MADV_DONTNEED`) before that look are not seen, so a shorter time between looks sees more. In
//! memory that lasts until the next look no write is missed. A write that a look interrupts,
//! between its fault and its store, may be in the trace twice.
//!
//! If the recorder dies, the kernel removes protection and tracing, and the program is unharmed,
//! except in the microseconds of `sys::inject`. Forked children have other memory. They are
//! counted, and recorded if that is asked for, from the time when they are first seen: at a look,
//! or when the started program ends and leaves them behind. Children that come and go between two
//! looks are not seen.

mod attach;
mod error;
mod maps;
mod processes;
mod session;
mod space;
mod sys;
#[cfg(test)]
mod tests;
mod volumes;

use std::ffi::OsString;
use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use perdura_media::Clock;

use crate::trace::{Looks, Record};

pub use error::{Hindrance, RecordError};
pub use sys::Exit;

/// The processes whose writes are recorded.
#[derive(Debug, Clone)]
pub enum Target {
    /// A program and its words, started for this, from its first instruction to its end.
    Program(Vec<OsString>),
    /// Processes that run already, until they end or the recording does.
    Processes(Vec<i32>),
}

/// How a recording is made.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// The time between looks.
    pub every: Duration,
    /// How long to record if the program does not end before.
    pub length: Option<Duration>,
    /// Whether processes that the recorded ones start are recorded as well.
    pub children: bool,
}

/// The figures of a recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recorded {
    /// How many looks at the program's memory there were.
    pub looks: u64,
    /// How many looks were left out because another still ran when they were due.
    pub late_looks: u64,
    /// The time spent in looks, nanoseconds.
    pub looking_ns: u64,
    /// The longest time between two looks, nanoseconds.
    pub longest_ns: u64,
    /// The time from the first look to the last, nanoseconds.
    pub duration_ns: u64,
    /// How many records were made, each a run of written pages.
    pub records: u64,
    /// How many pages are in the records.
    pub page_writes: u64,
    /// How many of the pages are in huge pages, which the kernel knows to be written only as a
    /// whole.
    pub huge_page_writes: u64,
    /// Mappings that could not be recorded, as another userfaultfd has them or the kernel does not
    /// protect their kind.
    pub refused_mappings: u64,
    /// How many children were seen and not recorded; there may have been more.
    pub children_left_out: u64,
    /// Children, and what recorded processes became, that were to be recorded and could not be; of
    /// children there may have been more.
    pub children_failed: u64,
    /// Processes that ended, or became another program, without a last look: all but the one that
    /// was started for this.
    pub unseen_ends: u64,
    /// The longest time before such an end of which the writes are not in the trace, at most.
    pub unseen_ns: u64,
    /// How many programs a process became, each of which was recorded from there on.
    pub execs: u64,
    /// How the program that was started ended; `None` where it still runs, or was not started by
    /// us.
    pub exit: Option<Exit>,
}

/// Takes what each look gave: the names of all volumes so far, records in the order of time, and
/// what looks there were.
pub type Sink<'a> = dyn FnMut(&[String], &[Record], Looks) -> io::Result<()> + 'a;

/// Records until the program has ended, the time is over, or `stop` is set (which is noticed within
/// a tenth of a second); after a last look the program then goes on without us. Times are the
/// clock's, from the first look on. An error of the sink ends the recording, not the program.
pub fn run(
    target: &Target,
    options: &RecordOptions,
    clock: &dyn Clock,
    stop: &AtomicBool,
    sink: &mut Sink<'_>,
) -> Result<Recorded, RecordError> {
    session::Session::new(options, clock, sink).run(target, stop)
}
