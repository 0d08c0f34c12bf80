//! Splits an inline command into arguments, which blanks separate and quotes hold together.

use super::ProtocolError;

/// Appends the arguments of `line` to `out`, and tells `found` the start and length of each.
///
/// In double quotes `\xHH`, `\n`, `\r`, `\t`, `\b`, `\a` and `\c` (any c) are escapes; in single
/// quotes only `\'`. A closing quote must be followed by a blank or the end.
///
/// # Errors
/// A quote is not closed, or something follows a closing quote.
pub(super) fn split(
    line: &[u8],
    out: &mut Vec<u8>,
    mut found: impl FnMut(usize, usize),
) -> Result<(), ProtocolError> {
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(|b| is_blank(*b)) {
            at += 1;
        }
        if at >= line.len() {
            return Ok(());
        }
        let start = out.len();
        at = argument(line, at, out)?;
        found(start, out.len() - start);
    }
}

/// Reads the argument that begins at `at`, and returns where it ended.
fn argument(line: &[u8], mut at: usize, out: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    loop {
        match line.get(at) {
            None | Some(b' ' | b'\n' | b'\r' | b'\t' | 0) => return Ok(at),
            Some(b'"') => return double_quoted(line, at + 1, out),
            Some(b'\'') => return single_quoted(line, at + 1, out),
            Some(byte) => out.push(*byte),
        }
        at += 1;
    }
}

fn double_quoted(line: &[u8], mut at: usize, out: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    loop {
        match &line[at.min(line.len())..] {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\\', b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(hex(*high) << 4 | hex(*low));
                at += 4;
            }
            [b'\\', escaped, ..] => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                at += 2;
            }
            [b'"', rest @ ..] => return closed(rest, at + 1),
            [byte, ..] => {
                out.push(*byte);
                at += 1;
            }
        }
    }
}

fn single_quoted(line: &[u8], mut at: usize, out: &mut Vec<u8>) -> Result<usize, ProtocolError> {
    loop {
        match &line[at.min(line.len())..] {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [b'\\', b'\'', ..] => {
                out.push(b'\'');
                at += 2;
            }
            [b'\'', rest @ ..] => return closed(rest, at + 1),
            [byte, ..] => {
                out.push(*byte);
                at += 1;
            }
        }
    }
}

fn closed(rest: &[u8], at: usize) -> Result<usize, ProtocolError> {
    match rest.first() {
        Some(byte) if !is_blank(*byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(at),
    }
}

/// Whether C's `isspace` calls a byte a blank; NUL counts too, because it ends a line for Redis.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r' | 0)
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}
