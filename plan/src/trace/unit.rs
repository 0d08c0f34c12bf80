//! Units of time.

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Ticks of 100 ns, as Windows counts.
    HundredNanos,
    /// Nanoseconds.
    Nanos,
}

impl TimeUnit {
    /// All units.
    pub const ALL: &[TimeUnit] = &[
        TimeUnit::Seconds,
        TimeUnit::Millis,
        TimeUnit::Micros,
        TimeUnit::HundredNanos,
        TimeUnit::Nanos,
    ];

    /// The unit's name, as `--time-unit` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            TimeUnit::Seconds => "s",
            TimeUnit::Millis => "ms",
            TimeUnit::Micros => "us",
            TimeUnit::HundredNanos => "100ns",
            TimeUnit::Nanos => "ns",
        }
    }

    /// The unit that has this name.
    pub fn parse(name: &str) -> Option<TimeUnit> {
        TimeUnit::ALL.iter().copied().find(|unit| unit.name() == name)
    }

    /// How many nanoseconds one is.
    pub const fn ns(self) -> u64 {
        match self {
            TimeUnit::Seconds => 1_000_000_000,
            TimeUnit::Millis => 1_000_000,
            TimeUnit::Micros => 1_000,
            TimeUnit::HundredNanos => 100,
            TimeUnit::Nanos => 1,
        }
    }

    /// The names of all units, for messages.
    pub(crate) fn names() -> String {
        TimeUnit::ALL.iter().map(|unit| unit.name()).collect::<Vec<_>>().join(", ")
    }
}
