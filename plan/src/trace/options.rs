//! What a reader is told, beyond the file.

use super::{Columns, Format};

/// The unit of times in a trace that does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Windows's ticks of 100 ns.
    HundredNanos,
    /// Nanoseconds.
    Nanos,
}

impl TimeUnit {
    /// All of them.
    pub const ALL: &[TimeUnit] = &[
        TimeUnit::Seconds,
        TimeUnit::Millis,
        TimeUnit::Micros,
        TimeUnit::HundredNanos,
        TimeUnit::Nanos,
    ];

    /// Its name, as `--time-unit` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            TimeUnit::Seconds => "s",
            TimeUnit::Millis => "ms",
            TimeUnit::Micros => "us",
            TimeUnit::HundredNanos => "100ns",
            TimeUnit::Nanos => "ns",
        }
    }

    /// The unit of that name.
    pub fn parse(name: &str) -> Option<TimeUnit> {
        TimeUnit::ALL.iter().copied().find(|unit| unit.name() == name)
    }

    /// How long one is.
    pub const fn ns(self) -> u64 {
        match self {
            TimeUnit::Seconds => 1_000_000_000,
            TimeUnit::Millis => 1_000_000,
            TimeUnit::Micros => 1_000,
            TimeUnit::HundredNanos => 100,
            TimeUnit::Nanos => 1,
        }
    }

    /// All names, for messages.
    pub(crate) fn names() -> String {
        TimeUnit::ALL.iter().map(|unit| unit.name()).collect::<Vec<_>>().join(", ")
    }
}

/// How a trace is to be read.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// The format; without it, it is found by what the trace holds.
    pub format: Option<Format>,
    /// The unit of times, for formats that leave it open (`disksim`), and for files that keep to
    /// another than their format's.
    pub time_unit: Option<TimeUnit>,
    /// How many bad records are passed over before one is an error.
    pub skip_bad: u64,
    /// How far back in time a record may come and still be put in its place.
    pub reorder_ns: u64,
    /// Which columns of a table (`csv`, `parquet`) are what; without it they have the names that
    /// this project writes.
    pub columns: Option<Columns>,
    /// Bytes of a record in a trace of key operations (`ycsb`): keys get slots of that size, in
    /// order of first sight.
    pub record_bytes: u64,
    /// How many instructions are a second, in memory traces: these have no other clock.
    pub instructions_per_s: u64,
    /// How many operations are a second, in traces of key operations, which have no clock at all.
    pub operations_per_s: u64,
    /// Which of an access's steps counts in `blkparse` text: `Q`, queued, `D`, issued to the
    /// driver, `C`, completed...
    pub block_action: char,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions {
            format: None,
            time_unit: None,
            skip_bad: 0,
            reorder_ns: 0,
            columns: None,
            record_bytes: 1024,
            instructions_per_s: 1_000_000_000,
            operations_per_s: 100_000,
            block_action: 'Q',
        }
    }
}
