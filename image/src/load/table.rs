//! The table of a frame, cut into pieces and sorted by where in the region they belong.
//!
//! A region has *parts*, runs of blocks so small that what is kept about one stays in a processor's
//! cache, where all frames' pieces of it are looked at one after the other. A piece lies in one
//! block. Within a part, pieces keep the order of the frame: the later copy is the newer one, and
//! lies behind.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;

use crate::arena::{Arena, SharedWords, Words};
use crate::format::{CHECK_BYTES, CHUNK_BYTES};
use crate::frame::Frame;
use perdura_dirty::extent::{Extent, runs};
use perdura_dirty::geometry::{BLOCK_BYTES, Geometry, WORD_GRAINS};

/// Grains of a part as a power of two: a bit for each in half of the smaller second-level caches.
const PART_SHIFT: u32 = 21;
/// Most parts, as a power of two, while a packed piece can tell the grains of one apart.
const PARTS_SHIFT_MAX: u32 = 8;
/// Fewest, where blocks allow it: threads share them.
const PARTS_SHIFT_MIN: u32 = 4;
/// Bits of a packed piece: grain in the part, place in the frame, length.
const GRAIN_BITS: u32 = 27;
const PLACE_BITS: u32 = 26;
const LEN_BITS: u32 = 11;
/// Pieces that are looked at together where few are sought.
const PIECES_AT_A_TIME: usize = 32;
/// Pieces of a small table.
const SMALL_PIECES: usize = 256;
const LEN_MASK: u64 = (1 << LEN_BITS) - 1;
const _: () = assert!(GRAIN_BITS + PLACE_BITS + LEN_BITS == 64);
const _: () = assert!(BLOCK_BYTES >> perdura_dirty::geometry::GRAIN_SHIFT_BARRIER < 1 << LEN_BITS);
const _: () = assert!(u32::MAX >> perdura_dirty::geometry::GRAIN_SHIFT_BARRIER < 1 << PLACE_BITS);

/// How a region is divided.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    /// Log2 of the grains of a block or, in trap mode, of the blocks of a bitmap word.
    pub block_shift: u32,
    /// Log2 of a part's grains.
    shift: u32,
    /// Log2 of the grains of a 64th of a part, though of a block at least.
    portion_shift: u32,
    /// Parts there are.
    pub count: usize,
}

impl Parts {
    /// The division of a region in which so many bytes are used.
    pub fn of(geometry: &Geometry, region_bytes: u64) -> Self {
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

    /// The part that has a block.
    pub fn of_block(&self, block: u64) -> usize {
        (block >> (self.shift - self.block_shift)) as usize
    }

    /// Grains of a part; of the last one some may not exist.
    pub fn grains(&self, part: usize) -> Range<u64> {
        (part as u64) << self.shift..(part as u64 + 1) << self.shift
    }

    /// Which portion of its part has a grain.
    #[inline]
    fn portion(&self, grain: u64) -> u64 {
        (grain & ((1 << self.shift) - 1)) >> self.portion_shift
    }

    /// Which portion of its part has a block.
    pub fn portion_of_block(&self, block: u64) -> usize {
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

/// Some of an extent, all in one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub run: Extent,
    /// Grains before it in the frame's payload as it is in memory.
    pub place: u64,
}

impl Piece {
    /// What of it has these places.
    #[inline]
    pub fn within(&self, places: &Range<u64>) -> Option<Self> {
        let from = self.place.max(places.start);
        let to = (self.place + self.run.len).min(places.end);
        let len = to.checked_sub(from).filter(|len| *len > 0)?;
        let run = Extent { grain: self.run.grain + (from - self.place), len };
        Some(Self { run, place: from })
    }
}

/// A frame whose table was read and verified.
pub struct Table {
    /// The frame.
    pub frame: Frame,
    /// Checksums of the stored payload's blocks.
    pub sums: Box<[u64]>,
    /// Where each chunk ends in the stored payload; none unless it is compressed.
    pub chunk_ends: Box<[u32]>,
    parts: Parts,
    pieces: Words,
    /// A bit for each grain of each piece: the newest copy. Each part's begin with a word of their
    /// own.
    won: SharedWords,
    /// Of the parts it has pieces of, and behind the last: a small frame has few.
    starts: Box<[Start]>,
}

/// What comes before a part in a table.
#[derive(Debug, Clone, Copy, Default)]
struct Start {
    part: u32,
    pieces: u32,
    won_words: u32,
    /// Of this part, not before it.
    count: Count,
}

/// What a table has of one part.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    pieces: u32,
    grains: u32,
    /// A bit for each portion of the part that any piece is of.
    portions: u64,
}

/// What a table has of each part: counted while its extents are checked, to look at them once less.
pub struct Tally {
    parts: Parts,
    counts: Vec<Count>,
}

impl Tally {
    /// Nothing is counted yet.
    pub fn new(parts: &Parts) -> Self {
        Self { parts: *parts, counts: vec![Count::default(); parts.count] }
    }

