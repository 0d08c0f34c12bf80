//! A chunk of a large list: some of its elements, one behind the other, with room before or behind
//! them.
//!
//! ```text
//! 0   the first word of a record's header    8  start u16 | end u16 | elements u16 | parts u16
//! 16  room; the entries lie in start..end, counted from the chunk's beginning
//! ```
//! A push writes its entry into the room, where nobody sees it, and then changes one word. A part
//! is an element too long for a chunk, with a record of its own, of the same kind.

use perdura_slots::Lane;

use crate::error::Damaged;
use crate::listpack::{self, Item};
use crate::record::{Header, RecordKind};

/// Bytes of the largest chunk.
pub(crate) const CHUNK_BYTES_MAX: usize = 4096;
/// Where the word of the bounds lies, from the chunk's beginning.
pub(crate) const AT_BOUNDS: u64 = 8;
/// Bytes before the room for entries.
pub(crate) const HEAD_BYTES: usize = 16;
/// Entries up to this size go to chunks of the largest size, whatever it leaves unused.
const SMALL_ENTRY_BYTES_MAX: usize = 32;
/// The heap has slots of every multiple of a grain up to this size.
const EXACT_BYTES_MAX: usize = 2048;
const GRAIN_BYTES: usize = 64;
/// Bytes that the index takes for a chunk.
const INDEX_BYTES: usize = 17;
/// What the rest of the memory is called if a chunk is damaged.
const WHAT: &str = "chunk of a list";

/// Bytes to ask for a chunk that is to have entries of this size: at most `wanted`, but room for
/// two. Of the sizes from half of that on, the one that takes least memory for an entry.
pub(crate) fn capacity_for(entry_bytes: usize, wanted: usize) -> usize {
    let wanted = wanted.min(CHUNK_BYTES_MAX);
    if entry_bytes <= SMALL_ENTRY_BYTES_MAX {
        return wanted;
    }
    let entries_in = |bytes: usize| ((bytes - HEAD_BYTES) / entry_bytes).max(2);
    let most = entries_in(wanted.min(EXACT_BYTES_MAX));
    let exact = (most.div_ceil(2).max(2)..=most).map(|entries| {
        ((HEAD_BYTES + entries * entry_bytes).next_multiple_of(GRAIN_BYTES), entries)
    });
    let largest = (wanted == CHUNK_BYTES_MAX).then(|| (wanted, entries_in(wanted)));
    let cheaper = |a: (usize, usize), b: (usize, usize)| {
        // Both divided by their entries, without a division.
        if (a.0 + INDEX_BYTES) * b.1 < (b.0 + INDEX_BYTES) * a.1 { a } else { b }
    };
    exact.chain(largest).reduce(cheaper).map_or(wanted, |(bytes, _)| bytes)
}

/// The header of a chunk or a part with a value of this length.
pub(crate) fn part_header(value_len: u64) -> Header {
    let (key_len, db, expire_at_ms) = (0, 0, 0);
    let (value_len, kind, is_short) = (value_len as u32, RecordKind::ListPart, true);
    Header { value_len, key_len, db, kind, is_short, expire_at_ms }
}

/// A chunk, with its bounds as they were when it was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub at: u64,
    /// Where the first entry begins, from the chunk's beginning.
    pub start: usize,
    /// Where the last entry ends.
    pub end: usize,
    /// Number of elements.
    pub count: u64,
    /// Number of elements that have a record of their own.
    pub parts: u64,
}

impl Chunk {
    /// Reads the bounds of the chunk at `at`; unwinds with [`Damaged`] if no store writes such.
    #[inline]
    pub fn load(lane: &Lane<'_>, at: u64) -> Self {
        match Self::try_load(lane, at) {
            Ok(chunk) => chunk,
            Err(damaged) => damaged.unwind(),
        }
    }

