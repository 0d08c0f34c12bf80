//! The shared grammar: splitting a number from its unit, scaling without rounding errors.

/// Splits `"1.5 GiB"` into (`"1.5"`, `"GiB"`).
pub(super) fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// `number * scale`, exact, rounded down; `None` if the text is no number or the product exceeds
/// `u64`.
pub(super) fn scaled_u64(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = digits(number)?;
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
    // 18 digits of fraction: 10^18 * 2^64 still fits in u128.
    let fraction = &fraction[..fraction.len().min(FRACTION_DIGITS_MAX)];
    let numerator = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? };
    let denominator = 10u128.pow(fraction.len() as u32);
    let part = u128::from(numerator) * u128::from(scale) / denominator;
    u64::try_from(u128::from(whole) * u128::from(scale) + part).ok()
}

/// `number * scale`; `None` if the text is no number.
pub(super) fn scaled_f64(number: &str, scale: f64) -> Option<f64> {
    digits(number)?;
    let value = number.parse::<f64>().ok()? * scale;
    value.is_finite().then_some(value)
}

/// Digits before and after the point; at least one digit, at most one point, nothing else.
fn digits(number: &str) -> Option<(&str, &str)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let some = !whole.is_empty() || !fraction.is_empty();
    (some && all_digits(whole) && all_digits(fraction)).then_some((whole, fraction))
}

/// At most two decimals, without zeros at the end: `1`, `1.5`, `1.37`.
pub(super) fn short_decimal(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

const FRACTION_DIGITS_MAX: usize = 18;