    /// Counts a checked extent.
    #[inline]
    pub fn add(&mut self, extent: Extent) {
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

/// How far a share was walked through.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    piece: usize,
    /// Grains of the pieces before.
    grains: u64,
}

impl Table {
    /// `extents`: checked, in the order of their bytes; the tally is of them.
    pub fn new(
        frame: Frame,
        tally: &Tally,
        extents: impl Iterator<Item = Extent> + Clone,
        sums: Box<[u64]>,
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
        Ok(Self { frame, sums, chunk_ends, parts, pieces, won, starts })
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

    /// It has few pieces, as a commit's frame has: there may be hundreds of thousands such.
    pub(super) fn is_small(&self) -> bool {
        self.pieces.as_slice().len() <= SMALL_PIECES
    }

    /// Grains that have won.
    pub(super) fn won_grains(&self) -> u64 {
        self.won.get().iter().map(|bits| u64::from(bits.load(Relaxed).count_ones())).sum()
    }

    /// Bytes of payload, as it is in memory, that are verified or decoded together.
    pub(super) fn unit_bytes(&self) -> usize {
        if self.frame.is_compressed() { CHUNK_BYTES } else { CHECK_BYTES }
    }

    /// Where some of these lie in the payload as stored.
    pub(super) fn stored(&self, units: Range<usize>) -> Range<usize> {
        if !self.frame.is_compressed() {
            return units.start * CHECK_BYTES..(units.end * CHECK_BYTES).min(self.frame.payload());
        }
        let end = |chunk: usize| self.chunk_ends[chunk] as usize;
        units.start.checked_sub(1).map_or(0, end)..end(units.end - 1)
    }
}

impl Share<'_> {
    /// Calls `f` with each piece, the last one first, and a place to note which of its grains have
    /// won.
    #[inline]
    pub fn for_each_from_the_end(&self, mut f: impl FnMut(Extent, Won<'_>)) {
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

    /// Grains that have won.
    pub fn won_grains(&self) -> u64 {
        self.won.iter().map(|bits| u64::from(bits.load(Relaxed).count_ones())).sum()
    }

    /// Whether it can have pieces of a block of the part.
    pub fn may_have(&self, block: u64) -> bool {
        self.portions() >> self.parts.portion_of_block(block) & 1 != 0
    }

    /// A bit for each portion of the part that it has pieces of.
    pub fn portions(&self) -> u64 {
        if self.pieces.is_empty() { 0 } else { self.count.portions }
    }

    /// Calls `f` with each run of grains that have won and whose places are within `places`, in the
    /// order of the frame, from `cursor` on; leaves it at the first piece that reaches beyond.
    pub fn for_each_winner(
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

    /// The same for one block of the part, and all of the frame.
    pub fn for_each_winner_of(&self, block: u64, mut f: impl FnMut(Piece)) {
        let shift = PLACE_BITS + LEN_BITS + self.parts.block_shift;
        let inside = block - (self.parts.grains(self.part).start >> self.parts.block_shift);
        let mut before = 0;
        // Most have none of the block: without a branch for each.
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

    /// Those of `some` of a piece's grains. `grains`: of the pieces before.
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

/// The bits of a share from one on.
pub(super) struct Won<'t> {
    words: &'t [AtomicU64],
    at: u64,
}

impl Won<'_> {
    /// Sets those of `bits`, the first of which is number `from`. Only one thread does, for a part.
    pub fn set(&self, from: u64, bits: u64) {
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

    /// The first `len` of them, at most 64.
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
