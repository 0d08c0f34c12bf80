//! The touched pages, each with the instant of its last write and the number of its writes, in 16
//! B.
//!
//! Four entries fill a cache line. A page's home line is a hash of its number without the last bit,
//! so two neighbouring pages share a home, as requests touch them. (With four pages to a home,
//! lines that are the home of other pages fill up, and half of all look-ups go on to the next
//! line.) A page whose home is full goes to the next lines. The table has [`PIECES`] pieces that
//! grow one at a time, when 4/5 full, to 15/8 of their length. So it takes at most 38 B a page, and
//! only one piece at a time needs room for both its copies. The home rises with the hash, so
//! growing reads and writes in order. Entries are never removed.

use std::collections::HashMap;

use zerocopy::FromZeros;

use super::sys::{self, Zeroed};

/// The instant of the last write of a page that was never written.
pub const NEVER: u64 = 1;
/// The number of the first instant.
pub const FIRST_INSTANT: u64 = 2;
/// The entries of a cache line.
const SLOTS: usize = 4;
/// How many pages in a row have one home.
pub const GROUP: u64 = 2;
/// How many pieces a table has that is not small.
const PIECES: usize = 1 << PIECE_BITS;
/// How many upper bits of a hash say the piece.
const PIECE_BITS: u32 = 4;
/// The share of a piece beyond which it grows, as a fraction.
const FULL: (u64, u64) = (4, 5);
/// ... to so many times its length: the less often, the fewer entries are moved.
const GROWTH: (usize, usize) = (15, 8);
/// How many pages a table may have as one piece.
const SMALL_PAGES: u64 = 4096;
/// How many bits of an instant's number lie beside the page's.
const HIGH_BITS: u32 = 12;

/// A page: 52 bits of its number and one, 44 bits of instant, 32 bits of count. All zero: no page.
#[derive(Clone, Copy, FromZeros)]
#[repr(C)]
pub struct Entry {
    key_and_high: u64,
    low_and_count: u64,
}

impl Entry {
    fn new(page: u64) -> Self {
        Self { key_and_high: (page + 1) << HIGH_BITS, low_and_count: NEVER << 32 }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.key_and_high == 0
    }

    #[inline]
    fn is_of(&self, page: u64) -> bool {
        self.key_and_high ^ (page + 1) << HIGH_BITS < 1 << HIGH_BITS
    }

    fn page(&self) -> u64 {
        (self.key_and_high >> HIGH_BITS) - 1
    }

    /// The instant of the page's last write, or [`NEVER`].
    #[inline]
    pub fn instant(&self) -> u64 {
        ((self.key_and_high & ((1 << HIGH_BITS) - 1)) << 32) | (self.low_and_count >> 32)
    }

    /// The writes since the count was last carried.
    #[inline]
    fn count(&self) -> u32 {
        self.low_and_count as u32
    }

    #[inline]
    fn set(&mut self, instant: u64, count: u32) {
        self.key_and_high = self.key_and_high >> HIGH_BITS << HIGH_BITS | instant >> 32;
        self.low_and_count = instant << 32 | u64::from(count);
    }
}

/// The four entries of a cache line.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(64))]
struct Line([Entry; SLOTS]);

const _: () = assert!(size_of::<Line>() == 64);

/// A piece of the table.
struct Piece {
    lines: Zeroed<Line>,
    used: u64,
    /// The entries beyond which it grows.
    used_max: u64,
}

impl Piece {
    fn new(lines: usize) -> Self {
        let lines = Zeroed::new(lines);
        let used_max = (lines.len() * SLOTS) as u64 * FULL.0 / FULL.1;
        Self { lines, used: 0, used_max }
    }

