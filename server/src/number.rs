//! Numbers as Redis reads and writes them.
//!
//! Redis adds floats as 80-bit `long double` and prints 17 decimals. Here decimal numbers of up to
//! 17 decimals are added exactly, which prints the same wherever Redis's own rounding does not show
//! (`0.1 + 0.2` is `0.3` in both); larger or finer numbers fall back to `f64`.

/// Reads an integer in its canonical form: with a minus or no sign, without leading zeros and
/// blanks.
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut value: u64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() }
}

/// A number with a fraction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Float {
    /// An exact number of units of 10^-17.
    Decimal(i128),
    /// Any other number, finite or infinite.
    Binary(f64),
}

const DECIMALS: u32 = 17;
const ONE: i128 = 10i128.pow(DECIMALS);
/// Limit of exact numbers: beyond 10^19 a sum could overflow the units, and `f64` is used.
const DECIMAL_MAX: i128 = ONE * 10i128.pow(19);

impl Float {
    /// Reads a number; `None` for blanks, NaN and any other text that is not one.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if let Some(units) = parse_decimal(text) {
            return Some(Self::Decimal(units));
        }
        let text = std::str::from_utf8(text).ok()?;
        let value: f64 = text.parse().ok()?;
        let spelled = text.trim_start_matches(['+', '-']).as_bytes().first();
        let overflow = value.is_infinite() && spelled.is_some_and(u8::is_ascii_digit);
        (!value.is_nan() && !overflow).then_some(Self::Binary(value))
    }

    /// The sum of two numbers; `None` when it is not finite.
    pub fn plus(self, other: Self) -> Option<Self> {
        if let (Self::Decimal(a), Self::Decimal(b)) = (self, other) {
            let sum = a + b;
            if sum.abs() <= DECIMAL_MAX {
                return Some(Self::Decimal(sum));
            }
        }
        let sum = self.value() + other.value();
        sum.is_finite().then_some(Self::Binary(sum))
    }

    /// The `f64` that is nearest to the number.
    pub fn value(self) -> f64 {
        match self {
            Self::Decimal(units) => units as f64 / ONE as f64,
            Self::Binary(value) => value,
        }
    }

    /// Writes the number without an exponent and without trailing zeros.
    pub fn text(self) -> String {
        match self {
            Self::Decimal(units) => {
                let sign = if units < 0 { "-" } else { "" };
                let (whole, part) = (units.abs() / ONE, units.abs() % ONE);
                let text = format!("{sign}{whole}.{part:017}");
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            }
            Self::Binary(value) => {
                let text = format!("{value:.17}");
                let text = text.trim_end_matches('0').trim_end_matches('.');
                if text == "-0" { "0".to_owned() } else { text.to_owned() }
            }
        }
    }
}

/// A `double` as a whole number of up to 15 digits, which most scores are: it needs no others.
pub fn as_whole(value: f64) -> Option<i64> {
    (value == value.trunc() && value.abs() < 1e15 && value != 0.0).then_some(value as i64)
}

