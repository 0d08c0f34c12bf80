//! Spans of modelled time in picoseconds, because a memory's latency is not a whole number of
//! nanoseconds.

use std::fmt;
use std::str::FromStr;

use super::ParseError;
use super::number::{scaled_u64, short_decimal, split};

/// A span of time in picoseconds, up to 213 days. Parses `29.5ns`, `8.2us`, `5ms`, `1s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Picoseconds(pub u64);

impl Picoseconds {
    /// The span in nanoseconds.
    #[must_use]
    pub fn ns(self) -> f64 {
        self.0 as f64 / 1e3
    }
}

impl FromStr for Picoseconds {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (number, unit) = split(text);
        let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
        scale.and_then(|scale| scaled_u64(number, scale)).map(Self).ok_or_else(|| ParseError {
            quantity: "time",
            value: text.to_owned(),
            expected: "a number with a unit, such as 29.5ns, 8.2us or 5ms (ps, ns, us, ms, s)",
        })
    }
}

impl fmt::Display for Picoseconds {
    /// Writes `29.5 ns`, `8.2 us`, `5 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fitting = UNITS.iter().rev().find(|(_, scale)| self.0 >= *scale);
        let (name, scale) = fitting.copied().unwrap_or(UNITS[1]);
        f.pad(&format!("{} {name}", short_decimal(self.0 as f64 / scale as f64)))
    }
}

const UNITS: [(&str, u64); 5] =
    [("ps", 1), ("ns", 1_000), ("us", 1_000_000), ("ms", 1_000_000_000), ("s", 1_000_000_000_000)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_what_is_below_a_nanosecond() {
        assert_eq!("29.5ns".parse(), Ok(Picoseconds(29_500)));
        assert_eq!("8.2 us".parse(), Ok(Picoseconds(8_200_000)));
        assert_eq!("0ns".parse(), Ok(Picoseconds(0)));
        assert_eq!(Picoseconds(29_500).to_string(), "29.5 ns");
        assert_eq!(Picoseconds(0).to_string(), "0 ns");
    }

    #[test]
    fn a_time_without_a_unit_or_below_zero_is_named() {
        for text in ["65", "-65ns", "65 seconds", "", "ns", "1e3ns", "300000000s"] {
            assert_eq!(text.parse::<Picoseconds>().unwrap_err().value, text);
        }
    }
}