    fn is_full(&self) -> bool {
        self.used >= self.used_max
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.lines.len() as u64) >> 32) as usize
    }

    /// The line and slot of the page, or the empty ones that it would get: the first on its way,
    /// since nothing is ever removed.
    #[inline]
    fn find(&self, hash: u64, page: u64) -> (usize, usize, bool) {
        let mut line = self.home(hash);
        loop {
            let slots = &self.lines[line].0;
            // All four, without a branch: which one it is cannot be foretold.
            let mut found = 0u32;
            for (slot, entry) in slots.iter().enumerate() {
                found |= u32::from(entry.is_of(page)) << slot;
            }
            if found != 0 {
                return (line, found.trailing_zeros() as usize % SLOTS, true);
            }
            if let Some(slot) = slots.iter().position(Entry::is_empty) {
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
        let mut larger = Self::new((lines * GROWTH.0).div_ceil(GROWTH.1));
        for entry in self.entries() {
            larger.enter(entry);
        }
        *self = larger;
    }

    /// Enters a page that is not there.
    #[inline]
    fn enter(&mut self, entry: &Entry) {
        let page = entry.page();
        let (line, slot, _) = self.find(hash_of(page) << PIECE_BITS, page);
        self.lines[line].0[slot] = *entry;
        self.used += 1;
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.lines.iter().flat_map(|line| &line.0).filter(|entry| !entry.is_empty())
    }
}

/// The pages of a volume.
pub struct PageTable {
    pieces: Vec<Piece>,
    /// How far a hash is shifted to give its piece, less one: a shift by 64 is none.
    piece_shift: u32,
    pages: u64,
    /// The count at which it is carried: `u32::MAX`, less in tests.
    count_max: u32,
    /// The counts that were carried, in writes.
    carried: HashMap<u64, u64>,
}

/// The hash of a page: its upper bits say the piece, the 32 bits below the home.
#[inline]
pub fn hash_of(page: u64) -> u64 {
    let group = page / GROUP;
    let mixed = group.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

impl PageTable {
    pub fn new() -> Self {
        Self::with_count_max(u32::MAX)
    }

    fn with_count_max(count_max: u32) -> Self {
        let pieces = vec![Piece::new(4)];
        Self { pieces, piece_shift: 63, pages: 0, count_max, carried: HashMap::new() }
    }

    /// The number of pages in the table.
    pub fn len(&self) -> u64 {
        self.pages
    }

    #[inline]
    fn piece_of(&self, hash: u64) -> usize {
        (hash >> 1 >> self.piece_shift) as usize
    }

    /// Brings the home line of a page with this hash nearer.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let piece = &self.pieces[self.piece_of(hash)];
        sys::prefetch(&piece.lines, piece.home(hash << PIECE_BITS));
    }

    /// Notes that a page was touched, and enters it if it was not there.
    #[inline]
    pub fn touch(&mut self, hash: u64, page: u64) {
        self.entry(hash, page);
    }

    /// Counts one write of the page at `instant`; the instant of the one before, or [`NEVER`].
    #[inline]
    pub fn write(&mut self, hash: u64, page: u64, instant: u64) -> u64 {
        let count_max = self.count_max;
        let entry = self.entry(hash, page);
        let (last, count) = (entry.instant(), entry.count());
        if count == count_max {
            entry.set(instant, 1);
            *self.carried.entry(page).or_default() += u64::from(count);
        } else {
            entry.set(instant, count + 1);
        }
        last
    }

    #[inline]
    fn entry(&mut self, hash: u64, page: u64) -> &mut Entry {
        let piece = self.piece_of(hash);
        let (line, slot, found) = self.pieces[piece].find(hash << PIECE_BITS, page);
        if found {
            return &mut self.pieces[piece].lines[line].0[slot];
        }
        self.enter(hash, page, (piece, line, slot))
    }

    /// Enters a page at the place where it was looked for, or elsewhere if there is no room.
    #[inline(never)]
    fn enter(&mut self, hash: u64, page: u64, at: (usize, usize, usize)) -> &mut Entry {
        let (piece, line, slot) =
            if self.pieces[at.0].is_full() { self.grow(hash, page) } else { at };
        self.pages += 1;
        let piece = &mut self.pieces[piece];
        piece.used += 1;
        let entry = &mut piece.lines[line].0[slot];
        *entry = Entry::new(page);
        entry
    }

    /// Makes room where this page is to lie, and gives the place.
    #[cold]
    fn grow(&mut self, hash: u64, page: u64) -> (usize, usize, usize) {
        if self.pieces.len() == 1 && self.pages >= SMALL_PAGES {
            self.divide();
        } else {
            let piece = self.piece_of(hash);
            self.pieces[piece].grow();
        }
        let piece = self.piece_of(hash);
        let (line, slot, _) = self.pieces[piece].find(hash << PIECE_BITS, page);
        (piece, line, slot)
    }

    /// Divides a table of one piece into many.
    fn divide(&mut self) {
        let Some(whole) = self.pieces.pop() else { return };
        self.piece_shift = 63 - PIECE_BITS;
        let lines = whole.lines.len() * GROWTH.0 / GROWTH.1 / PIECES + 1;
        self.pieces.extend((0..PIECES).map(|_| Piece::new(lines)));
        for entry in whole.entries() {
            let at = self.piece_of(hash_of(entry.page()));
            if self.pieces[at].is_full() {
                self.pieces[at].grow();
            }
            self.pieces[at].enter(entry);
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

    /// The bytes of the table's lines.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.lines.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// For each page its last instant and its count, counted the plain way.
    type Oracle = HashMap<u64, (u64, u64)>;

    fn check(seed: u64, pages: u64, stride: u64, count_max: u32) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (mut table, mut oracle) = (PageTable::with_count_max(count_max), Oracle::new());
        for step in FIRST_INSTANT..60_000 {
            let instant = step << (seed % 30);
            let page = (rng.random_range(0..pages) * stride) & ((1 << 51) - 1);
            let entry = oracle.entry(page).or_insert((NEVER, 0));
            if rng.random() {
                assert_eq!(table.write(hash_of(page), page, instant), entry.0, "seed {seed}");
                *entry = (instant, entry.1 + 1);
            } else {
                table.touch(hash_of(page), page);
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
            assert_eq!(table.write(hash_of(page), page, (1 << 44) - 1), NEVER);
            assert_eq!(table.write(hash_of(page), page, 5), (1 << 44) - 1);
        }
        assert_eq!(table.counts().collect::<Vec<_>>(), [2, 2]);
    }

    #[test]
    fn a_page_costs_at_most_38_bytes() {
        for pages in [10_000u64, 50_000, 300_000] {
            for stride in [1, 977] {
                let mut table = PageTable::new();
                for page in 0..pages {
                    table.touch(hash_of(page * stride), page * stride);
                    let len = table.len();
                    // A small table is one piece, half of which can be empty.
                    if len > 2 * SMALL_PAGES {
                        assert!(table.bytes() <= 38 * len + (64 << 10), "{len}: {}", table.bytes());
                    }
                }
            }
        }
    }
}
