//! The pages that were touched, each with the instant of its last write and how often it was written: 16 B a page.
//!
//! A line of four entries is one cache line. A page's home is a hash of its number without the last two bits, its place there the
//! last two: so pages in a row, as requests are, lie side by side. What finds its home full goes on to the next lines.
//! The table is [`PIECES`] pieces that grow one at a time, by a quarter, from 1/2 full to 5/8: at most 32 B a page, and
//! what grows needs both its copies only for one piece. A home rises with the hash, so that growing reads and writes in order.
//! Entries are never removed.

use std::collections::HashMap;

use super::sys;

/// A page that was never written has this for the instant of its last write.
pub const NEVER: u64 = 1;
/// The first number of an instant; 0 says that an entry is empty.
pub const FIRST_INSTANT: u64 = 2;
/// Pages a line.
const SLOTS: usize = 4;
/// Pieces of a table that is not small.
const PIECES: usize = 1 << PIECE_BITS;
/// The upper bits of a hash, which say the piece.
const PIECE_BITS: u32 = 6;
/// Pages of a table that is one piece.
const SMALL_PAGES: u64 = 4096;
/// Bits of an instant's number that lie beside the page's.
const HIGH_BITS: u32 = 13;

/// A page: 51 bits of number, 45 bits of instant, 32 bits of count.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Entry {
    page_and_high: u64,
    low_and_count: u64,
}

impl Entry {
    fn new(page: u64) -> Self {
        Self { page_and_high: page << HIGH_BITS, low_and_count: NEVER << 32 }
    }

    fn page(&self) -> u64 {
        self.page_and_high >> HIGH_BITS
    }

    /// The instant of its last write, [`NEVER`], or 0 for an empty entry.
    #[inline]
    pub fn instant(&self) -> u64 {
        (self.page_and_high & ((1 << HIGH_BITS) - 1)) << 32 | self.low_and_count >> 32
    }

    /// Writes since the count was last carried.
    fn count(&self) -> u32 {
        self.low_and_count as u32
    }

    #[inline]
    fn set(&mut self, instant: u64, count: u32) {
        self.page_and_high = self.page_and_high >> HIGH_BITS << HIGH_BITS | instant >> 32;
        self.low_and_count = instant << 32 | u64::from(count);
    }
}

/// Four entries in a cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line([Entry; SLOTS]);

const _: () = assert!(size_of::<Line>() == 64);

/// Where an entry lies: good until its piece grows, and looked at again before it is believed.
#[derive(Clone, Copy, Default)]
pub struct Place {
    piece: u32,
    line: u32,
    slot: u32,
}

/// Part of the table.
struct Piece {
    lines: Vec<Line>,
    used: u64,
}

impl Piece {
    fn new(lines: usize) -> Self {
        let mut lines = vec![Line::default(); lines];
        sys::prefer_huge_pages(&mut lines);
        Self { lines, used: 0 }
    }

    fn is_full(&self) -> bool {
        self.used >= (self.lines.len() * SLOTS) as u64 / 8 * 5
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.lines.len() as u64) >> 32) as usize
    }

    /// The page's line and slot, or those of the first empty slot on its way.
    #[inline]
    fn find(&self, hash: u64, page: u64) -> (usize, usize, bool) {
        let mut line = self.home(hash);
        let first = page as usize % SLOTS;
        loop {
            let slots = &self.lines[line].0;
            let mut empty = None;
            for at in 0..SLOTS {
                let slot = first ^ at;
                let entry = &slots[slot];
                if entry.instant() == 0 {
                    empty = empty.or(Some(slot));
                } else if entry.page() == page {
                    return (line, slot, true);
                }
            }
            if let Some(slot) = empty {
                return (line, slot, false);
            }
            line += 1;
            if line == self.lines.len() {
                line = 0;
            }
        }
    }

    fn grow(&mut self) {
        let lines = self.lines.len();
        let mut larger = Self::new(lines + (lines / 4).max(1));
        larger.used = self.used;
        for entry in self.entries() {
            let (line, slot, _) = larger.find(hash_of(entry.page()) << PIECE_BITS, entry.page());
            larger.lines[line].0[slot] = *entry;
        }
        *self = larger;
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.lines.iter().flat_map(|line| &line.0).filter(|entry| entry.instant() != 0)
    }
}

