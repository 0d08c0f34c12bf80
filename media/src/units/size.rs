//! Sizes and rates of bytes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::ParseError;
use super::number::{scaled_u64, short_decimal, split};

/// A size in bytes. Parses `4096`, `64MB` (decimal), `1.5GiB` (binary).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A rate in bytes per second. Parses `500MB/s`, `2GiB/s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BytesPerSecond(pub u64);

impl BytesPerSecond {
    /// Time that `size` takes, rounded up to a nanosecond; `Duration::MAX` at a rate of zero
    /// (unless the size is zero) or when the time exceeds that type.
    #[must_use]
    pub fn time_for(self, size: Bytes) -> Duration {
        if size.0 == 0 {
            return Duration::ZERO;
        }
        if self.0 == 0 {
            return Duration::MAX;
        }
        let total_ns = (u128::from(size.0) * NS_PER_S).div_ceil(u128::from(self.0));
        match u64::try_from(total_ns / NS_PER_S) {
            Ok(whole_s) => Duration::new(whole_s, (total_ns % NS_PER_S) as u32),
            Err(_) => Duration::MAX,
        }
    }

    /// Bytes that move in `time`, rounded down; saturates at `u64::MAX` bytes.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> Bytes {
        let moved = u128::from(self.0).checked_mul(time.as_nanos()).map(|moved| moved / NS_PER_S);
        Bytes(moved.and_then(|moved| u64::try_from(moved).ok()).unwrap_or(u64::MAX))
    }
}

impl FromStr for Bytes {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError {
            quantity: "size",
            value: text.to_owned(),
            expected: "bytes below 16 EiB such as 4096, 64MB, 1GiB \
                       (KB, MB, GB, TB; KiB, MiB, GiB, TiB)",
        };
        parse_bytes(text).map(Bytes).ok_or_else(error)
    }
}

impl FromStr for BytesPerSecond {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError {
            quantity: "rate",
            value: text.to_owned(),
            expected: "a size per second such as 500MB/s or 2GiB/s",
        };
        let size = text.trim_end().strip_suffix("/s").ok_or_else(error)?;
        parse_bytes(size).map(BytesPerSecond).ok_or_else(error)
    }
}

impl fmt::Display for Bytes {
    /// Writes binary units: `512 B`, `64 MiB`, `1.37 GiB`; exact when the size is a whole number of
    /// units.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_bytes(self.0, &BINARY))
    }
}

impl fmt::Display for BytesPerSecond {
    /// Writes decimal units, as makers of SSDs do: `500 MB/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/s", format_bytes(self.0, &DECIMAL)))
    }
}

fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = split(text);
    if unit.is_empty() && number.contains('.') {
        return None;
    }
    let unit = if unit.is_empty() { "B" } else { unit };
    let (_, scale) =
        BINARY.iter().chain(&DECIMAL).find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    scaled_u64(number, *scale)
}

fn format_bytes(bytes: u64, units: &[(&'static str, u64)]) -> String {
    let unit = units.iter().rev().find(|(_, scale)| bytes >= *scale);
    let (name, scale) = unit.copied().unwrap_or(units[0]);
    if bytes.is_multiple_of(scale) {
        return format!("{} {name}", bytes / scale);
    }
    format!("{} {name}", short_decimal(bytes as f64 / scale as f64))
}

const NS_PER_S: u128 = 1_000_000_000;

const BINARY: [(&str, u64); 5] =
    [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

const DECIMAL: [(&str, u64); 5] =
    [("B", 1), ("KB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("TB", 1_000_000_000_000)];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(text: &str) -> u64 {
        text.parse::<Bytes>().unwrap().0
    }

    #[test]
    fn binary_and_decimal_units_are_told_apart() {
        assert_eq!(bytes("4096"), 4096);
        assert_eq!(bytes("0"), 0);
        assert_eq!(bytes("64MB"), 64_000_000);
        assert_eq!(bytes("64 mib"), 64 << 20);
        assert_eq!(bytes("1.5GiB"), 3 << 29);
        assert_eq!(bytes(" 2TiB "), 2 << 40);
        assert_eq!(bytes("18446744073709551615"), u64::MAX);
    }

    #[test]
    fn what_is_no_size_is_named_in_the_error() {
        let bad =
            ["", "GiB", "-1", "1.2.3MB", "4G", "12XB", "1.5", ".", "20000000TiB", "1e9", "1 GiB x"];
        for text in bad {
            let error = text.parse::<Bytes>().unwrap_err();
            assert_eq!(error.value, text);
            assert!(error.to_string().contains("expected bytes"), "{error}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_fitting_unit() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(1023).to_string(), "1023 B");
        assert_eq!(Bytes(64 << 20).to_string(), "64 MiB");
        assert_eq!(Bytes(3 << 29).to_string(), "1.5 GiB");
        assert_eq!(BytesPerSecond(500_000_000).to_string(), "500 MB/s");
        assert_eq!(format!("{:>8}", Bytes(1)), "     1 B");
    }

    #[test]
    fn a_rate_needs_its_per_second() {
        assert_eq!("500MB/s".parse(), Ok(BytesPerSecond(500_000_000)));
        assert_eq!("500MB".parse::<BytesPerSecond>().unwrap_err().quantity, "rate");
    }

    #[test]
    fn rate_arithmetic_rounds_towards_safety() {
        let rate = BytesPerSecond(3);
        assert_eq!(rate.time_for(Bytes(1)), Duration::from_nanos(333_333_334));
        assert_eq!(rate.bytes_in(Duration::from_nanos(999_999_999)), Bytes(2));
        assert_eq!(BytesPerSecond(0).time_for(Bytes(1)), Duration::MAX);
        assert_eq!(BytesPerSecond(0).time_for(Bytes(0)), Duration::ZERO);
        assert_eq!(BytesPerSecond(u64::MAX).bytes_in(Duration::MAX), Bytes(u64::MAX));
        assert_eq!(BytesPerSecond(1).time_for(Bytes(u64::MAX)).as_secs(), u64::MAX);
    }

    proptest! {
        #[test]
        fn shown_sizes_parse_again_to_within_one_percent(size in any::<u64>()) {
            let back = bytes(&Bytes(size).to_string());
            prop_assert!(back.abs_diff(size) <= size / 100);
        }
    }
}
