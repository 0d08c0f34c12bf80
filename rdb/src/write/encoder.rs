//! Values as bytes: plain forms, which every Redis since 4.0 reads, whatever its limits for packed
//! ones are. Integers and long strings are written short.

use crate::lzf;
use crate::value::{Stream, StreamId, Value};
use crate::write::stream;

/// Strings no longer than this are not compressed.
const COMPRESSED_ABOVE: usize = 20;
/// Digits of the longest integer that is written as one, with its sign.
const INT_DIGITS_MAX: usize = 11;

/// Writes values behind bytes that are there already.
pub struct Encoder<'o> {
    out: &'o mut Vec<u8>,
    compresses: bool,
}

impl<'o> Encoder<'o> {
    /// Writes behind `out`; long strings are compressed if `compresses`.
    pub fn new(out: &'o mut Vec<u8>, compresses: bool) -> Self {
        Self { out, compresses }
    }

    /// Writes a value: the byte that names its encoding, and the value.
    pub fn value(&mut self, value: &Value) {
        match value {
            Value::String(bytes) => self.string_value(bytes),
            Value::List(elements) => {
                self.list(elements.len() as u64);
                elements.iter().for_each(|element| self.string(element));
            }
            Value::Set(members) => {
                self.set(members.len() as u64);
                members.iter().for_each(|member| self.string(member));
            }
            Value::Sorted(names, scores) => {
                self.sorted(scores.len() as u64);
                names.iter().zip(scores).for_each(|(name, score)| self.member(name, *score));
            }
            Value::Hash(fields) => {
                self.hash(fields.len() as u64 / 2);
                fields.iter().for_each(|string| self.string(string));
            }
            Value::ExpiringHash(fields, expiries) => {
                let first_ms = expiries.iter().flatten().min().copied().unwrap_or(0);
                self.expiring_hash(expiries.len() as u64, first_ms);
                for ((name, value), at_ms) in fields.pairs().zip(expiries) {
                    self.expiring_field(name, value, *at_ms, first_ms);
                }
            }
            Value::Stream(stream) => self.stream(stream),
        }
    }

    /// Writes a string's value.
    pub fn string_value(&mut self, bytes: &[u8]) {
        self.out.push(0);
        self.string(bytes);
    }

    /// Begins a list, whose elements follow as strings.
    pub fn list(&mut self, elements: u64) {
        self.out.push(1);
        self.number(elements);
    }

    /// Begins a set, whose members follow as strings.
    pub fn set(&mut self, members: u64) {
        self.out.push(2);
        self.number(members);
    }

    /// Begins a hash, whose fields follow as strings, each with its value behind.
    pub fn hash(&mut self, fields: u64) {
        self.out.push(4);
        self.number(fields);
    }

    /// Begins a hash of which fields expire, the first of them at `first_ms`. Its fields follow.
    pub fn expiring_hash(&mut self, fields: u64, first_ms: u64) {
        self.out.push(24);
        self.out.extend_from_slice(&first_ms.to_le_bytes());
        self.number(fields);
    }

    /// Writes a field of a hash of which fields expire, the first of them at `first_ms`.
    pub fn expiring_field(
        &mut self,
        name: &[u8],
        value: &[u8],
        expire_at_ms: Option<u64>,
        first_ms: u64,
    ) {
        self.number(expire_at_ms.map_or(0, |at_ms| at_ms.saturating_sub(first_ms) + 1));
        self.string(name);
        self.string(value);
    }

    /// Begins a sorted set, whose members follow.
    pub fn sorted(&mut self, members: u64) {
        self.out.push(5);
        self.number(members);
    }

    /// Writes a member of a sorted set.
    pub fn member(&mut self, name: &[u8], score: f64) {
        self.string(name);
        self.out.extend_from_slice(&score.to_le_bytes());
    }

    /// Writes a stream.
    pub fn stream(&mut self, stream: &Stream) {
        self.out.push(19);
        stream::write(self, stream);
    }

    /// Writes a number.
    pub fn number(&mut self, number: u64) {
        match number {
            ..64 => self.out.push(number as u8),
            64..16_384 => self.out.extend([0x40 | (number >> 8) as u8, number as u8]),
            16_384..=0xffff_ffff => {
                self.out.push(0x80);
                self.out.extend_from_slice(&(number as u32).to_be_bytes());
            }
            _ => {
                self.out.push(0x81);
                self.out.extend_from_slice(&number.to_be_bytes());
            }
        }
    }

    /// Writes a string.
    pub fn string(&mut self, bytes: &[u8]) {
        if bytes.len() <= INT_DIGITS_MAX
            && let Some(int) = plain_int(bytes)
        {
            if let Ok(byte) = i8::try_from(int) {
                self.out.extend([0xc0, byte as u8]);
            } else if let Ok(short) = i16::try_from(int) {
                self.out.push(0xc1);
                self.out.extend_from_slice(&short.to_le_bytes());
            } else {
                self.out.push(0xc2);
                self.out.extend_from_slice(&int.to_le_bytes());
            }
            return;
        }
        if self.compresses
            && bytes.len() > COMPRESSED_ABOVE
            && let Some(packed) = lzf::compress(bytes)
        {
            self.out.push(0xc3);
            self.number(packed.len() as u64);
            self.number(bytes.len() as u64);
            return self.out.extend_from_slice(&packed);
        }
        self.number(bytes.len() as u64);
        self.out.extend_from_slice(bytes);
    }

    /// Writes bytes as they are.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Writes an ID as two numbers.
    pub(super) fn id(&mut self, id: StreamId) {
        self.number(id.ms);
        self.number(id.seq);
    }
}

/// The integer that these bytes spell as it would be printed, if it has 32 bits.
fn plain_int(bytes: &[u8]) -> Option<i32> {
    let (is_negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let is_plain = match digits {
        [b'0'] => !is_negative,
        [b'1'..=b'9', ..] => true,
        _ => false,
    };
    if !is_plain {
        return None;
    }
    let mut int = 0i64;
    for digit in digits {
        int = int * 10 + i64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    i32::try_from(if is_negative { -int } else { int }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_would_be_printed_so_is_an_integer() {
        let cases = [("0", Some(0)), ("-1", Some(-1)), ("2147483647", Some(i32::MAX))];
        let others = ["", "-", "-0", "01", "+1", "1 ", "2147483648", "12345678901", "1a"];
        for (text, int) in cases.into_iter().chain(others.map(|text| (text, None))) {
            assert_eq!(plain_int(text.as_bytes()), int, "{text}");
        }
        assert_eq!(plain_int(b"-2147483648"), Some(i32::MIN));
    }
}
