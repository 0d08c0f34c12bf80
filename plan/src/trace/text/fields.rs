//! Parses the fields of a line (numbers, times, columns) without allocating.

use super::super::{Fault, Op, TimeUnit};

/// How many bytes of a bad value a message shows.
const SHOWN_BYTES: usize = 80;

/// A value as a message shows it, between quotes: escaped once, and here, since only here it is
/// known which bytes are no text.
pub(crate) fn shown(value: &[u8]) -> String {
    let cut = &value[..value.len().min(SHOWN_BYTES)];
    let mut text = String::new();
    for chunk in cut.utf8_chunks() {
        let quoted = format!("{:?}", chunk.valid());
        text.push_str(&quoted[1..quoted.len() - 1]);
        text.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    if value.len() > SHOWN_BYTES {
        text.push_str("...");
    }
    text
}

/// Eight digits at once: their value, or how many digits there are before something else.
#[inline]
fn eight_digits(chunk: [u8; 8]) -> Result<u64, usize> {
    let digits = u64::from_le_bytes(chunk) ^ 0x3030_3030_3030_3030;
    // A byte above 9 leaves a bit in its upper half; what it carries goes to later bytes only, so
    // the first is right.
    let others = (digits.wrapping_add(0x0606_0606_0606_0606) | digits) & 0xf0f0_f0f0_f0f0_f0f0;
    match others {
        0 => Ok(joined(digits)),
        _ => Err(others.trailing_zeros() as usize / 8),
    }
}

/// The number that eight digits make, the first of them in the lowest byte.
#[inline]
fn joined(digits: u64) -> u64 {
    let pairs = (digits * 10 + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    (fours * 10_000 + (fours >> 32)) & 0xffff_ffff
}

const TENS: [u64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// The digits at `*at`, as a number, and `*at` behind them; `None` where there is none, or more
/// than 64 bits.
#[inline]
pub(crate) fn digits(line: &[u8], at: &mut usize) -> Option<u64> {
    let from = *at;
    let mut number = 0u64;
    while let Some(chunk) = line.get(*at..).and_then(|rest| rest.first_chunk::<8>()) {
        if *at - from > 11 {
            // Beyond 19 digits it may not fit: byte by byte, checked.
            return digits_slowly(line, at, from, number);
        }
        match eight_digits(*chunk) {
            Ok(eight) => number = number * 100_000_000 + eight,
            Err(0) => return (*at > from).then_some(number),
            Err(few) => {
                let shifted =
                    (u64::from_le_bytes(*chunk) ^ 0x3030_3030_3030_3030) << (64 - 8 * few);
                *at += few;
                return Some(number * TENS[few] + joined(shifted));
            }
        }
        *at += 8;
    }
    digits_slowly(line, at, from, number)
}

/// Reads digits one after another, as [`digits`] does for eight at once.
#[inline]
fn digits_slowly(line: &[u8], at: &mut usize, from: usize, mut number: u64) -> Option<u64> {
    while let Some(digit) =
        line.get(*at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10)
    {
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
        *at += 1;
    }
    (*at > from).then_some(number)
}

/// The number that a field is, where all of it is digits.
#[inline]
pub(crate) fn whole(field: &[u8]) -> Option<u64> {
    let mut at = 0;
    digits(field, &mut at).filter(|_| at == field.len())
}

/// The number that a field is, or what is wrong with it.
#[inline]
pub(crate) fn number(column: &'static str, field: &[u8]) -> Result<u64, Box<Fault>> {
    whole(field).ok_or_else(|| not_a_number(column, field, "a whole number"))
}

/// A whole field as a hexadecimal number, with 0x before it or without, or what is wrong with it.
pub(crate) fn hexadecimal(column: &'static str, field: &[u8]) -> Result<u64, Box<Fault>> {
    let bare = field.strip_prefix(b"0x").or_else(|| field.strip_prefix(b"0X")).unwrap_or(field);
    let mut number = (!bare.is_empty() && bare.len() <= 16).then_some(0u64);
    for &byte in bare {
        let digit = (byte as char).to_digit(16).map(u64::from);
        number = number.zip(digit).map(|(number, digit)| number << 4 | digit);
    }
    number.ok_or_else(|| not_a_number(column, field, "a hexadecimal number of 64 bits"))
}

#[cold]
fn not_a_number(column: &'static str, field: &[u8], expected: &'static str) -> Box<Fault> {
    let value = shown(field);
    Box::new(match field {
        [b'-', rest @ ..]
            if rest.iter().all(|byte| byte.is_ascii_hexdigit() || *byte == b'.')
                && !rest.is_empty() =>
        {
            Fault::Negative { column, value }
        }
        _ if field.len() > 19 && field.iter().all(u8::is_ascii_digit) => {
            Fault::TooLarge { column, value, unit: "anything" }
        }
        _ => Fault::Value { column, value, expected },
    })
}

/// A number in its unit as a number of bytes (or of `unit`), or the fault that it is too large.
#[inline]
pub(crate) fn scaled(
    column: &'static str,
    field: &[u8],
    number: u64,
    each: u64,
    unit: &'static str,
) -> Result<u64, Box<Fault>> {
    number
        .checked_mul(each)
        .ok_or_else(|| Box::new(Fault::TooLarge { column, value: shown(field), unit }))
}

/// A time, whole or with decimals, in nanoseconds: exact down to the nanosecond, what is below it
/// is cut. Such digits are what is left of a calculation in seconds; but where the times are said
/// to be nanoseconds, they say that these are something else.
#[inline]
pub(crate) fn time_ns(
    column: &'static str,
    field: &[u8],
    unit: TimeUnit,
) -> Result<u64, Box<Fault>> {
    let (whole, decimals) = parts(column, field)?;
    let too_large = || Box::new(Fault::TooLarge { column, value: shown(field), unit: "ns" });
    let whole_ns = whole.checked_mul(unit.ns()).ok_or_else(too_large)?;
    if decimals.is_empty() {
        return Ok(whole_ns);
    }
    if unit == TimeUnit::Nanos && decimals.iter().any(|&digit| digit != b'0') {
        return Err(Box::new(Fault::PartOfNano { column, value: shown(field) }));
    }
    let mut part_ns = 0;
    let mut each_ns = unit.ns();
    for digit in decimals {
        // Units are powers of ten nanoseconds: digits beyond are below a nanosecond.
        if each_ns == 1 {
            break;
        }
        each_ns /= 10;
        part_ns += each_ns * u64::from(digit - b'0');
    }
    whole_ns.checked_add(part_ns).ok_or_else(too_large)
}

/// Whether a field is a time, whatever its unit.
pub(crate) fn is_time(field: &[u8]) -> bool {
    parts("time", field).is_ok()
}

/// The whole part of a time, and the digits behind its point.
#[inline]
fn parts<'a>(column: &'static str, field: &'a [u8]) -> Result<(u64, &'a [u8]), Box<Fault>> {
    let mut at = 0;
    let whole = match digits(field, &mut at) {
        Some(whole) => whole,
        None if field.len() > 1 && field[0] == b'.' => 0,
        None => return Err(not_a_number(column, field, "a time")),
    };
    match &field[at..] {
        [] => Ok((whole, &[])),
        [b'.', decimals @ ..] if decimals.iter().all(u8::is_ascii_digit) => Ok((whole, decimals)),
        _ => Err(not_a_number(column, field, "a time")),
    }
}

/// Whether a word means a read or a write, or the fault that it means neither.
pub(crate) fn op(column: &'static str, field: &[u8]) -> Result<Op, Box<Fault>> {
    known_op(field).ok_or_else(|| {
        Box::new(Fault::Value {
            column,
            value: shown(field),
            expected: "read or write (r, w, Read, Write)",
        })
    })
}

/// Whether a word means a read or a write; `None` where it means neither.
#[inline]
pub(crate) fn known_op(field: &[u8]) -> Option<Op> {
    match field {
        b"R" | b"r" => Some(Op::Read),
        b"W" | b"w" => Some(Op::Write),
        _ if field.eq_ignore_ascii_case(b"read") => Some(Op::Read),
        _ if field.eq_ignore_ascii_case(b"write") => Some(Op::Write),
        _ => None,
    }
}

/// The columns of a line, cut at a byte: as many as there are, and the first `N` of them.
#[inline]
pub(crate) fn cut<const N: usize>(line: &[u8], at: u8) -> (usize, [&[u8]; N]) {
    let mut columns: [&[u8]; N] = [&[]; N];
    let (mut from, mut count) = (0, 0);
    for end in memchr::memchr_iter(at, line).chain([line.len()]) {
        if count < N {
            columns[count] = line[from..end].trim_ascii();
        }
        count += 1;
        from = end + 1;
    }
    (count, columns)
}

/// How many words a line has, and the first `N` of them.
#[inline]
pub(crate) fn words<const N: usize>(line: &[u8]) -> (usize, [&[u8]; N]) {
    let mut words: [&[u8]; N] = [&[]; N];
    let mut count = 0;
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(u8::is_ascii_whitespace) {
            at += 1;
        }
        let from = at;
        while line.get(at).is_some_and(|byte| !byte.is_ascii_whitespace()) {
            at += 1;
        }
        if from == at {
            return (count, words);
        }
        if count < N {
            words[count] = &line[from..at];
        }
        count += 1;
    }
}

/// The fault of a line that has not as many columns as its format.
#[cold]
pub(crate) fn columns(expected: &'static str, found: usize, line: &[u8]) -> Box<Fault> {
    Box::new(Fault::Columns { expected, found, value: shown(line) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn digits_are_what_the_standard_library_makes_of_them(
            number in any::<u64>(),
            shift in 0u32..64,
            rest in "[,a-z ]?[0-9a-z]{0,12}",
        ) {
            let number = number >> shift;
            let is_more = rest.starts_with(|c: char| c.is_ascii_digit());
            let text = format!("{number}{}", if is_more { "" } else { &rest });
            let mut at = 0;
            prop_assert_eq!(digits(text.as_bytes(), &mut at), Some(number));
            prop_assert_eq!(at, number.to_string().len());
        }

        #[test]
        fn whole_fields_are_numbers_exactly_where_the_standard_library_says_so(
            text in "[0-9]{1,24}|[0-9]{0,9}[^+0-9][0-9]{0,9}",
        ) {
            prop_assert_eq!(whole(text.as_bytes()), text.parse().ok());
        }

        #[test]
        fn decimals_of_a_time_are_exact(
            seconds in 0u64..18_000_000_000,
            nanos in 0u64..1_000_000_000,
        ) {
            let text = format!("{seconds}.{nanos:09}");
            let found = time_ns("time", text.as_bytes(), TimeUnit::Seconds).unwrap();
            prop_assert_eq!(found, seconds * 1_000_000_000 + nanos);
        }
    }

    #[test]
    fn times_with_decimals_are_cut_below_a_nanosecond() {
        let ns = |text: &str, unit| time_ns("time", text.as_bytes(), unit).unwrap();
        assert_eq!(ns("1.5", TimeUnit::Seconds), 1_500_000_000);
        assert_eq!(ns("0.0260109999999", TimeUnit::Seconds), 26_010_999);
        assert_eq!(ns("2.25", TimeUnit::Micros), 2_250);
        assert_eq!(ns("3.", TimeUnit::HundredNanos), 300);
        assert_eq!(ns(".25", TimeUnit::Millis), 250_000);
        assert!(time_ns("time", b"1.2.3", TimeUnit::Seconds).is_err());
        assert!(time_ns("time", b".", TimeUnit::Nanos).is_err());
        assert!(matches!(
            *time_ns("time", b"-1.5", TimeUnit::Seconds).unwrap_err(),
            Fault::Negative { .. }
        ));
        assert!(matches!(
            *time_ns("time", b"18446744074", TimeUnit::Seconds).unwrap_err(),
            Fault::TooLarge { .. }
        ));
    }

    #[test]
    fn a_part_of_a_nanosecond_is_refused_where_the_unit_is_nanoseconds() {
        let nanos = |text: &str| time_ns("time", text.as_bytes(), TimeUnit::Nanos);
        for text in ["0.1", ".7", "1.400", "12.000000001"] {
            let fault = Fault::PartOfNano { column: "time", value: text.to_owned() };
            assert_eq!(*nanos(text).unwrap_err(), fault);
            assert!(is_time(text.as_bytes()), "of another unit: {text}");
        }
        for text in ["5", "5.", "5.0", "5.000000"] {
            assert_eq!(nanos(text).unwrap(), 5);
        }
        assert_eq!(time_ns("time", b"0.15", TimeUnit::HundredNanos).unwrap(), 15);
        assert!(!is_time(b"1.2.3") && !is_time(b".") && !is_time(b""));
    }

    #[test]
    fn values_are_escaped_once() {
        assert_eq!(shown(b"\xa6D \xb7\x00 \"a\\\n'"), r#"\xa6D \xb7\0 \"a\\\n'"#);
        assert_eq!(shown("\u{e9} \u{202e}".as_bytes()), "\u{e9} \\u{202e}");
        // Cut within a character.
        let long = format!("{}\u{e9}", "a".repeat(79));
        assert_eq!(shown(long.as_bytes()), format!("{}\\xc3...", "a".repeat(79)));
    }

    #[test]
    fn hexadecimal_numbers_may_say_so() {
        assert_eq!(hexadecimal("address", b"0x1fffff50").unwrap(), 0x1fff_ff50);
        assert_eq!(hexadecimal("address", b"FFFFFFFFFFFFFFFF").unwrap(), u64::MAX);
        assert!(hexadecimal("address", b"0x").is_err());
        assert!(hexadecimal("address", b"1ffffffffffffffff").is_err());
        assert!(hexadecimal("address", b"xyz").is_err());
    }

    #[test]
    fn columns_are_counted_beyond_those_that_are_kept() {
        let (count, columns) = cut::<2>(b"a, b ,c,", b',');
        assert_eq!((count, columns), (4, [b"a".as_slice(), b"b"]));
        let (count, words) = words::<3>(b"  a\tb ");
        assert_eq!((count, words), (2, [b"a".as_slice(), b"b", b""]));
    }
}
