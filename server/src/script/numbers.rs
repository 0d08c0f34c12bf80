//! Numbers as C writes and reads them.

/// Writes a number as `printf("%.{precision}g")` does.
pub(crate) fn format_g(number: f64, precision: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let precision = precision.max(1);
    let scientific = format!("{number:.*e}", precision - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(digits), exponent.unsigned_abs());
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{number:.decimals$}")).to_owned()
}

/// A number's text without zeros at the end of its fraction.
fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Reads the number at the beginning of a text as `strtod` does, and returns its length, too.
pub(crate) fn parse_prefix(text: &[u8]) -> Option<(f64, usize)> {
    let sign_len = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let sign = if text.first() == Some(&b'-') { -1.0 } else { 1.0 };
    let rest = &text[sign_len..];
    let begins =
        |word: &[u8]| rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
    for (word, value) in [("infinity", f64::INFINITY), ("inf", f64::INFINITY), ("nan", f64::NAN)] {
        if begins(word.as_bytes()) {
            return Some((sign * value, sign_len + word.len()));
        }
    }
    if begins(b"0x") && rest.get(2).is_some_and(u8::is_ascii_hexdigit) {
        let digits = rest[2..].iter().take_while(|byte| byte.is_ascii_hexdigit());
        let (mut value, mut len) = (0.0f64, 2);
        for digit in digits {
            value = value * 16.0 + f64::from(char::from(*digit).to_digit(16).unwrap_or(0));
            len += 1;
        }
        return Some((sign * value, sign_len + len));
    }
    let digits = |from: usize| rest[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let whole = digits(0);
    let mut len = whole;
    if rest.get(len) == Some(&b'.') {
        let fraction = digits(len + 1);
        if whole + fraction > 0 {
            len += 1 + fraction;
        }
    }
    if len == 0 {
        return None;
    }
    if matches!(rest.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(rest.get(len + 1), Some(b'+' | b'-')));
        let exponent = rest.get(len + 1 + sign..).map_or(0, |_| digits(len + 1 + sign));
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    let text = std::str::from_utf8(&rest[..len]).ok()?;
    text.parse::<f64>().ok().map(|value| (sign * value, sign_len + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_by_printf() {
        for (number, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (100_000_000_000_000.0, "1e+14"),
            (99_999_999_999_999.0, "99999999999999"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (2.345_678_901_234_567, "2.3456789012346"),
            (1e300, "1e+300"),
        ] {
            assert_eq!(format_g(number, 14), text);
        }
    }

    #[test]
    fn numbers_are_read_as_by_strtod() {
        for (text, number, len) in [
            ("12x", 12.0, 2),
            ("-1.5e3,", -1500.0, 6),
            ("1e", 1.0, 1),
            ("1.", 1.0, 2),
            (".5", 0.5, 2),
            ("0x1F]", 31.0, 4),
            ("-inf", f64::NEG_INFINITY, 4),
        ] {
            assert_eq!(parse_prefix(text.as_bytes()), Some((number, len)), "{text}");
        }
        assert_eq!(parse_prefix(b"-"), None);
        assert_eq!(parse_prefix(b"."), None);
    }
}
