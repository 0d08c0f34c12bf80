//! The elements of a list as bytes: each entry is one of Redis' listpack, so a number takes the
//! bytes of its value, and a run of entries can be walked from both ends.
//!
//! ```text
//! encoding, with the number or the string's length | string | length of both so far, backwards
//! 0xxxxxxx 0 to 127            110xxxxx 13-bit number      0xF1 to 0xF4  number of 2, 3, 4, 8 B
//! 10xxxxxx string up to 63 B   1110xxxx string up to 4095 B
//! 0xF5     offset u64 of a record that is the element: no entry of Redis'
//! ```

/// Most bytes of an element that is an entry by itself; a longer one has a record of its own.
pub(crate) const INLINE_BYTES_MAX: usize = 1000;
const PART: u8 = 0xf5;
const FIRST_NUMBER: u8 = 0xf1;
/// Bytes of the numbers that have an encoding byte of their own.
const NUMBER_BYTES: [usize; 4] = [2, 3, 4, 8];

/// An element as an entry holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// An element that is the decimal form of this number.
    Number(i64),
    /// Any other element.
    Text(&'a [u8]),
    /// Offset of the record whose value is the element.
    Part(u64),
}

impl<'a> Item<'a> {
    /// The item of an element of at most [`INLINE_BYTES_MAX`] bytes.
    #[inline]
    pub fn of(element: &'a [u8]) -> Self {
        number_of(element).map_or(Self::Text(element), Self::Number)
    }

    /// Bytes of the entry.
    #[inline]
    pub fn len(&self) -> usize {
        let body = self.body_len();
        body + if body < 128 { 1 } else { 2 }
    }

    /// Bytes of the entry without the length at its end.
    #[inline]
    fn body_len(&self) -> usize {
        match *self {
            Self::Number(0..=127) => 1,
            Self::Number(-4096..=4095) => 2,
            Self::Number(number) => 1 + NUMBER_BYTES[width_of(number)],
            Self::Text(text) => text.len() + if text.len() < 64 { 1 } else { 2 },
            Self::Part(_) => 9,
        }
    }

    /// Writes the entry to its [`Item::len`] bytes.
    #[inline]
    pub fn write(&self, out: &mut [u8]) {
        let body = self.body_len();
        match *self {
            Self::Number(number @ 0..=127) => out[0] = number as u8,
            Self::Number(number @ -4096..=4095) => {
                out[0] = 0xc0 | ((number >> 8) & 0x1f) as u8;
                out[1] = number as u8;
            }
            Self::Number(number) => {
                let width = width_of(number);
                out[0] = FIRST_NUMBER + width as u8;
                out[1..body].copy_from_slice(&number.to_le_bytes()[..NUMBER_BYTES[width]]);
            }
            Self::Text(text) if text.len() < 64 => {
                out[0] = 0x80 | text.len() as u8;
                out[1..body].copy_from_slice(text);
            }
            Self::Text(text) => {
                assert!(text.len() <= INLINE_BYTES_MAX, "an entry of {} bytes", text.len());
                out[0] = 0xe0 | (text.len() >> 8) as u8;
                out[1] = text.len() as u8;
                out[2..body].copy_from_slice(text);
            }
            Self::Part(at) => {
                out[0] = PART;
                out[1..body].copy_from_slice(&at.to_le_bytes());
            }
        }
        if body < 128 {
            out[body] = body as u8;
        } else {
            out[body] = (body >> 7) as u8;
            out[body + 1] = (body & 127) as u8 | 128;
        }
    }

    /// Appends the entry.
    pub fn push(&self, out: &mut Vec<u8>) {
        let from = out.len();
        out.resize(from + self.len(), 0);
        self.write(&mut out[from..]);
    }
}

