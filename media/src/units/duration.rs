//! Durations as text: `30s`, `500ms`, `1m30s`.

use std::time::Duration;

use super::ParseError;
use super::number::{scaled_u64, short_decimal, split};

/// Reads `30s`, `500ms`, `2m`, `1.5h`, `1m30s`. A number without a unit is refused: seconds and
/// milliseconds are too easily confused.
///
/// # Errors
/// The text is no duration, or longer than 584 years.
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    parse_ns(text).map(Duration::from_nanos).ok_or_else(|| ParseError {
        quantity: "duration",
        value: text.to_owned(),
        expected: "a number with a unit, such as 30s, 500ms, 2m or 1m30s (ns, us, ms, s, m, h, d)",
    })
}

/// Writes `0s`, `20us`, `1.5ms`, `30s`, `1m30s`, `2h5m`: two decimals below a minute, whole seconds
/// above. [`parse_duration`] reads it again.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds >= 60 {
        return format_long(seconds);
    }
    let ns = duration.as_nanos() as f64;
    let unit = SHORT_UNITS.iter().rev().find(|(_, scale_ns)| ns >= *scale_ns);
    match unit {
        None => "0s".to_owned(),
        Some((name, scale_ns)) => format!("{}{name}", short_decimal(ns / scale_ns)),
    }
}

fn parse_ns(text: &str) -> Option<u64> {
    let mut rest = text.trim();
    let mut total_ns = 0u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, tail) = split(rest);
        let end = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, after) = tail.split_at(end);
        let (_, scale_ns) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total_ns = total_ns.checked_add(scaled_u64(number, *scale_ns)?)?;
        rest = after.trim_start();
    }
    Some(total_ns)
}

fn format_long(seconds: u64) -> String {
    let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let shown = parts.iter().filter(|(count, _)| *count > 0);
    shown.map(|(count, name)| format!("{count}{name}")).collect()
}

const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

const SHORT_UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_with_their_unit() {
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("1.5 h"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn what_is_no_duration_is_named_in_the_error() {
        for text in ["", "30", "s", "-3s", "3 weeks", "1s2", "999999999999h", "30S"] {
            let error = parse_duration(text).unwrap_err();
            assert_eq!((error.quantity, error.value.as_str()), ("duration", text));
        }
    }

    #[test]
    fn durations_are_shown_briefly_and_can_be_read_again() {
        for text in ["0s", "20us", "1.5ms", "500ms", "30s", "1m30s", "2h5m", "48h"] {
            assert_eq!(format_duration(parse_duration(text).unwrap()), text);
        }
    }
}