    /// Reads the bounds of the chunk at `at`.
    #[inline]
    pub fn try_load(lane: &Lane<'_>, at: u64) -> Result<Self, Damaged> {
        let words = lane.bytes(at, HEAD_BYTES).as_chunks::<8>().0;
        let [first, bounds] = [u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])];
        if first >> 32 != part_header(0).first_word() >> 32 {
            return Err(Damaged { what: "record's kind", offset: at, value: first });
        }
        let half = |number: u32| usize::from((bounds >> (16 * number)) as u16);
        let (start, end, count, parts) = (half(0), half(1), half(2) as u64, half(3) as u64);
        let is_sound = HEAD_BYTES <= start && start <= end && end <= CHUNK_BYTES_MAX;
        if !is_sound || parts > count {
            return Err(Damaged { what: WHAT, offset: at, value: bounds });
        }
        Ok(Self { at, start, end, count, parts })
    }

    /// The word of the bounds.
    #[inline]
    pub fn bounds(&self) -> [u8; 8] {
        let halves = [self.start as u64, self.end as u64, self.count, self.parts];
        let word = halves.iter().rev().fold(0, |word, half| word << 16 | (half & 0xffff));
        word.to_le_bytes()
    }

    /// The error of a chunk whose entries no store writes.
    #[cold]
    pub fn damaged(&self, lane: &Lane<'_>) -> Damaged {
        Damaged { what: WHAT, offset: self.at, value: lane.load(self.at + AT_BOUNDS) }
    }

    /// Bytes of the entries.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// The entries.
    #[inline]
    pub fn entries<'l>(&self, lane: &'l Lane<'_>) -> &'l [u8] {
        lane.bytes(self.at + self.start as u64, self.len())
    }

    /// The first of some of the chunk's entries.
    #[inline]
    pub fn first<'l>(&self, lane: &Lane<'_>, entries: &'l [u8]) -> (Item<'l>, usize) {
        listpack::first(entries).unwrap_or_else(|| self.damaged(lane).unwind())
    }

    /// The last of some of the chunk's entries.
    #[inline]
    pub fn last<'l>(&self, lane: &Lane<'_>, entries: &'l [u8]) -> (Item<'l>, usize) {
        listpack::last(entries).unwrap_or_else(|| self.damaged(lane).unwind())
    }

    /// Where the entry of the element at `index` begins among the entries, or where they end. Found
    /// from the nearer end.
    pub fn offset_of(&self, lane: &Lane<'_>, index: u64) -> usize {
        let entries = self.entries(lane);
        if index > self.count / 2 {
            let mut end = entries.len();
            for _ in index..self.count {
                end -= self.last(lane, &entries[..end]).1;
            }
            return end;
        }
        let mut at = 0;
        for _ in 0..index {
            at += self.first(lane, &entries[at..]).1;
        }
        at
    }

    /// Offsets of the records of the elements that have one, in these entries of the chunk.
    pub fn parts_in(&self, lane: &Lane<'_>, mut entries: &[u8]) -> Vec<u64> {
        let mut parts = Vec::new();
        while self.parts > 0 && !entries.is_empty() {
            let (item, len) = self.first(lane, entries);
            entries = &entries[len..];
            if let Item::Part(at) = item {
                parts.push(at);
            }
        }
        parts
    }
}

/// The bytes of the part at `at`; unwinds with [`Damaged`] if there is no part.
pub(crate) fn part<'l>(lane: &'l Lane<'_>, at: u64) -> &'l [u8] {
    let header = Header::load(lane, at);
    if header.kind != RecordKind::ListPart || !header.is_short || header.key_len != 0 {
        Damaged { what: "record's kind", offset: at, value: header.first_word() }.unwind();
    }
    lane.bytes(at + header.value_at(), header.value_len as usize)
}

/// Calls `f` with the element that an item is.
#[inline]
pub(crate) fn with_element<R>(lane: &Lane<'_>, item: Item<'_>, f: impl FnOnce(&[u8]) -> R) -> R {
    match item {
        Item::Number(number) => f(itoa::Buffer::new().format(number).as_bytes()),
        Item::Text(text) => f(text),
        Item::Part(at) => f(part(lane, at)),
    }
}
