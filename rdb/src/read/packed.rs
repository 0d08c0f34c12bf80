//! Packed values: listpacks, ziplists, zipmaps, sets of integers. Each is checked to its last byte.

/// An entry of a listpack or a ziplist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    Bytes(&'a [u8]),
    Int(i64),
}

impl Entry<'_> {
    /// Puts the entry as a string behind `out`.
    pub fn put(self, out: &mut Vec<u8>) {
        match self {
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
            Self::Int(number) => {
                use std::io::Write;
                // A vector takes every byte.
                let _ = write!(out, "{number}");
            }
        }
    }

    /// The entry as an integer.
    pub fn int(self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(number),
            Self::Bytes(_) => None,
        }
    }
}

/// A little-endian integer with a sign, of up to eight bytes.
fn signed(bytes: &[u8]) -> i64 {
    let mut wide = [0; 8];
    wide[8 - bytes.len()..].copy_from_slice(bytes);
    i64::from_le_bytes(wide) >> (64 - 8 * bytes.len())
}

fn u32_of(bytes: &[u8]) -> usize {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Calls `f` with each entry of a listpack; `None` if it is none, or if `f` says so.
pub(super) fn listpack<'a>(
    bytes: &'a [u8],
    f: &mut dyn FnMut(Entry<'a>) -> Option<()>,
) -> Option<()> {
    let (head, mut rest) = bytes.split_at_checked(6)?;
    if u32_of(&head[..4]) != bytes.len() {
        return None;
    }
    let (stated, mut count) = (u32_of(&head[4..]), 0);
    loop {
        if rest == [0xff] {
            // A count of 65,535 is one that is not known.
            return (stated == count || stated == 0xffff).then_some(());
        }
        let (entry, len) = listpack_entry(rest)?;
        let behind = &rest[len..];
        let back = back_len(len);
        let (written, behind) = behind.split_at_checked(back)?;
        let mut left = len;
        for (place, byte) in written.iter().rev().enumerate() {
            let more = if place + 1 < back { 128 } else { 0 };
            if usize::from(*byte) != left & 127 | more {
                return None;
            }
            left >>= 7;
        }
        f(entry)?;
        count += 1;
        rest = behind;
    }
}

/// Bytes of the number behind an entry of `len` bytes.
fn back_len(len: usize) -> usize {
    match len {
        ..128 => 1,
        128..16_384 => 2,
        16_384..2_097_152 => 3,
        2_097_152..268_435_456 => 4,
        _ => 5,
    }
}

/// The first entry of a listpack's rest, and its length without the number behind it.
fn listpack_entry(rest: &[u8]) -> Option<(Entry<'_>, usize)> {
    let first = *rest.first()?;
    let bytes = |head: usize, len: usize| {
        let end = head.checked_add(len)?;
        Some((Entry::Bytes(rest.get(head..end)?), end))
    };
    let int = |len: usize| Some((Entry::Int(signed(rest.get(1..=len)?)), len + 1));
    match first {
        0..0x80 => Some((Entry::Int(i64::from(first)), 1)),
        0x80..0xc0 => bytes(1, usize::from(first & 63)),
        0xc0..0xe0 => {
            let number = i64::from(first & 31) << 8 | i64::from(*rest.get(1)?);
            Some((Entry::Int(number << 51 >> 51), 2))
        }
        0xe0..0xf0 => bytes(2, usize::from(first & 15) << 8 | usize::from(*rest.get(1)?)),
        0xf0 => bytes(5, u32_of(rest.get(1..5)?)),
        0xf1 => int(2),
        0xf2 => int(3),
        0xf3 => int(4),
        0xf4 => int(8),
        _ => None,
    }
}

/// Calls `f` with each entry of a ziplist; `None` if it is none, or if `f` says so.
pub(super) fn ziplist<'a>(
    bytes: &'a [u8],
    f: &mut dyn FnMut(Entry<'a>) -> Option<()>,
) -> Option<()> {
    let (head, mut rest) = bytes.split_at_checked(10)?;
    if u32_of(&head[..4]) != bytes.len() {
        return None;
    }
    let (tail, stated) = (u32_of(&head[4..8]), u32_of(&head[8..]));
    let (mut count, mut before, mut last_at) = (0, 0, 10);
    loop {
        if rest == [0xff] {
            let is_sound = tail == last_at && (stated == count || stated == 0xffff);
            return is_sound.then_some(());
        }
        last_at = bytes.len() - rest.len();
        let stated_before = match rest.first()? {
            0xfe => {
                let number = u32_of(rest.get(1..5)?);
                rest = &rest[5..];
                number
            }
            0xff => return None,
            short => {
                rest = &rest[1..];
                usize::from(*short)
            }
        };
        if stated_before != before {
            return None;
        }
        let (entry, len) = ziplist_entry(rest)?;
        rest = rest.get(len..)?;
        before = bytes.len() - rest.len() - last_at;
        f(entry)?;
        count += 1;
    }
}

/// The first entry of a ziplist's rest, without the number before it, and its length.
fn ziplist_entry(rest: &[u8]) -> Option<(Entry<'_>, usize)> {
    let first = *rest.first()?;
    let bytes = |head: usize, len: usize| {
        let end = head.checked_add(len)?;
        Some((Entry::Bytes(rest.get(head..end)?), end))
    };
    let int = |len: usize| Some((Entry::Int(signed(rest.get(1..=len)?)), len + 1));
    match first {
        0..0x40 => bytes(1, usize::from(first)),
        0x40..0x80 => bytes(2, usize::from(first & 63) << 8 | usize::from(*rest.get(1)?)),
        0x80 => {
            let len = rest.get(1..5)?.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
            bytes(5, len)
        }
        0xc0 => int(2),
        0xd0 => int(4),
        0xe0 => int(8),
        0xf0 => int(3),
        0xfe => int(1),
        0xf1..=0xfd => Some((Entry::Int(i64::from(first & 15) - 1), 1)),
        _ => None,
    }
}

/// Calls `f` with each field of a zipmap and its value; `None` if it is none, or if `f` says so.
pub(super) fn zipmap<'a>(
    bytes: &'a [u8],
    f: &mut dyn FnMut(&'a [u8], &'a [u8]) -> Option<()>,
) -> Option<()> {
    let (stated, mut rest) = bytes.split_first()?;
    let mut count = 0;
    let len_of = |rest: &mut &'a [u8]| match *rest {
        [0xfe, a, b, c, d, behind @ ..] => {
            *rest = behind;
            Some(u32_of(&[*a, *b, *c, *d]))
        }
        [len @ ..0xfe, behind @ ..] => {
            *rest = behind;
            Some(usize::from(*len))
        }
        _ => None,
    };
    loop {
        if rest == [0xff] {
            return (usize::from(*stated) == count || *stated >= 0xfe).then_some(());
        }
        let len = len_of(&mut rest)?;
        let (field, behind) = rest.split_at_checked(len)?;
        rest = behind;
        let len = len_of(&mut rest)?;
        let (free, behind) = rest.split_first()?;
        let (value, behind) = behind.split_at_checked(len)?;
        rest = behind.get(usize::from(*free)..)?;
        f(field, value)?;
        count += 1;
    }
}