/// Writes a `double` as C's `%.17g` and Redis 7.0 do: 0.1 is 0.10000000000000001.
pub fn format_double(value: f64) -> String {
    if !value.is_finite() {
        return if value > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    if let Some(whole) = as_whole(value) {
        return whole.to_string();
    }
    let text = format!("{value:.16e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let digits = mantissa.replace('.', "");
    let digits = digits.trim_end_matches('0');
    match exponent {
        _ if digits.is_empty() => format!("{sign}0"),
        -4..=-1 => format!("{sign}0.{}{digits}", "0".repeat(-exponent as usize - 1)),
        0..=16 if digits.len() <= exponent as usize + 1 => {
            format!("{sign}{digits:0<width$}", width = exponent as usize + 1)
        }
        0..=16 => {
            let (whole, part) = digits.split_at(exponent as usize + 1);
            format!("{sign}{whole}.{part}")
        }
        _ => {
            let (whole, part) = digits.split_at(1);
            let point = if part.is_empty() { "" } else { "." };
            let exponent_sign = if exponent < 0 { '-' } else { '+' };
            format!("{sign}{whole}{point}{part}e{exponent_sign}{:02}", exponent.abs())
        }
    }
}

/// Reads a `double` as Redis does: everything that C's `strtod` takes, hexadecimal too, without a
/// blank before it or anything behind it. NaN and numbers too large for a `double` are refused.
pub fn parse_double(text: &[u8]) -> Option<f64> {
    // Most are whole numbers, of which a `double` holds up to 15 digits exactly.
    if (1..=15).contains(&text.len()) && text.iter().all(u8::is_ascii_digit) {
        return Some(text.iter().fold(0, |n, digit| n * 10 + u64::from(digit - b'0')) as f64);
    }
    if text.first().is_none_or(u8::is_ascii_whitespace) {
        return None;
    }
    let value = strtod(text)?;
    let digits = text.iter().take_while(|byte| !matches!(byte, b'e' | b'E' | b'p' | b'P'));
    let is_word = text.iter().any(|byte| matches!(byte, b'i' | b'I'));
    let vanished = value == 0.0 && digits.clone().any(|byte| matches!(byte, b'1'..=b'9'));
    let too_large = value.is_infinite() && !is_word;
    (!vanished && !too_large).then_some(value)
}

/// Reads a `double` as the bound of a range: blanks may stand before it, an empty text is 0, the
/// text ends at a zero byte, and a number too large is infinite.
pub fn parse_bound(text: &[u8]) -> Option<f64> {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    if end == 0 {
        return Some(0.0);
    }
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text[..end].iter().position(|byte| !blank(byte))?;
    strtod(&text[start..end])
}

fn strtod(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, body) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if body.starts_with(['+', '-']) {
        return None;
    }
    let value = match body.strip_prefix("0x").or_else(|| body.strip_prefix("0X")) {
        Some(hex) => parse_hex(hex)?,
        None => body.parse::<f64>().ok()?,
    };
    (!value.is_nan()).then_some(if negative { -value } else { value })
}

/// Reads `digits[.digits][p exponent]`, with digits of base 16 and an exponent of base 2. Digits
/// that a `double` cannot hold are cut off, not rounded.
fn parse_hex(text: &str) -> Option<f64> {
    let (digits, exponent) = match text.split_once(['p', 'P']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?.clamp(-5_000, 5_000)),
        None => (text, 0),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + part.len() == 0 {
        return None;
    }
    let (mut value, mut scale) = (0u64, i64::from(exponent));
    for (index, digit) in whole.chars().chain(part.chars()).enumerate() {
        let digit = digit.to_digit(16)?;
        let is_part = index >= whole.len();
        if value < 1 << 53 {
            value = value << 4 | u64::from(digit);
            scale -= if is_part { 4 } else { 0 };
        } else {
            scale += if is_part { 0 } else { 4 };
        }
    }
    // The exponent is applied in two steps, because a factor may be out of range although the
    // result is not.
    let half = (scale / 2).clamp(-2_000, 2_000) as i32;
    let rest = (scale - i64::from(half)).clamp(-2_000, 2_000) as i32;
    Some(value as f64 * 2f64.powi(half) * 2f64.powi(rest))
}

/// Reads `[+-]digits[.digits]` with at most 17 decimals and 19 digits before the point.
fn parse_decimal(text: &[u8]) -> Option<i128> {
    let (negative, body) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let point = body.iter().position(|b| *b == b'.').unwrap_or(body.len());
    let (whole, part) = (&body[..point], body.get(point + 1..).unwrap_or(&[]));
    let plain = whole.iter().chain(part).all(u8::is_ascii_digit);
    if !plain || whole.len() + part.len() == 0 || whole.len() > 19 || part.len() > 17 {
        return None;
    }
    let digits = |text: &[u8]| text.iter().fold(0i128, |n, b| n * 10 + i128::from(b - b'0'));
    let units = digits(whole) * ONE + digits(part) * 10i128.pow(DECIMALS - part.len() as u32);
    Some(if negative { -units } else { units })
}

/// Reads a number of bytes in Redis' units: `100`, `1k` (1,000), `1kb` (1,024), and m and g alike,
/// in upper or lower case.
pub fn parse_memory(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let unit = match text[digits..].to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1_000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    u64::try_from(parse_i64(&text[..digits])?).ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_form() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("+1", None),
            ("01", None),
            ("-0", None),
            ("", None),
            ("-", None),
            (" 1", None),
            ("1 ", None),
            ("1a", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(parse_i64(text.as_bytes()), value, "{text}");
        }
    }

    #[test]
    fn floats_add_without_binary_noise() {
        for (a, b, sum) in [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("-5", "5", "0"),
            ("3", "-1.5", "1.5"),
            ("0", "-0.25", "-0.25"),
        ] {
            let sum_of =
                Float::parse(a.as_bytes()).unwrap().plus(Float::parse(b.as_bytes()).unwrap());
            assert_eq!(sum_of.unwrap().text(), sum);
        }
    }

    #[test]
    fn what_is_not_a_number_is_refused() {
        for text in ["", " 1", "1 ", "nan", "abc", "1e999", ".", "0x"] {
            assert_eq!(Float::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Float::parse(b"inf"), Some(Float::Binary(f64::INFINITY)));
        assert!(Float::parse(b"inf").unwrap().plus(Float::Decimal(0)).is_none());
    }

    #[test]
    fn doubles_are_written_as_c_writes_them() {
        for (value, text) in [
            (0.1, "0.10000000000000001"),
            (-0.0, "-0"),
            (0.0, "0"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (100000.0, "100000"),
            (1e15, "1000000000000000"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123456789012345678.0, "1.2345678901234568e+17"),
            (f64::MAX, "1.7976931348623157e+308"),
            (4.9e-324, "4.9406564584124654e-324"),
            (0.0001, "0.0001"),
            (0.00001, "1.0000000000000001e-05"),
            (1234.5678, "1234.5678"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(format_double(value), text);
        }
    }

    #[test]
    fn doubles_are_read_as_c_reads_them() {
        for (text, value) in [
            ("0x10", Some(16.0)),
            ("-0x1.8p1", Some(-3.0)),
            ("0X.8", Some(0.5)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("+5e1", Some(50.0)),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("1e400", None),
            ("1e-400", None),
            ("0e-400", Some(0.0)),
            ("1e-320", Some(1e-320)),
            ("nan", None),
            ("", None),
            (" 1", None),
            ("1 ", None),
            ("--1", None),
            ("0x", None),
            ("1e", None),
        ] {
            assert_eq!(parse_double(text.as_bytes()), value, "{text}");
        }
        assert_eq!(parse_bound(b""), Some(0.0));
        assert_eq!(parse_bound(b" 5"), Some(5.0));
        assert_eq!(parse_bound(b"7\0x"), Some(7.0));
        assert_eq!(parse_bound(b"1e400"), Some(f64::INFINITY));
        assert_eq!(parse_bound(b"  "), None);
    }

    #[test]
    fn memory_is_read_as_redis_reads_it() {
        assert_eq!(parse_memory(b"100"), Some(100));
        assert_eq!(parse_memory(b"2GB"), Some(2 << 30));
        assert_eq!(parse_memory(b"3k"), Some(3_000));
        for wrong in [&b""[..], b"gb", b"-1", b"1tb", b"1 kb", b"99999999999gb"] {
            assert_eq!(parse_memory(wrong), None, "{wrong:?}");
        }
    }
}
