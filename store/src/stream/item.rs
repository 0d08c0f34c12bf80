//! The bytes of entries: names and values, one behind the other.
//!
//! ```text
//! entry   flags u8 (1: deleted, 2: the chunk's names) | bytes of the rest varint
//!         | ms minus the chunk's varint | seq minus the chunk's varint, its sign in the lowest bit
//!         | values; or, without the chunk's names: pairs varint | name | value | name | ...
//! item    0x00..=0x7F  the number       0x80..=0xEF  text of 0 to 111 B, then the text
//!         0xF0         bytes varint, then the text      0xF1..=0xF8  a number of 1 to 8 B
//! ```
//! A varint has 7 bits in each byte, the lowest first, and the highest bit set in all but the last.

use super::StreamId;
use crate::listpack::number_of;

/// Flag of an entry that was deleted.
pub(crate) const DELETED: u8 = 1;
/// Flag of an entry whose names are those of its chunk.
const SAME_NAMES: u8 = 2;
const FIRST_TEXT: u8 = 0x80;
const LONG_TEXT: u8 = 0xf0;
const SHORT_TEXT_MAX: usize = (LONG_TEXT - FIRST_TEXT) as usize - 1;

/// A name or a value, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item<'a> {
    /// What is the decimal form of this number.
    Number(i64),
    Text(&'a [u8]),
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a varint off the front.
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn push_item(out: &mut Vec<u8>, bytes: &[u8]) {
    match number_of(bytes) {
        Some(number @ 0..=0x7f) => out.push(number as u8),
        Some(number) => {
            let fits = |len: &usize| {
                let unused = 64 - 8 * *len as u32;
                number << unused >> unused == number
            };
            let len = (1..8).find(fits).unwrap_or(8);
            out.push(LONG_TEXT + len as u8);
            out.extend_from_slice(&number.to_le_bytes()[..len]);
        }
        None if bytes.len() <= SHORT_TEXT_MAX => {
            out.push(FIRST_TEXT + bytes.len() as u8);
            out.extend_from_slice(bytes);
        }
        None => {
            out.push(LONG_TEXT);
            push_varint(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
    }
}

/// Takes an item off the front.
fn take_item<'a>(bytes: &mut &'a [u8]) -> Option<Item<'a>> {
    let (&tag, rest) = bytes.split_first()?;
    *bytes = rest;
    let len = match tag {
        0..FIRST_TEXT => return Some(Item::Number(i64::from(tag))),
        FIRST_TEXT..LONG_TEXT => usize::from(tag - FIRST_TEXT),
        LONG_TEXT => usize::try_from(take_varint(bytes)?).ok()?,
        _ => {
            let len = usize::from(tag - LONG_TEXT);
            let (number, rest) = bytes.split_at_checked(len)?;
            *bytes = rest;
            let mut wide = [0; 8];
            wide.get_mut(..len)?.copy_from_slice(number);
            let unused = 64 - 8 * len as u32;
            return Some(Item::Number(i64::from_le_bytes(wide) << unused >> unused));
        }
    };
    let (text, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(Item::Text(text))
}

fn is_item(item: Item<'_>, bytes: &[u8]) -> bool {
    match item {
        Item::Number(number) => itoa::Buffer::new().format(number).as_bytes() == bytes,
        Item::Text(text) => text == bytes,
    }
}

/// The names of a chunk, which its entries need not repeat.
pub(crate) fn push_names(out: &mut Vec<u8>, pairs: &[(&[u8], &[u8])]) {
    push_varint(out, pairs.len() as u64);
    pairs.iter().for_each(|(name, _)| push_item(out, name));
}

/// Takes the names of a chunk off the front of its bytes: their number, and their items.
pub(crate) fn take_names<'a>(bytes: &mut &'a [u8]) -> Option<Names<'a>> {
    let count = take_varint(bytes)?;
    let all = *bytes;
    for _ in 0..count {
        take_item(bytes)?;
    }
    Some(Names { count, items: &all[..all.len() - bytes.len()] })
}

/// The names of a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names<'a> {
    pub count: u64,
    items: &'a [u8],
}

impl Names<'_> {
    fn are_of(&self, pairs: &[(&[u8], &[u8])]) -> bool {
        let mut items = self.items;
        self.count == pairs.len() as u64
            && pairs.iter().all(|(name, _)| take_item(&mut items).is_some_and(|i| is_item(i, name)))
    }
}

/// The bytes of an entry of a chunk with this first ID and these names.
pub(crate) fn encode(
    master: StreamId,
    names: &Names<'_>,
    id: StreamId,
    pairs: &[(&[u8], &[u8])],
) -> Vec<u8> {
    let mut body = Vec::new();
    push_varint(&mut body, id.ms.wrapping_sub(master.ms));
    let seq = id.seq.wrapping_sub(master.seq) as i64;
    push_varint(&mut body, (seq << 1 ^ seq >> 63) as u64);
    let mut flags = 0;
    if names.are_of(pairs) {
        flags = SAME_NAMES;
        pairs.iter().for_each(|(_, value)| push_item(&mut body, value));
    } else {
        push_varint(&mut body, pairs.len() as u64);
        for (name, value) in pairs {
            push_item(&mut body, name);
            push_item(&mut body, value);
        }
    }
    let mut out = Vec::with_capacity(body.len() + 6);
    out.push(flags);
    push_varint(&mut out, body.len() as u64);
    out.append(&mut body);
    out
}

