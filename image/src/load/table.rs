//! The table of a frame, cut into pieces and sorted by where in the region they belong.
//!
//! A region is divided into *parts*, runs of blocks. A part is so small that its bitmap stays in a
//! processor's cache while the pieces of all frames are looked at. A piece lies in one block.
//! Within a part pieces keep the order of the frame, so that of two copies the one behind is newer.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;

use crate::arena::{Arena, SharedWords, Words};
use crate::checks::Checks;
use crate::format::{CHECK_BYTES, CHUNK_BYTES};
use crate::frame::Frame;
use perdura_dirty::extent::{Extent, runs};
use perdura_dirty::geometry::{BLOCK_BYTES, Geometry, WORD_GRAINS};

/// Log2 of a part's grains: a bit for each fills half of the smaller second-level caches.
const PART_SHIFT: u32 = 21;
/// Log2 of the most parts, unless a packed piece could then not number the grains of a part.
const PARTS_SHIFT_MAX: u32 = 8;
/// Log2 of the fewest parts, where the number of blocks allows it, so that threads can share them.
const PARTS_SHIFT_MIN: u32 = 4;
/// Bits of a packed piece for the grain's number in its part.
const GRAIN_BITS: u32 = 27;
/// Bits of a packed piece for its place in the frame's payload.
const PLACE_BITS: u32 = 26;
/// Bits of a packed piece for its length.
const LEN_BITS: u32 = 11;
/// Pieces that are tested together where few of them are sought.
const PIECES_AT_A_TIME: usize = 32;
/// Most pieces of a small table.
const SMALL_PIECES: usize = 256;
const LEN_MASK: u64 = (1 << LEN_BITS) - 1;
const _: () = assert!(GRAIN_BITS + PLACE_BITS + LEN_BITS == 64);
const _: () = assert!(BLOCK_BYTES >> perdura_dirty::geometry::GRAIN_SHIFT_BARRIER < 1 << LEN_BITS);
const _: () = assert!(u32::MAX >> perdura_dirty::geometry::GRAIN_SHIFT_BARRIER < 1 << PLACE_BITS);

/// The division of a region into parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parts {
    /// Log2 of the grains of a block or, in trap mode, of the blocks of a bitmap word.
    pub(crate) block_shift: u32,
    /// Log2 of a part's grains.
    shift: u32,
    /// Log2 of the grains of a 64th of a part, though of a block at least.
    portion_shift: u32,
    /// The number of parts.
    pub(crate) count: usize,
}

impl Parts {
    /// Divides a region of which `region_bytes` are in use.
    pub(crate) fn of(geometry: &Geometry, region_bytes: u64) -> Self {
        let grains = region_bytes >> geometry.grain_shift;
        let block_grains = BLOCK_BYTES.max(geometry.word_bytes()) >> geometry.grain_shift;
        let block_shift = block_grains.trailing_zeros();
        let whole = grains.max(1).next_power_of_two().trailing_zeros();
        let shift = whole.saturating_sub(PARTS_SHIFT_MIN).clamp(block_shift, PART_SHIFT);
        let shift = shift.max(whole.saturating_sub(PARTS_SHIFT_MAX)).min(GRAIN_BITS);
        let count = grains.div_ceil(1 << shift) as usize;
        let portion_shift = shift.saturating_sub(u64::BITS.trailing_zeros()).max(block_shift);
        Self { block_shift, shift, portion_shift, count }
    }

    /// The part to which a block belongs.
    pub(crate) fn of_block(&self, block: u64) -> usize {
        (block >> (self.shift - self.block_shift)) as usize
    }

    /// Grains of a part. The last part may reach beyond the region.
    pub(crate) fn grains(&self, part: usize) -> Range<u64> {
        (part as u64) << self.shift..(part as u64 + 1) << self.shift
    }

    /// Blocks of a portion.
    pub(super) fn portion_blocks(&self) -> usize {
        1 << (self.portion_shift - self.block_shift)
    }

    /// The portion of its part that has a grain.
    #[inline]
    fn portion(&self, grain: u64) -> u64 {
        (grain & ((1 << self.shift) - 1)) >> self.portion_shift
    }

    /// The portion of its part that has a block.
    pub(crate) fn portion_of_block(&self, block: u64) -> usize {
        self.portion(block << self.block_shift) as usize
    }

