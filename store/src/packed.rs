//! A small hash: its fields one after another in the value of one record.
//!
//! ```text
//! field length | value length | field | value      for each field, in order of insertion
//! length: one byte below 128; or the lower seven bits with the highest bit set, then the others
//! ```

use std::ops::Range;

pub(crate) mod ints;
pub(crate) mod members;
pub(crate) mod names;
pub(crate) mod small;

/// Most fields of a packed hash: Redis' limit.
const FIELDS_MAX: usize = 512;
/// Most bytes of a packed hash, and of a packed sorted set.
const BYTES_MAX: usize = 8192;
/// Lengths from here on take two bytes.
const LONG_FROM: usize = 1 << 7;
const _: () = assert!(BYTES_MAX < LONG_FROM << 8);

/// Whether these bytes are fields and nothing else.
pub(crate) fn is_whole(packed: &[u8]) -> bool {
    let read: usize = iter(packed).map(|(name, value)| bytes_of(name, value)).sum();
    read == packed.len() && !packed.is_empty()
}

/// The names and values of all fields.
pub(crate) fn iter(packed: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = packed;
    std::iter::from_fn(move || {
        let (field, value, behind) = first(rest)?;
        rest = behind;
        Some((field, value))
    })
}

/// The first field, its value, and the bytes behind both.
#[inline]
fn first(packed: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (field_len, body) = split_len(packed)?;
    let (value_len, body) = split_len(body)?;
    let (field, body) = body.split_at_checked(field_len)?;
    let (value, behind) = body.split_at_checked(value_len)?;
    Some((field, value, behind))
}

/// Where the value of one field lies.
pub(crate) fn place_of(packed: &[u8], field: &[u8]) -> Option<Range<usize>> {
    let place = find(packed, field).1?;
    let (_, value, _) = first(&packed[place.clone()])?;
    Some(place.end - value.len()..place.end)
}

/// The value of one field.
pub(crate) fn get<'p>(packed: &'p [u8], field: &[u8]) -> Option<&'p [u8]> {
    iter(packed).find(|(name, _)| *name == field).map(|(_, value)| value)
}

/// These fields, no two of which have the same name, as a packed hash. Returns `None` if the hash
/// would be too large to be packed.
pub(crate) fn pack<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Option<Vec<u8>> {
    let (mut out, mut count) = (Vec::new(), 0);
    for (field, value) in fields {
        count += 1;
        if count > FIELDS_MAX || out.len() + bytes_of(field, value) > BYTES_MAX {
            return None;
        }
        push(&mut out, field, value);
    }
    Some(out)
}

/// Sets a field, and returns whether it is new. Returns `None`, and changes nothing, if the hash
/// would be too large to be packed.
pub(crate) fn set(packed: &mut Vec<u8>, field: &[u8], value: &[u8]) -> Option<bool> {
    let (fields, old) = find(packed, field);
    let place = old.clone().unwrap_or(packed.len()..packed.len());
    let is_new = old.is_none();
    let len = packed.len() - place.len() + bytes_of(field, value);
    if len > BYTES_MAX || is_new && fields >= FIELDS_MAX {
        return None;
    }
    if is_new {
        push(packed, field, value);
    } else {
        let mut entry = Vec::with_capacity(bytes_of(field, value));
        push(&mut entry, field, value);
        packed.splice(place, entry);
    }
    Some(is_new)
}

/// Takes a field out. Returns whether it was there.
pub(crate) fn remove(packed: &mut Vec<u8>, field: &[u8]) -> bool {
    let old = find(packed, field).1;
    let was_there = old.is_some();
    old.into_iter().for_each(|place| drop(packed.drain(place)));
    was_there
}

/// Where a field lies, with its lengths, if the hash has it; and how many fields lie before.
fn find(packed: &[u8], field: &[u8]) -> (usize, Option<Range<usize>>) {
    let (mut rest, mut fields) = (packed, 0);
    while let Some((name, _, behind)) = first(rest) {
        if name == field {
            return (fields, Some(packed.len() - rest.len()..packed.len() - behind.len()));
        }
        (rest, fields) = (behind, fields + 1);
    }
    (fields, None)
}