/// An entry of a chunk as it is stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub id: StreamId,
    pub is_deleted: bool,
    /// Where the entry's flags are, from the first entry on.
    pub at: usize,
    fields: Fields<'a>,
}

impl<'a> Stored<'a> {
    /// The entry's names and values.
    pub fn fields(&self) -> Fields<'a> {
        self.fields
    }
}

/// Takes an entry off the front of a chunk's entries; `None` if there is no whole one.
pub(crate) fn take_entry<'a>(
    bytes: &mut &'a [u8],
    at: usize,
    master: StreamId,
    names: &Names<'a>,
) -> Option<Stored<'a>> {
    let (&flags, rest) = bytes.split_first()?;
    let mut rest = rest;
    let len = usize::try_from(take_varint(&mut rest)?).ok()?;
    let (mut body, behind) = rest.split_at_checked(len)?;
    *bytes = behind;
    let ms = master.ms.wrapping_add(take_varint(&mut body)?);
    let seq = take_varint(&mut body)?;
    let seq = master.seq.wrapping_add((seq >> 1) ^ (seq & 1).wrapping_neg());
    let is_deleted = flags & DELETED != 0;
    let (names, count) = match flags & !DELETED {
        SAME_NAMES => (Some(names.items), names.count),
        0 => (None, take_varint(&mut body)?),
        _ => return None,
    };
    Some(Stored { id: StreamId { ms, seq }, is_deleted, at, fields: Fields { names, count, body } })
}

/// The names and values of an entry.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    /// The names, if they do not stand between the values.
    names: Option<&'a [u8]>,
    count: u64,
    body: &'a [u8],
}

impl Fields<'_> {
    /// The number of pairs of a name and a value.
    #[allow(clippy::len_without_is_empty, reason = "every entry has a pair")]
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Calls `f` with each name and its value, in order. Returns whether the bytes are pairs and
    /// nothing else; memory that no store has written may not be.
    pub fn for_each(&self, f: &mut dyn FnMut(&[u8], &[u8])) -> bool {
        let (mut names, mut body) = (self.names, self.body);
        for _ in 0..self.count {
            let name = match &mut names {
                Some(names) => take_item(names),
                None => take_item(&mut body),
            };
            let (Some(name), Some(value)) = (name, take_item(&mut body)) else { return false };
            let (mut of_name, mut of_value) = (itoa::Buffer::new(), itoa::Buffer::new());
            f(bytes_of(name, &mut of_name), bytes_of(value, &mut of_value));
        }
        body.is_empty()
    }
}

fn bytes_of<'b>(item: Item<'b>, buffer: &'b mut itoa::Buffer) -> &'b [u8] {
    match item {
        Item::Number(number) => buffer.format(number).as_bytes(),
        Item::Text(text) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_of(bytes: &[u8]) -> Names<'_> {
        let mut rest = bytes;
        let names = take_names(&mut rest).expect("names");
        assert!(rest.is_empty());
        names
    }

    #[test]
    fn every_value_comes_back_and_no_cut_entry_is_one() {
        let long = vec![b'x'; 5_000];
        let values: Vec<Vec<u8>> = ["", "0", "127", "128", "-1", "-129", "01", "-0", "65536"]
            .iter()
            .map(|text| text.as_bytes().to_vec())
            .chain([long, vec![b'y'; SHORT_TEXT_MAX], vec![b'z'; SHORT_TEXT_MAX + 1]])
            .chain([i64::MIN, i64::MAX].map(|n| n.to_string().into_bytes()))
            .collect();
        let pairs: Vec<_> = values.iter().map(|value| (&b"name"[..], &value[..])).collect();
        let mut bytes = Vec::new();
        push_names(&mut bytes, &pairs[..2]);
        let names = names_of(&bytes);
        let master = StreamId { ms: 1 << 40, seq: 7 };
        for (pairs, ms, seq) in
            [(&pairs[..], 0, 9), (&pairs[1..3], 5, 0), (&pairs[..1], 1, 1 << 63)]
        {
            let id = StreamId { ms: master.ms + ms, seq };
            let entry = encode(master, &names, id, pairs);
            for cut in 0..entry.len() {
                assert!(take_entry(&mut &entry[..cut], 0, master, &names).is_none());
            }
            let mut rest = &entry[..];
            let found = take_entry(&mut rest, 0, master, &names).expect("an entry");
            assert_eq!((found.id, found.is_deleted, rest.len()), (id, false, 0));
            let mut met = Vec::new();
            let is_whole = found.fields().for_each(&mut |name, value| {
                met.push((name.to_vec(), value.to_vec()));
            });
            let wanted: Vec<_> = pairs.iter().map(|(n, v)| (n.to_vec(), v.to_vec())).collect();
            assert!(is_whole && met == wanted);
        }
    }
}