    /// Calls `f` with each piece of these extents and the part it belongs to, in the order of the
    /// frame.
    #[inline]
    fn for_each_piece(
        &self,
        extents: impl Iterator<Item = Extent>,
        mut f: impl FnMut(usize, Piece),
    ) {
        let block_grains = 1 << self.block_shift;
        let mut place = 0;
        for Extent { mut grain, mut len } in extents {
            while len > 0 {
                let here = len.min(block_grains - grain % block_grains);
                let piece = Piece { run: Extent { grain, len: here }, place };
                f((grain >> self.shift) as usize, piece);
                (grain, len, place) = (grain + here, len - here, place + here);
            }
        }
    }

    #[inline]
    fn pack(&self, piece: Piece) -> u64 {
        let grain = piece.run.grain & ((1 << self.shift) - 1);
        (grain << PLACE_BITS | piece.place) << LEN_BITS | piece.run.len
    }

    #[inline]
    fn unpack(&self, part: usize, packed: u64) -> Piece {
        let grain = (part as u64) << self.shift | packed >> (PLACE_BITS + LEN_BITS);
        let place = packed >> LEN_BITS & ((1 << PLACE_BITS) - 1);
        Piece { run: Extent { grain, len: packed & LEN_MASK }, place }
    }
}

/// A part of an extent that lies in one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(crate) run: Extent,
    /// Grains before the piece in the frame's uncompressed payload.
    pub(crate) place: u64,
}

impl Piece {
    /// The part of the piece whose places are in `places`.
    #[inline]
    pub(crate) fn within(&self, places: &Range<u64>) -> Option<Self> {
        let from = self.place.max(places.start);
        let to = (self.place + self.run.len).min(places.end);
        let len = to.checked_sub(from).filter(|len| *len > 0)?;
        let run = Extent { grain: self.run.grain + (from - self.place), len };
        Some(Self { run, place: from })
    }
}

/// The table of a frame, after it was read and verified.
pub(crate) struct Table {
    /// The frame.
    pub(crate) frame: Frame,
    /// Checks of the stored payload's blocks.
    pub(crate) checks: Checks,
    /// The end of each chunk in the stored payload; empty unless the frame is compressed.
    pub(crate) chunk_ends: Box<[u32]>,
    parts: Parts,
    pieces: Words,
    /// A bit for each grain of each piece, set if this copy has won. The bits of each part begin
    /// with a new word.
    won: SharedWords,
    /// The parts of which the table has pieces, and an end mark: a small frame has few parts.
    starts: Box<[Start]>,
}

/// The beginning of a part in a table.
#[derive(Debug, Clone, Copy, Default)]
struct Start {
    part: u32,
    pieces: u32,
    won_words: u32,
    /// The table's pieces of this part.
    count: Count,
}

/// Counts of a table's pieces of one part.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    pieces: u32,
    grains: u32,
    /// A bit for each portion of the part that has a piece.
    portions: u64,
}

/// Counts of a table's pieces of each part, made while its extents are checked, which saves a pass
/// over them.
pub(crate) struct Tally {
    parts: Parts,
    counts: Vec<Count>,
}

impl Tally {
    /// Makes counts of zero.
    pub(crate) fn new(parts: &Parts) -> Self {
        Self { parts: *parts, counts: vec![Count::default(); parts.count] }
    }

    /// Counts a checked extent.
    #[inline]
    pub(crate) fn add(&mut self, extent: Extent) {
        let parts = self.parts;
        parts.for_each_piece([extent].into_iter(), |part, piece| {
            let count = &mut self.counts[part];
            count.pieces += 1;
            count.grains += piece.run.len as u32;
            count.portions |= 1 << parts.portion(piece.run.grain);
        });
    }
}

/// A table's pieces of one part.
pub(super) struct Share<'t> {
    parts: Parts,
    part: usize,
    count: Count,
    pieces: &'t [u64],
    won: &'t [AtomicU64],
}

/// A position in a share.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    piece: usize,
    /// Number of grains in the pieces before.
    grains: u64,
}