/// Calls `f` with each integer of a set; `None` if it is none, or if they do not rise.
pub(super) fn int_set(bytes: &[u8], f: &mut dyn FnMut(i64) -> Option<()>) -> Option<()> {
    let (head, ints) = bytes.split_at_checked(8)?;
    let (width, count) = (u32_of(&head[..4]), u32_of(&head[4..]));
    let is_sound = matches!(width, 2 | 4 | 8) && count.checked_mul(width)? == ints.len();
    if !is_sound {
        return None;
    }
    let mut before = None;
    for int in ints.chunks_exact(width) {
        let number = signed(int);
        if before >= Some(number) {
            return None;
        }
        before = Some(number);
        f(number)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_their_signs() {
        assert_eq!(signed(&[0xff]), -1);
        assert_eq!(signed(&[0, 0x80]), -32_768);
        assert_eq!(signed(&[0xff, 0xff, 0x7f]), 8_388_607);
        assert_eq!(listpack_entry(&[0xdf, 0xff]), Some((Entry::Int(-1), 2)));
        assert_eq!(listpack_entry(&[0xcf, 0xff]), Some((Entry::Int(4095), 2)));
        assert_eq!(listpack_entry(&[0xd0, 0x00]), Some((Entry::Int(-4096), 2)));
    }

    #[test]
    fn a_listpack_is_checked_to_its_last_byte() {
        let good = [13, 0, 0, 0, 2, 0, 0x81, b'a', 2, 5, 1, 0, 0xff];
        let all = |bytes: &[u8]| {
            let mut met = 0;
            let done = listpack(bytes, &mut |_| {
                met += 1;
                Some(())
            });
            done.map(|()| met)
        };
        assert_eq!(all(&[12, 0, 0, 0, 2, 0, 0x81, b'a', 2, 5, 1, 0xff]), Some(2));
        assert_eq!(all(&good), None);
        for bad in [
            [13, 0, 0, 0, 2, 0, 0x81, b'a', 2, 5, 1, 0xff],
            [12, 0, 0, 0, 3, 0, 0x81, b'a', 2, 5, 1, 0xff],
            [12, 0, 0, 0, 2, 0, 0x81, b'a', 3, 5, 1, 0xff],
            [12, 0, 0, 0, 2, 0, 0x8f, b'a', 2, 5, 1, 0xff],
            [12, 0, 0, 0, 2, 0, 0x81, b'a', 2, 5, 1, 0xfe],
            [12, 0, 0, 0, 2, 0, 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(all(&bad), None, "{bad:?}");
        }
    }
}