/// The first of some entries and its bytes; `None` if they do not begin with a whole entry.
#[inline]
pub(crate) fn first(entries: &[u8]) -> Option<(Item<'_>, usize)> {
    let (&encoding, rest) = entries.split_first()?;
    let item = match encoding {
        0..0x80 => Item::Number(i64::from(encoding)),
        0x80..0xc0 => Item::Text(rest.get(..usize::from(encoding & 63))?),
        0xc0..0xe0 => {
            let number = i64::from(encoding & 31) << 8 | i64::from(*rest.first()?);
            Item::Number(number << 51 >> 51)
        }
        0xe0..0xf0 => {
            let (&low, text) = rest.split_first()?;
            Item::Text(text.get(..usize::from(encoding & 15) << 8 | usize::from(low))?)
        }
        PART => Item::Part(u64::from_le_bytes(*rest.first_chunk()?)),
        _ => {
            let width = *NUMBER_BYTES.get(usize::from(encoding.checked_sub(FIRST_NUMBER)?))?;
            let mut bytes = [0; 8];
            bytes[..width].copy_from_slice(rest.get(..width)?);
            let unused = 64 - 8 * width as u32;
            Item::Number(i64::from_le_bytes(bytes) << unused >> unused)
        }
    };
    let len = item.stored_len(encoding);
    (len <= entries.len() && body_before(&entries[..len]) == Some(len - tail_len(len)))
        .then_some((item, len))
}

/// The last of some entries and its bytes; `None` if they do not end with a whole entry.
#[inline]
pub(crate) fn last(entries: &[u8]) -> Option<(Item<'_>, usize)> {
    let body = body_before(entries)?;
    let len = body + if body < 128 { 1 } else { 2 };
    let (item, found) = first(entries.get(entries.len().checked_sub(len)?..)?)?;
    (found == len).then_some((item, len))
}

/// Whether these bytes are entries and nothing else. Returns how many there are, and how many of
/// them are parts.
pub(crate) fn count(mut entries: &[u8]) -> Option<(u64, u64)> {
    let (mut all, mut parts) = (0, 0);
    while !entries.is_empty() {
        let (item, len) = first(entries)?;
        entries = &entries[len..];
        all += 1;
        parts += u64::from(matches!(item, Item::Part(_)));
    }
    Some((all, parts))
}

impl Item<'_> {
    /// Bytes of the entry that was read with this encoding byte. An entry may be longer than this
    /// store would write it.
    #[inline]
    fn stored_len(&self, encoding: u8) -> usize {
        let body = match *self {
            Self::Text(text) if encoding < 0xc0 => 1 + text.len(),
            Self::Text(text) => 2 + text.len(),
            Self::Part(_) => 9,
            Self::Number(_) => match encoding {
                0..0x80 => 1,
                0xc0..0xe0 => 2,
                wide => 1 + NUMBER_BYTES[usize::from(wide - FIRST_NUMBER)],
            },
        };
        body + if body < 128 { 1 } else { 2 }
    }
}

/// Bytes of the length at the end of an entry of `len` bytes.
fn tail_len(len: usize) -> usize {
    if len <= 128 { 1 } else { 2 }
}

/// The length at the end of the last entry: that of the entry without this length.
#[inline]
fn body_before(entries: &[u8]) -> Option<usize> {
    let (&low, rest) = entries.split_last()?;
    match low < 128 {
        true => Some(usize::from(low)),
        false => rest.last().map(|high| usize::from(*high) << 7 | usize::from(low & 127)),
    }
}

/// Which of the wide encodings a number needs.
fn width_of(number: i64) -> usize {
    let fits = |bytes: &usize| {
        let unused = 64 - 8 * *bytes as u32;
        number << unused >> unused == number
    };
    NUMBER_BYTES.iter().position(fits).unwrap_or(3)
}

