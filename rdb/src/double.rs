//! Numbers with a fraction, as text.

/// Reads a number as it is written into dumps; "nan" is none.
pub fn parse_double(text: &[u8]) -> Option<f64> {
    let number = std::str::from_utf8(text).ok()?.parse::<f64>().ok()?;
    (!number.is_nan()).then_some(number)
}