/// The pages of a volume.
pub struct PageTable {
    pieces: Vec<Piece>,
    /// How far a hash is shifted to give its piece, less one: a shift by 64 is none.
    piece_shift: u32,
    pages: u64,
    /// Where a count is carried: `u32::MAX`, less in tests.
    count_max: u32,
    /// What was carried, in writes.
    carried: HashMap<u64, u64>,
}

/// Upper six bits: the piece. The 32 bits below: the home.
#[inline]
fn hash_of(page: u64) -> u64 {
    let group = page / SLOTS as u64;
    let mixed = group.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed ^ mixed >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

impl PageTable {
    pub fn new() -> Self {
        Self::with_count_max(u32::MAX)
    }

    fn with_count_max(count_max: u32) -> Self {
        let pieces = vec![Piece::new(4)];
        Self { pieces, piece_shift: 63, pages: 0, count_max, carried: HashMap::new() }
    }

    /// Pages in it.
    pub fn len(&self) -> u64 {
        self.pages
    }

    #[inline]
    fn piece_of(&self, hash: u64) -> usize {
        (hash >> 1 >> self.piece_shift) as usize
    }

    /// Brings the page's home line nearer.
    #[inline]
    pub fn prefetch(&self, page: u64) {
        let hash = hash_of(page);
        let piece = &self.pieces[self.piece_of(hash)];
        sys::prefetch(&piece.lines, piece.home(hash << PIECE_BITS));
    }

    /// Where the page lies and the instant of its last write, if it is there.
    #[inline]
    pub fn peek(&self, page: u64) -> Option<(Place, u64)> {
        let hash = hash_of(page);
        let at = self.piece_of(hash);
        let (line, slot, found) = self.pieces[at].find(hash << PIECE_BITS, page);
        let place = Place { piece: at as u32, line: line as u32, slot: slot as u32 };
        found.then(|| (place, self.pieces[at].lines[line].0[slot].instant()))
    }

    /// The page's place; it is entered if it was not there.
    #[inline]
    pub fn place(&mut self, page: u64, hint: Place) -> Place {
        let entry = self.pieces.get(hint.piece as usize);
        let entry = entry.and_then(|piece| piece.lines.get(hint.line as usize));
        if let Some(entry) = entry.map(|line| &line.0[hint.slot as usize % SLOTS])
            && entry.page() == page
            && entry.instant() != 0
        {
            return hint;
        }
        self.place_or_enter(page)
    }

    fn place_or_enter(&mut self, page: u64) -> Place {
        let hash = hash_of(page);
        let mut at = self.piece_of(hash);
        let (mut line, mut slot, found) = self.pieces[at].find(hash << PIECE_BITS, page);
        if !found {
            if self.pieces[at].is_full() {
                if self.pieces.len() == 1 && self.pages >= SMALL_PAGES {
                    self.divide();
                    at = self.piece_of(hash);
                } else {
                    self.pieces[at].grow();
                }
                (line, slot, _) = self.pieces[at].find(hash << PIECE_BITS, page);
            }
            self.pieces[at].lines[line].0[slot] = Entry::new(page);
            self.pieces[at].used += 1;
            self.pages += 1;
        }
        Place { piece: at as u32, line: line as u32, slot: slot as u32 }
    }

    /// From one piece to many.
    fn divide(&mut self) {
        let Some(whole) = self.pieces.pop() else { return };
        self.piece_shift = 63 - PIECE_BITS;
        let lines = whole.lines.len().div_ceil(PIECES) * 5 / 4 + 1;
        self.pieces.extend((0..PIECES).map(|_| Piece::new(lines)));
        for entry in whole.entries() {
            let hash = hash_of(entry.page());
            let at = self.piece_of(hash);
            if self.pieces[at].is_full() {
                self.pieces[at].grow();
            }
            let piece = &mut self.pieces[at];
            let (line, slot, _) = piece.find(hash << PIECE_BITS, entry.page());
            piece.lines[line].0[slot] = *entry;
            piece.used += 1;
        }
    }

    /// The instant of the page's last write.
    #[inline]
    pub fn instant(&self, place: Place) -> u64 {
        self.entry(place).instant()
    }

    #[inline]
    fn entry(&self, place: Place) -> &Entry {
        &self.pieces[place.piece as usize].lines[place.line as usize].0[place.slot as usize % SLOTS]
    }

    /// Counts one write of the page at `instant`.
    #[inline]
    pub fn write(&mut self, place: Place, instant: u64) {
        let count_max = self.count_max;
        let line = &mut self.pieces[place.piece as usize].lines[place.line as usize];
        let entry = &mut line.0[place.slot as usize % SLOTS];
        let count = entry.count();
        if count == count_max {
            *self.carried.entry(entry.page()).or_default() += u64::from(count_max);
            entry.set(instant, 1);
        } else {
            entry.set(instant, count + 1);
        }
    }

    /// How often each page was written; those never written are not among them.
    pub fn counts(&self) -> impl Iterator<Item = u64> {
        let entries = self.pieces.iter().flat_map(Piece::entries);
        entries.filter(|entry| entry.instant() != NEVER).map(|entry| {
            let count = u64::from(entry.count());
            if self.carried.is_empty() {
                return count;
            }
            count + self.carried.get(&entry.page()).copied().unwrap_or(0)
        })
    }

    /// Bytes of its lines.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| (piece.lines.capacity() * size_of::<Line>()) as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Page to (last instant, count), the plain way.
    type Oracle = HashMap<u64, (u64, u64)>;

    fn check(seed: u64, pages: u64, stride: u64, count_max: u32) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut table, mut oracle) = (PageTable::with_count_max(count_max), Oracle::new());
        for step in FIRST_INSTANT..60_000 {
            let instant = step << (seed % 30);
            let page = (rng.random_range(0..pages) * stride) & ((1 << 51) - 1);
            let hint = match rng.random_range(0..3) {
                0 => Place::default(),
                1 => Place { piece: rng.random(), line: rng.random(), slot: rng.random() },
                _ => table.peek(page).map_or(Place::default(), |(place, _)| place),
            };
            let known = oracle.get(&page).map(|known| known.0);
            assert_eq!(table.peek(page).map(|(_, instant)| instant), known, "seed {seed}");
            let place = table.place(page, hint);
            let entry = oracle.entry(page).or_insert((NEVER, 0));
            assert_eq!(table.instant(place), entry.0, "seed {seed}");
            if rng.random() {
                table.write(place, instant);
                *entry = (instant, entry.1 + 1);
            }
        }
        assert_eq!(table.len(), oracle.len() as u64, "seed {seed}");
        let mut counts: Vec<u64> = table.counts().collect();
        let mut expected: Vec<u64> = oracle.values().map(|v| v.1).filter(|c| *c > 0).collect();
        counts.sort_unstable();
        expected.sort_unstable();
        assert_eq!(counts, expected, "seed {seed}");
    }

    #[test]
    fn a_table_knows_what_a_map_knows() {
        for (seed, (pages, stride)) in
            [(1, 1), (5, 1), (5000, 1), (30_000, 1), (1 << 51, 1), (9000, 4), (40_000, 4096)]
                .into_iter()
                .enumerate()
        {
            check(seed as u64, pages, stride, u32::MAX);
            check(seed as u64, pages, stride, 3);
        }
    }

    #[test]
    fn the_first_and_the_last_page_are_pages() {
        let mut table = PageTable::new();
        for page in [0, (1 << 51) - 1] {
            assert!(table.peek(page).is_none());
            let place = table.place(page, Place::default());
            assert_eq!(table.instant(place), NEVER);
            table.write(place, (1 << 45) - 1);
            assert_eq!(table.peek(page).unwrap().1, (1 << 45) - 1);
        }
        assert_eq!(table.counts().collect::<Vec<_>>(), [1, 1]);
    }

    #[test]
    fn a_page_costs_at_most_33_bytes() {
        for pages in [10_000u64, 50_000, 300_000] {
            for stride in [1, 977] {
                let mut table = PageTable::new();
                for page in 0..pages {
                    table.place(page * stride, Place::default());
                    let len = table.len();
                    // A small table is one piece, half of which can be empty.
                    if len > 2 * SMALL_PAGES {
                        assert!(table.bytes() <= 33 * len + (64 << 10), "{len}: {}", table.bytes());
                    }
                }
            }
        }
    }
}