impl Table {
    /// Sorts the extents of a frame. They were checked, are in the order of their bytes, and
    /// `tally` is of them.
    pub(crate) fn new(
        frame: Frame,
        tally: &Tally,
        extents: impl Iterator<Item = Extent> + Clone,
        checks: Checks,
        chunk_ends: Box<[u32]>,
        arena: &mut Arena,
    ) -> Result<Self, Errno> {
        let parts = tally.parts;
        let mut starts = Vec::with_capacity(parts.count + 1);
        let mut before = Start::default();
        for (part, count) in (0..).zip(&tally.counts) {
            starts.push(Start { part, count: *count, ..before });
            before.pieces += count.pieces;
            before.won_words += u64::from(count.grains).div_ceil(WORD_GRAINS) as u32;
        }
        starts.push(Start { part: parts.count as u32, ..before });
        let (mut pieces, won) =
            (arena.take(before.pieces as usize)?, arena.take(before.won_words as usize)?);
        let mut next: Vec<u32> = starts.iter().map(|start| start.pieces).collect();
        let words = pieces.as_mut();
        parts.for_each_piece(extents, |part, piece| {
            words[next[part] as usize] = parts.pack(piece);
            next[part] += 1;
        });
        let end = parts.count as u32;
        starts.retain(|start| start.count.pieces > 0 || start.part == end);
        let (won, starts) = (won.shared(), starts.into());
        Ok(Self { frame, checks, chunk_ends, parts, pieces, won, starts })
    }

    pub(super) fn share(&self, part: usize) -> Share<'_> {
        let at = self.starts.partition_point(|start| (start.part as usize) < part);
        let from = self.starts[at];
        let to = if from.part as usize == part { self.starts[at + 1] } else { from };
        Share {
            parts: self.parts,
            part,
            count: from.count,
            pieces: &self.pieces.as_slice()[from.pieces as usize..to.pieces as usize],
            won: &self.won.get()[from.won_words as usize..to.won_words as usize],
        }
    }

    /// The table's shares of all parts of which it has pieces.
    pub(super) fn shares(&self) -> impl Iterator<Item = Share<'_>> {
        let parts = self.starts.split_last().map_or(&[][..], |(_, parts)| parts);
        parts.iter().map(|start| self.share(start.part as usize))
    }

    /// Whether the table has few pieces, as that of a group commit has: there may be hundreds of
    /// thousands of them.
    pub(super) fn is_small(&self) -> bool {
        self.pieces.as_slice().len() <= SMALL_PIECES
    }

    /// Number of grains that have won.
    pub(super) fn won_grains(&self) -> u64 {
        self.won.get().iter().map(|bits| u64::from(bits.load(Relaxed).count_ones())).sum()
    }

    /// Bytes of a unit: uncompressed payload that is verified or decoded together.
    pub(super) fn unit_bytes(&self) -> usize {
        if self.frame.is_compressed() { CHUNK_BYTES } else { CHECK_BYTES }
    }

    /// The bytes of some units in the payload as stored.
    pub(super) fn stored(&self, units: Range<usize>) -> Range<usize> {
        if !self.frame.is_compressed() {
            return units.start * CHECK_BYTES..(units.end * CHECK_BYTES).min(self.frame.payload());
        }
        let end = |chunk: usize| self.chunk_ends[chunk] as usize;
        units.start.checked_sub(1).map_or(0, end)..end(units.end - 1)
    }
}

