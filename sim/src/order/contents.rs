//! The bytes of a persistent memory, kept sparsely and shared between copies.
//!
//! Pages of zeros need not exist. Copies share pages until one is written, so a crash
//! state costs the lines in which it differs. `hash` depends on the bytes alone: equal contents
//! have equal hashes.

use std::collections::BTreeMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes that a processor writes back at a time.
pub(crate) const LINE_BYTES: usize = 64;
/// Bytes that are persisted whole or not at all.
pub(crate) const WORD_BYTES: usize = 8;
/// Bytes that copies share or do not.
pub(crate) const PAGE_BYTES: usize = 4 << 10;
const LINES_PER_PAGE: u64 = (PAGE_BYTES / LINE_BYTES) as u64;

/// The bytes of a line.
pub(crate) type Line = [u8; LINE_BYTES];

/// The bytes of a memory.
#[derive(Clone)]
pub(crate) struct Contents {
    len_bytes: u64,
    pages: BTreeMap<u64, Arc<[u8; PAGE_BYTES]>>,
    hash: u64,
}

impl Contents {
    /// A memory of zeros.
    pub fn zeroed(len_bytes: u64) -> Self {
        Self { len_bytes, pages: BTreeMap::new(), hash: 0 }
    }

    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// A hash of the bytes and of nothing else.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Line `number`, counted from the first.
    pub fn line(&self, number: u64) -> Line {
        let mut line = [0; LINE_BYTES];
        if let Some(page) = self.pages.get(&(number / LINES_PER_PAGE)) {
            let at = (number % LINES_PER_PAGE) as usize * LINE_BYTES;
            line.copy_from_slice(&page[at..at + LINE_BYTES]);
        }
        line
    }

    pub fn set_line(&mut self, number: u64, line: &Line) {
        let old = self.line(number);
        if old == *line {
            return;
        }
        self.hash ^= line_hash(number, &old) ^ line_hash(number, line);
        let page =
            self.pages.entry(number / LINES_PER_PAGE).or_insert_with(|| Arc::new([0; PAGE_BYTES]));
        let at = (number % LINES_PER_PAGE) as usize * LINE_BYTES;
        Arc::make_mut(page)[at..at + LINE_BYTES].copy_from_slice(line);
    }

    /// Stores `bytes` at `offset`.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (number, at, part) in lines_of(offset, bytes) {
            let mut line = self.line(number);
            line[at..at + part.len()].copy_from_slice(part);
            self.set_line(number, &line);
        }
    }

    /// Stores zeros in the lines of a range.
    pub fn empty(&mut self, offset: u64, len: u64) {
        for number in self.lines_within(offset, len) {
            self.set_line(number, &[0; LINE_BYTES]);
        }
    }

    /// The lines of a range that do not hold zeros.
    pub fn lines_within(&self, offset: u64, len: u64) -> Vec<u64> {
        let line = LINE_BYTES as u64;
        let pages = self
            .pages
            .range(offset / PAGE_BYTES as u64..(offset + len).div_ceil(PAGE_BYTES as u64));
        pages
            .flat_map(|(page, _)| page * LINES_PER_PAGE..(page + 1) * LINES_PER_PAGE)
            .filter(|number| (offset..offset + len).contains(&(number * line)))
            .filter(|number| self.line(*number) != [0; LINE_BYTES])
            .collect()
    }

    /// Offset and bytes of all parts that are not known to be zeros, ascending.
    pub fn parts(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages.iter().map(|(number, page)| (number * PAGE_BYTES as u64, &page[..]))
    }
}

/// The part of the contents' hash that comes from a line; 0 for a line of zeros.
pub(crate) fn line_hash(number: u64, line: &Line) -> u64 {
    if *line == [0; LINE_BYTES] { 0 } else { xxh3_64_with_seed(line, number + 1) }
}

/// Cuts a store at the lines: number of the line, offset in the line, bytes.
pub(crate) fn lines_of(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, usize, &[u8])> {
    pieces(offset, bytes, LINE_BYTES).map(|(offset, part)| {
        (offset / LINE_BYTES as u64, (offset % LINE_BYTES as u64) as usize, part)
    })
}

/// Cuts a store at multiples of `grain`: offset and bytes of each piece.
pub(crate) fn pieces(
    offset: u64,
    bytes: &[u8],
    grain: usize,
) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = (offset, bytes);
    std::iter::from_fn(move || {
        let (offset, bytes) = rest;
        if bytes.is_empty() {
            return None;
        }
        let len = bytes.len().min(grain - (offset % grain as u64) as usize);
        rest = (offset + len as u64, &bytes[len..]);
        Some((offset, &bytes[..len]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_have_equal_hashes_however_they_came_about() {
        let mut one = Contents::zeroed(1 << 20);
        let mut other = one.clone();
        one.write(4_090, b"across a page");
        other.write(4_090, b"something else");
        assert_ne!(one.hash(), other.hash());
        let shared = other.clone();
        other.write(4_090, b"across a page\0");
        assert_eq!(one.hash(), other.hash());
        assert_eq!(&shared.line(64)[..4], b"ing ", "a copy changed with its original");
        one.write(4_090, &[0; 13]);
        assert_eq!(one.hash(), 0);
    }

    #[test]
    fn a_store_is_cut_at_words_and_lines() {
        let cut: Vec<_> =
            pieces(5, &[1; 12], WORD_BYTES).map(|(at, part)| (at, part.len())).collect();
        assert_eq!(cut, [(5, 3), (8, 8), (16, 1)]);
        let cut: Vec<_> =
            lines_of(120, &[1; 80]).map(|(n, at, part)| (n, at, part.len())).collect();
        assert_eq!(cut, [(1, 56, 8), (2, 0, 64), (3, 0, 8)]);
    }
}