/// The number that an element is the decimal form of, as Redis writes it: no sign but a minus, no
/// zeros in front.
#[inline]
pub(crate) fn number_of(element: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match element {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !is_negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut number = 0i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        // Downwards, because the lowest number has no positive twin.
        number = number.checked_mul(10)?.checked_sub(i64::from(digit - b'0'))?;
    }
    if is_negative { Some(number) } else { number.checked_neg() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(item: Item<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        item.push(&mut out);
        out
    }

    #[test]
    fn entries_have_the_bytes_that_redis_writes() {
        // From `lpAppend` of Redis 7.2, listed by hand.
        assert_eq!(entry(Item::of(b"0")), [0, 1]);
        assert_eq!(entry(Item::of(b"127")), [127, 1]);
        assert_eq!(entry(Item::of(b"128")), [0xc0, 128, 2]);
        assert_eq!(entry(Item::of(b"-1")), [0xdf, 0xff, 2]);
        assert_eq!(entry(Item::of(b"4096")), [0xf1, 0, 16, 3]);
        assert_eq!(entry(Item::of(b"-32769")), [0xf2, 0xff, 0x7f, 0xff, 4]);
        assert_eq!(entry(Item::of(b"8388608")), [0xf3, 0, 0, 0x80, 0, 5]);
        assert_eq!(entry(Item::of(b"4294967296")), [0xf4, 0, 0, 0, 0, 1, 0, 0, 0, 9]);
        assert_eq!(entry(Item::of(b"ab")), [0x82, b'a', b'b', 3]);
        assert_eq!(entry(Item::of(b"")), [0x80, 1]);
        let long = entry(Item::of(&[7; 300]));
        assert_eq!((&long[..2], long.len(), &long[302..]), (&[0xe1, 44][..], 304, &[2, 174][..]));
        assert_eq!(entry(Item::of(&[7; 126])).len(), 130);
        assert_eq!(entry(Item::of(&[7; 125])).len(), 128);
    }

    #[test]
    fn every_element_is_read_back_from_both_ends() {
        let numbers = [0, 1, 127, 128, 4095, 4096, 32767, 32768, 8388607, 8388608, i64::MAX];
        let mut elements: Vec<Vec<u8>> = numbers
            .iter()
            .flat_map(|n| [*n, -*n, -*n - 1])
            .map(|n| n.to_string().into_bytes())
            .collect();
        let other = [
            "",
            "-",
            "-0",
            "00",
            "01",
            "+1",
            "1x",
            "9223372036854775808",
            "a",
            "99999999999999999999",
        ];
        elements.extend(other.map(|text| text.as_bytes().to_vec()));
        elements.extend((0..=INLINE_BYTES_MAX).step_by(3).map(|len| vec![b'x'; len]));
        let mut all = Vec::new();
        for element in &elements {
            let item = Item::of(element);
            let is_number = std::str::from_utf8(element)
                .is_ok_and(|text| text.parse::<i64>().is_ok_and(|n| n.to_string() == text));
            assert_eq!(matches!(item, Item::Number(_)), is_number, "{element:?}");
            let bytes = entry(item);
            assert_eq!(bytes.len(), item.len());
            assert_eq!(first(&bytes), Some((item, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(first(&bytes[..cut]), None);
            }
            if let Item::Number(number) = item {
                assert_eq!(itoa::Buffer::new().format(number).as_bytes(), element);
            }
            all.extend(bytes);
        }
        assert_eq!(count(&all), Some((elements.len() as u64, 0)));
        let mut rest = &all[..];
        for element in elements.iter().rev() {
            let (item, len) = last(rest).unwrap();
            assert_eq!(item, Item::of(element));
            rest = &rest[..rest.len() - len];
        }
        assert_eq!((rest.len(), last(rest), first(rest)), (0, None, None));
    }

    #[test]
    fn what_no_store_writes_is_no_entry() {
        for bytes in [&[0xf0, 0, 0, 0, 0, 5][..], &[0xf6, 1], &[0xff], &[0x81, b'a', 3], &[5, 2]] {
            assert_eq!(first(bytes), None, "{bytes:?}");
            assert_eq!(last(bytes), None, "{bytes:?}");
        }
    }
}
