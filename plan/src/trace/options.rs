//! What a reader is told, beyond the file.

use super::Format;

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
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// The format; without it, it is found by what the trace holds.
    pub format: Option<Format>,
    /// The unit of times, for formats that leave it open.
    pub time_unit: Option<TimeUnit>,
    /// How many bad records are passed over before one is an error.
    pub skip_bad: u64,
    /// How far back in time a record may come and still be put in its place.
    pub reorder_ns: u64,
}