/// Bytes of a field with its lengths.
fn bytes_of(field: &[u8], value: &[u8]) -> usize {
    len_bytes(field.len()) + len_bytes(value.len()) + field.len() + value.len()
}

fn push(out: &mut Vec<u8>, field: &[u8], value: &[u8]) {
    push_len(out, field.len());
    push_len(out, value.len());
    out.extend_from_slice(field);
    out.extend_from_slice(value);
}

/// Bytes of a length.
fn len_bytes(len: usize) -> usize {
    if len < LONG_FROM { 1 } else { 2 }
}

fn push_len(out: &mut Vec<u8>, len: usize) {
    if len < LONG_FROM {
        return out.push(len as u8);
    }
    out.extend_from_slice(&[(len % LONG_FROM + LONG_FROM) as u8, (len / LONG_FROM) as u8]);
}

/// The length that bytes begin with, and the bytes behind it.
#[inline]
fn split_len(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        [len @ 0..0x80, rest @ ..] => Some((usize::from(*len), rest)),
        [low, high, rest @ ..] => {
            Some((usize::from(*low) - LONG_FROM + usize::from(*high) * LONG_FROM, rest))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_set_replaced_removed_in_place() {
        let mut packed = Vec::new();
        assert_eq!(set(&mut packed, b"a", b"1"), Some(true));
        assert_eq!(set(&mut packed, b"", b"22"), Some(true));
        assert_eq!(set(&mut packed, b"a", b""), Some(false));
        assert_eq!(iter(&packed).collect::<Vec<_>>(), [(&b"a"[..], &b""[..]), (b"", b"22")]);
        assert_eq!(get(&packed, b""), Some(&b"22"[..]));
        assert_eq!(pack(iter(&packed)).as_ref(), Some(&packed));
        assert!(remove(&mut packed, b"a") && !remove(&mut packed, b"a"));
        assert_eq!(iter(&packed).count(), 1);
    }

    #[test]
    fn lengths_take_one_byte_or_two() {
        let mut packed = Vec::new();
        for len in [0, 2, 126, 128, 130, 254, 256, 4000] {
            let (before, name) = (packed.len(), vec![b'n'; len / 2]);
            assert_eq!(set(&mut packed, &name, &vec![b'v'; len]), Some(true));
            let lengths = len_bytes(len) + len_bytes(len / 2);
            assert_eq!(packed.len() - before, len + len / 2 + lengths);
            assert_eq!(get(&packed, &name).map(<[u8]>::len), Some(len));
        }
        assert!(is_whole(&packed));
        for cut in 1..packed.len() {
            let whole: usize =
                iter(&packed[..cut]).map(|(name, value)| bytes_of(name, value)).sum();
            assert_eq!(is_whole(&packed[..cut]), whole == cut);
        }
    }

    #[test]
    fn too_many_or_too_large_is_not_packed() {
        let mut packed = Vec::new();
        for field in 0..FIELDS_MAX as u16 {
            assert_eq!(set(&mut packed, &field.to_le_bytes(), b""), Some(true));
        }
        let before = packed.clone();
        assert_eq!(set(&mut packed, b"one more", b""), None);
        assert_eq!(set(&mut packed, &[0, 0], &[0; BYTES_MAX]), None);
        assert_eq!((&packed, set(&mut packed.clone(), &[0, 0], b"1")), (&before, Some(false)));
        for (len, fits) in [(BYTES_MAX - 4, true), (BYTES_MAX - 3, false)] {
            let (value, mut alone) = (vec![0; len], Vec::new());
            let packed = pack([(&b"x"[..], &value[..])].into_iter());
            assert_eq!(packed.map(|packed| packed.len()), fits.then_some(BYTES_MAX));
            assert_eq!(set(&mut alone, b"x", &value), fits.then_some(true));
        }
        let names: Vec<[u8; 2]> = (0..=FIELDS_MAX as u16).map(u16::to_le_bytes).collect();
        assert_eq!(pack(names.iter().map(|name| (&name[..], &b""[..]))), None);
    }
}