impl Share<'_> {
    /// Calls `f` with each piece, the last one first, and with the bits that say which of its
    /// grains have won.
    #[inline]
    pub(crate) fn for_each_from_the_end(&self, mut f: impl FnMut(Extent, Won<'_>)) {
        if self.pieces.is_empty() {
            return;
        }
        let mut at = u64::from(self.count.grains);
        for packed in self.pieces.iter().rev() {
            let run = self.parts.unpack(self.part, *packed).run;
            at -= run.len;
            f(run, Won { words: self.won, at });
        }
    }

    /// The portions of the region of which the share has pieces.
    pub(super) fn portions_of_region(&self) -> impl Iterator<Item = u64> {
        let first = self.parts.grains(self.part).start >> self.parts.portion_shift;
        let portions = self.portions();
        (0..u64::from(u64::BITS))
            .filter(move |at| portions >> at & 1 != 0)
            .map(move |at| first + at)
    }

    /// Number of grains that have won.
    pub(crate) fn won_grains(&self) -> u64 {
        self.won.iter().map(|bits| u64::from(bits.load(Relaxed).count_ones())).sum()
    }

    /// Whether the share can have pieces of a block of the part.
    pub(crate) fn may_have(&self, block: u64) -> bool {
        self.portions() >> self.parts.portion_of_block(block) & 1 != 0
    }

    /// A bit for each portion of the part of which the share has pieces.
    pub(crate) fn portions(&self) -> u64 {
        if self.pieces.is_empty() { 0 } else { self.count.portions }
    }

    /// Calls `f` with each run of grains that have won and lie within `places`, in the order of the
    /// frame, from `cursor` on. Leaves the cursor at the first piece that reaches beyond `places`.
    pub(crate) fn for_each_winner(
        &self,
        cursor: &mut Cursor,
        places: Range<u64>,
        mut f: impl FnMut(Piece),
    ) {
        while let Some(packed) = self.pieces.get(cursor.piece) {
            let piece = self.parts.unpack(self.part, *packed);
            self.for_each_run(piece.within(&places), piece, cursor.grains, &mut f);
            if piece.place + piece.run.len > places.end {
                return;
            }
            cursor.piece += 1;
            cursor.grains += piece.run.len;
        }
    }

    /// Calls `f` with each run of grains of a block that have won, in the whole frame.
    pub(crate) fn for_each_winner_of(&self, block: u64, mut f: impl FnMut(Piece)) {
        let shift = PLACE_BITS + LEN_BITS + self.parts.block_shift;
        let inside = block - (self.parts.grains(self.part).start >> self.parts.block_shift);
        let mut before = 0;
        // Most pieces are of other blocks, so several are tested without a branch for each.
        for some in self.pieces.chunks(PIECES_AT_A_TIME) {
            if some.iter().fold(false, |any, packed| any | (packed >> shift == inside)) {
                let mut grains = before;
                for packed in some {
                    if packed >> shift == inside {
                        let piece = self.parts.unpack(self.part, *packed);
                        self.for_each_run(Some(piece), piece, grains, &mut f);
                    }
                    grains += packed & LEN_MASK;
                }
            }
            before += some.iter().map(|packed| packed & LEN_MASK).sum::<u64>();
        }
    }

    /// Calls `f` with each run of grains of `some` that have won. `some` is within `piece`, and
    /// `grains` is the number of grains in the pieces before.
    #[inline]
    fn for_each_run(
        &self,
        some: Option<Piece>,
        piece: Piece,
        grains: u64,
        f: &mut impl FnMut(Piece),
    ) {
        let Some(Piece { run, place }) = some else { return };
        for from in (0..run.len).step_by(WORD_GRAINS as usize) {
            let at = grains + place - piece.place + from;
            let won = Won { words: self.won, at }.get((run.len - from).min(WORD_GRAINS));
            for found in runs(0, won) {
                let before = from + found.grain;
                let run = Extent { grain: run.grain + before, len: found.len };
                f(Piece { run, place: place + before });
            }
        }
    }
}

/// The bits of a share that say which grains have won, from one grain on.
pub(super) struct Won<'t> {
    words: &'t [AtomicU64],
    at: u64,
}

impl Won<'_> {
    /// Sets bits, the first of which has the number `from`. Only one thread sets those of a part.
    pub(crate) fn set(&self, from: u64, bits: u64) {
        let (word, shift) = self.place(from);
        let or = |word: usize, bits: u64| {
            let old = self.words[word].load(Relaxed);
            self.words[word].store(old | bits, Relaxed);
        };
        or(word, bits << shift);
        let beyond = bits >> 1 >> (63 - shift);
        if beyond != 0 {
            or(word + 1, beyond);
        }
    }

    /// The first `len` bits, at most 64.
    fn get(&self, len: u64) -> u64 {
        let (word, shift) = self.place(0);
        let mut bits = self.words[word].load(Relaxed) >> shift;
        if u64::from(shift) + len > 64 {
            bits |= self.words[word + 1].load(Relaxed) << (64 - shift);
        }
        bits & perdura_dirty::extent::mask(0, len)
    }

    fn place(&self, from: u64) -> (usize, u32) {
        let at = self.at + from;
        ((at / 64) as usize, (at % 64) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_a_piece_within_some_places_is_all_that_is_there_and_nothing_else() {
        for (len, place) in [(1, 0), (4, 3), (10, 5)] {
            let piece = Piece { run: Extent { grain: 100, len }, place };
            for start in 0..20 {
                for end in start..20 {
                    let found = piece.within(&(start..end));
                    let inside: Vec<u64> =
                        (0..len).filter(|at| (start..end).contains(&(place + at))).collect();
                    let expected = inside.first().map(|first| Piece {
                        run: Extent { grain: 100 + first, len: inside.len() as u64 },
                        place: place + first,
                    });
                    assert_eq!(found, expected, "{piece:?} in {start}..{end}");
                }
            }
        }
    }
}
