//! Filling memory from the image: in the log's order, or a block at a time for who needs it first.
//!
//! Recovery reads no payload. From the extent tables it learns which copy of each grain is the newest: that one has
//! *won*, and the grain is *pending* until its bytes are in memory. Invariants:
//! - A pending grain is clean: whoever would write it, or move it, loads its whole block first. Its segment counts it
//!   as live, and is never reused while it is pending.
//! - A grain's home is entered in the ledger with its bytes, not before: until then the ledger says
//!   [`Ledger::loading`], and who takes it over begins anew.
//! - Only copies that won are taken. A payload block is verified before; one that does not verify fills nothing.
//! - A grain's bytes and its pending bit change under the stripe lock of its block; a block counts as loaded when
//!   none of its grains is pending.

mod compressed;

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use parking_lot::Mutex;
use perdura_media::Device;

use crate::append::runs;
use crate::error::{ImageError, OpenError};
use crate::format::{CHECK_BYTES, Extent, FRAME_HEADER_BYTES, Layout, checksum};
use crate::gathered::HugePages;
use crate::geometry::{BLOCK_BYTES, Geometry, WORD_GRAINS};
use crate::image::aligned;
use crate::ledger::Ledger;
use crate::planted::Planted;
use crate::recover::Frame;
use crate::sys::{AlignedBytes, Mapping};

/// Payload blocks that are read though nobody needs them, rather than read in two pieces.
const GAP_BLOCKS: usize = 16;
const STRIPES: usize = 512;
/// Buffers kept for the next reader.
const BUFFERS_KEPT: usize = 4;

/// A frame whose table was read and verified.
pub(crate) struct Table {
    pub frame: Frame,
    /// Packed extents, in the order of their bytes.
    pub extents: Box<[u64]>,
    /// Checksums of the stored payload's blocks.
    pub sums: Box<[u64]>,
    /// Where each chunk ends in the stored payload; none unless it is compressed.
    pub chunk_ends: Box<[u32]>,
    /// A bit per grain of payload: the newest copy.
    pub won: Box<[AtomicU64]>,
    /// Grains between which all extents lie.
    pub reach: (u64, u64),
}

/// Part of an extent that lies in one block.
#[derive(Clone, Copy)]
struct Piece {
    run: Extent,
    /// Where in the payload, bytes.
    at: usize,
}

/// Where to, and whom to tell.
pub(crate) struct Target<'t> {
    pub device: &'t dyn Device,
    pub ledger: &'t Ledger,
    pub map: &'t Mapping,
    /// Called with each block that is complete.
    pub loaded: &'t (dyn Fn(u64) + Sync),
    /// Gives blocks their memory; `None`: page by page, as it comes.
    pub huge_pages: Option<&'t HugePages>,
}

/// What of an image is not in memory yet.
pub(crate) struct Loading {
    geometry: Geometry,
    layout: Layout,
    /// Of a block or, in trap mode, of the blocks of a bitmap word.
    block_bytes: u64,
    planted: Planted,
    /// By segment, ascending.
    tables: Vec<Vec<Table>>,
    /// A bit per grain.
    pending: Box<[AtomicU64]>,
    /// Pending grains of each block, and of each segment.
    blocks_left: Box<[AtomicU32]>,
    segments_left: Box<[AtomicU64]>,
    /// Which segments have parts of a block.
    sources: Vec<Sources>,
    blocks_per_share: usize,
    stripes: Box<[Mutex<()>]>,
    /// Segment to be taken up next.
    next: AtomicUsize,
    bytes_left: AtomicU64,
    total_bytes: u64,
    failure: OnceLock<Arc<OpenError>>,
    buffers: Mutex<Vec<Buffers>>,
}

/// What a reader works with.
struct Buffers {
    /// As on the device.
    stored: AlignedBytes,
    /// Decoded; empty until a compressed frame is met.
    raw: Vec<u8>,
}

impl Loading {
    /// Finds the newest copy of each grain among `tables`, newest first, and enters in an empty ledger what the
    /// segments hold. Everything is pending then.
    pub fn resolve(
        ledger: &Ledger,
        tables: Vec<Table>,
        region_bytes: u64,
        threads: usize,
        planted: Planted,
    ) -> Self {
        let geometry = *ledger.geometry();
        let words = (region_bytes >> geometry.grain_shift).div_ceil(WORD_GRAINS) as usize;
        let segments = tables.iter().map(|table| table.frame.segment + 1).max().unwrap_or(0);
        let pending: Box<[_]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let segments_left: Box<[_]> = (0..segments).map(|_| AtomicU64::new(0)).collect();
        let block_bytes = BLOCK_BYTES.max(geometry.word_bytes());
        let block_words = (block_bytes / geometry.word_bytes()) as usize;
        let share = words.div_ceil(threads).next_multiple_of(block_words).max(block_words);
        let find = |from: usize| {
            let share = from..words.min(from + share);
            find_newest(&tables, &pending, share, block_words, &segments_left)
        };
        let find = &find;
        let sources = std::thread::scope(|scope| {
            let spawn = |from| {
                let builder = std::thread::Builder::new();
                builder.spawn_scoped(scope, move || find(from)).map_err(|_| from)
            };
            let others: Vec<_> = (0..words).step_by(share).skip(1).map(spawn).collect();
            let first = find(0);
            let others = others.into_iter().map(|other| match other {
                Ok(thread) => {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                }
                Err(from) => find(from),
            });
            std::iter::once(first).chain(others).collect()
        });
        let blocks_left: Box<[AtomicU32]> = pending
            .chunks(block_words)
            .map(|words| words.iter().map(|bits| bits.load(Relaxed).count_ones()).sum())
            .map(AtomicU32::new)
            .collect();
        let mut grains = 0;
        for (number, left) in (0..segments).zip(&segments_left) {
            let left = left.load(Relaxed);
            ledger.segment(number).live_bytes().store(left << geometry.grain_shift, Relaxed);
            grains += left;
        }
        let mut by_segment: Vec<Vec<Table>> = (0..segments).map(|_| Vec::new()).collect();
        for table in tables.into_iter().rev() {
            by_segment[table.frame.segment as usize].push(table);
        }
        let total_bytes = grains << geometry.grain_shift;
        Self {
            geometry,
            layout: Layout::of(&geometry),
            block_bytes,
            planted,
            tables: by_segment,
            pending,
            blocks_left,
            segments_left,
            sources,
            blocks_per_share: share / block_words,
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            next: AtomicUsize::new(0),
            bytes_left: AtomicU64::new(total_bytes),
            total_bytes,
            failure: OnceLock::new(),
            buffers: Mutex::default(),
        }
    }

    /// Blocks with pending grains.
    pub fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        let left = self.blocks_left.iter().enumerate();
        left.filter(|(_, left)| left.load(Relaxed) > 0).map(|(block, _)| block as u64)
    }

    /// Bytes in memory, of how many.
    pub fn progress(&self) -> (u64, u64) {
        (self.total_bytes - self.bytes_left.load(Acquire), self.total_bytes)
    }

    /// Whether nothing is pending.
    pub fn is_complete(&self) -> bool {
        self.bytes_left.load(Acquire) == 0
    }

    /// The first thing that could not be read.
    pub fn failure(&self) -> Option<&Arc<OpenError>> {
        self.failure.get()
    }

    fn fail(&self, error: OpenError) -> Arc<OpenError> {
        let error = Arc::new(error);
        let _ = self.failure.set(Arc::clone(&error));
        error
    }

    /// Loads the next segment that nobody has taken up. False: there is none; others may still be at work. After an
    /// error the segments behind it can be loaded all the same.
    pub fn load_next(&self, to: &Target<'_>) -> Result<bool, Arc<OpenError>> {
        loop {
            let segment = self.next.fetch_add(1, Relaxed);
            let Some(left) = self.segments_left.get(segment) else { return Ok(false) };
            if left.load(Acquire) > 0 {
                let loaded = self.with_buffers(|own| self.load_segment(to, segment, own));
                return loaded.map(|()| true).map_err(|error| self.fail(error));
            }
        }
    }

    /// Loads everything, with nobody else at work; the first error ends it.
    pub fn load_all(self, to: &Target<'_>, threads: usize) -> Result<(), OpenError> {
        let load = || {
            while self.failure.get().is_none() && self.load_next(to).is_ok_and(|more| more) {}
        };
        let load = &load;
        std::thread::scope(|scope| {
            for _ in 1..threads {
                if std::thread::Builder::new().spawn_scoped(scope, load).is_err() {
                    break;
                }
            }
            load();
        });
        let is_complete = self.is_complete();
        match self.failure.into_inner().map(Arc::into_inner) {
            None => {
                assert!(is_complete, "memory is not made of what the tables say");
                Ok(())
            }
            Some(Some(error)) => Err(error),
            Some(None) => unreachable!("an error that somebody else holds, too"),
        }
    }

    fn load_segment(
        &self,
        to: &Target<'_>,
        segment: usize,
        buffers: &mut Buffers,
    ) -> Result<(), OpenError> {
        for table in &self.tables[segment] {
            self.load_pieces(to, table, &self.wanted(table, 0, u64::MAX), buffers)?;
        }
        Ok(())
    }

    /// Loads one block, whoever else is at work.
    pub fn load_block(&self, to: &Target<'_>, block: u64) -> Result<(), Arc<OpenError>> {
        let Some(left) = self.blocks_left.get(block as usize) else { return Ok(()) };
        let grains = self.block_bytes >> self.geometry.grain_shift;
        let (from, end) = (block * grains, (block + 1) * grains);
        let (share, inside) =
            (block as usize / self.blocks_per_share, block as usize % self.blocks_per_share);
        let segments = self.sources[share].of(inside);
        let load = |buffers: &mut Buffers| {
            for segment in segments {
                for table in &self.tables[segment as usize] {
                    self.load_pieces(to, table, &self.wanted(table, from, end), buffers)?;
                }
                if self.planted == Planted::LoadedTooEarly {
                    (to.loaded)(block);
                    break;
                }
            }
            Ok(())
        };
        self.with_buffers(load).map_err(|error| self.fail(error))?;
        let is_whole = left.load(Acquire) == 0 || self.planted == Planted::LoadedTooEarly;
        assert!(is_whole, "block {block} is not made of what the tables say");
        Ok(())
    }

    fn with_buffers(
        &self,
        f: impl FnOnce(&mut Buffers) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let kept = self.buffers.lock().pop();
        let mut own = match kept {
            Some(own) => own,
            None => {
                Buffers { stored: aligned(self.geometry.segment_bytes as usize)?, raw: Vec::new() }
            }
        };
        let outcome = f(&mut own);
        let mut buffers = self.buffers.lock();
        if buffers.len() < BUFFERS_KEPT {
            buffers.push(own);
        }
        outcome
    }

    /// What is wanted of a frame between two grains.
    fn wanted(&self, table: &Table, from: u64, end: u64) -> Vec<Piece> {
        let pieces = table.pieces(self.geometry.grain_shift, self.block_bytes, from, end);
        pieces.filter(|piece| self.is_wanted(table, piece)).collect()
    }

    /// Whether any grain of the piece is pending and has won.
    fn is_wanted(&self, table: &Table, piece: &Piece) -> bool {
        words(piece.run).any(|(word, mask)| {
            let bits = self.pending[word].load(Acquire) & mask;
            runs(word, bits).any(|run| {
                (0..run.len).any(|at| table.has_won(self.place_of(piece, run.grain + at)))
            })
        })
    }

    /// Number of a piece's grain in the frame's payload.
    fn place_of(&self, piece: &Piece, grain: u64) -> usize {
        (piece.at >> self.geometry.grain_shift) + (grain - piece.run.grain) as usize
    }

    /// Reads what the pieces need, in as few reads as makes sense, and places them. They are in the order of the
    /// frame.
    fn load_pieces(
        &self,
        to: &Target<'_>,
        table: &Table,
        mut pieces: &[Piece],
        buffers: &mut Buffers,
    ) -> Result<(), OpenError> {
        if table.frame.is_compressed() {
            return self.load_compressed(to, table, pieces, buffers);
        }
        let frame_at = self.layout.segment_at(table.frame.segment) + table.frame.at;
        let blocks = |piece: &Piece| {
            let len = (piece.run.len << self.geometry.grain_shift) as usize;
            (piece.at / CHECK_BYTES, (piece.at + len - 1) / CHECK_BYTES)
        };
        while let Some(first) = pieces.first() {
            let (first_block, mut last_block) = blocks(first);
            let near = |piece: &&Piece| {
                let (from, to) = blocks(piece);
                let is_near = from <= last_block + GAP_BLOCKS;
                last_block = if is_near { to } else { last_block };
                is_near
            };
            let (here, rest) = pieces.split_at(pieces.iter().take_while(near).count());
            let end =
                FRAME_HEADER_BYTES + ((last_block + 1) * CHECK_BYTES).min(table.frame.payload());
            let len = end.next_multiple_of(4096) - first_block * CHECK_BYTES;
            let bytes = &mut buffers.stored.as_mut()[..len];
            to.device.read_at(frame_at + (first_block * CHECK_BYTES) as u64, bytes)?;
            let bytes = &bytes[FRAME_HEADER_BYTES..];
            let mut verified_to = first_block;
            for piece in here {
                let (from, to_block) = blocks(piece);
                for block in from.max(verified_to)..=to_block {
                    let verified =
                        self.verify(table, block, &bytes[(block - first_block) * CHECK_BYTES..]);
                    // One that nobody needs any more may have been overwritten while it was read.
                    if let Err(sums) = verified
                        && self.is_wanted(table, piece)
                    {
                        return Err(self.damaged(table, piece, block, sums));
                    }
                }
                verified_to = to_block + 1;
                self.place(to, table, piece, &bytes[piece.at - first_block * CHECK_BYTES..]);
            }
            pieces = rest;
        }
        Ok(())
    }

    fn verify(&self, table: &Table, block: usize, bytes: &[u8]) -> Result<(), (u64, u64)> {
        let len = CHECK_BYTES.min(table.frame.payload() - block * CHECK_BYTES);
        let (expected, found) = (table.sums[block], checksum(&bytes[..len]));
        let is_right = expected == found || self.planted == Planted::DropChecksum;
        if is_right { Ok(()) } else { Err((expected, found)) }
    }

    /// That a payload block which the piece needs does not have its checksum: expected, found.
    fn damaged(&self, table: &Table, piece: &Piece, block: usize, sums: (u64, u64)) -> OpenError {
        let region_offset = piece.run.grain << self.geometry.grain_shift;
        let frame_at = self.layout.segment_at(table.frame.segment) + table.frame.at;
        ImageError::DamagedPage {
            page: region_offset / 4096,
            region_offset,
            segment: table.frame.segment,
            offset_bytes: frame_at + (FRAME_HEADER_BYTES + block * CHECK_BYTES) as u64,
            expected: sums.0,
            found: sums.1,
        }
        .into()
    }

    /// Copies those grains of a piece that are pending and have won.
    fn place(&self, to: &Target<'_>, table: &Table, piece: &Piece, bytes: &[u8]) {
        let shift = self.geometry.grain_shift;
        let block = (piece.run.grain << shift) / self.block_bytes;
        let homes = to.ledger.homes();
        let mut placed = 0;
        let _stripe = self.stripes[block as usize % STRIPES].lock();
        for (word, mask) in words(piece.run) {
            let bits = self.pending[word].load(Relaxed) & mask;
            let won = runs(word, bits).flat_map(|run| run.grain..run.grain + run.len);
            let won = won.filter(|grain| table.has_won(self.place_of(piece, *grain)));
            let won = won.fold(0u64, |won, grain| won | 1 << (grain % WORD_GRAINS));
            if let Some(huge_pages) = to.huge_pages.filter(|_| won != 0) {
                // A page fault for each 4 KiB took longer than reading them.
                huge_pages.for_block(to.map, to.ledger, block);
            }
            for run in runs(word, won) {
                let from = ((run.grain - piece.run.grain) << shift) as usize;
                let len = (run.len << shift) as usize;
                // SAFETY: nobody reads or writes a pending grain: its block is not loaded, and its bits change under
                // the stripe lock only.
                unsafe { to.map.bytes_mut(run.grain << shift, len) }
                    .copy_from_slice(&bytes[from..from + len]);
                homes.set(run, table.frame.segment + 1);
                placed += run.len;
            }
            self.pending[word].fetch_and(!won, Release);
        }
        if placed > 0 {
            self.segments_left[table.frame.segment as usize].fetch_sub(placed, AcqRel);
            if self.blocks_left[block as usize].fetch_sub(placed as u32, AcqRel) == placed as u32 {
                (to.loaded)(block);
            }
            // Last: at zero every block has been told of.
            self.bytes_left.fetch_sub(placed << shift, AcqRel);
        }
    }
}

/// The segments that have parts of each block of a share: lists, each in one vector.
struct Sources {
    /// By block: the last entry of its list plus one, or 0.
    last: Vec<u32>,
    /// A segment, and the entry before it plus one.
    entries: Vec<(u32, u32)>,
}

impl Sources {
    /// A segment may be entered twice, if others come in between.
    fn enter(&mut self, block: usize, segment: u32) {
        let before = self.last[block];
        if before == 0 || self.entries[before as usize - 1].0 != segment {
            self.entries.push((segment, before));
            self.last[block] = self.entries.len() as u32;
        }
    }

    fn of(&self, block: usize) -> Vec<u32> {
        let mut at = self.last[block];
        let mut segments = Vec::new();
        while at != 0 {
            let (segment, before) = self.entries[at as usize - 1];
            segments.push(segment);
            at = before;
        }
        segments.sort_unstable();
        segments.dedup();
        segments
    }
}

impl Table {
    #[inline]
    fn has_won(&self, place: usize) -> bool {
        self.won[place / 64].load(Relaxed) & 1 << (place % 64) != 0
    }

    /// The extents' parts between two grains, cut at the ends of blocks, in the order of the frame.
    fn pieces(
        &self,
        shift: u32,
        block_bytes: u64,
        from: u64,
        end: u64,
    ) -> impl Iterator<Item = Piece> + '_ {
        let block_grains = block_bytes >> shift;
        let is_near = self.reach.0 < end && self.reach.1 > from;
        let extents = if is_near { &self.extents[..] } else { &[] };
        let mut at = 0;
        let placed = extents.iter().map(move |packed| {
            let extent = Extent::unpack(*packed);
            let begins_at = at;
            at += (extent.len << shift) as usize;
            (extent, begins_at)
        });
        placed.flat_map(move |(extent, at)| {
            let (mut grain, end) = (extent.grain.max(from), (extent.grain + extent.len).min(end));
            std::iter::from_fn(move || {
                if grain >= end {
                    return None;
                }
                let stop = end.min((grain / block_grains + 1) * block_grains);
                let run = Extent { grain, len: stop - grain };
                let at = at + ((grain - extent.grain) << shift) as usize;
                grain = stop;
                Some(Piece { run, at })
            })
        })
    }
}

/// The bitmap words of a run, and its bits in each.
fn words(run: Extent) -> impl Iterator<Item = (usize, u64)> {
    let (mut grain, end) = (run.grain, run.grain + run.len);
    std::iter::from_fn(move || {
        if grain >= end {
            return None;
        }
        let stop = end.min((grain / WORD_GRAINS + 1) * WORD_GRAINS);
        let mask = crate::announce::mask(grain % WORD_GRAINS, stop - grain);
        let word = (grain / WORD_GRAINS) as usize;
        grain = stop;
        Some((word, mask))
    })
}

/// The newest copies of the grains of some bitmap words: the first of `tables` that holds a grain has it.
fn find_newest(
    tables: &[Table],
    pending: &[AtomicU64],
    share: std::ops::Range<usize>,
    block_words: usize,
    segments_left: &[AtomicU64],
) -> Sources {
    let (from, end) = (share.start as u64 * WORD_GRAINS, share.end as u64 * WORD_GRAINS);
    let mut sources =
        Sources { last: vec![0; share.len().div_ceil(block_words)], entries: Vec::new() };
    for table in tables {
        if table.reach.0 >= end || table.reach.1 <= from {
            continue;
        }
        let segment = table.frame.segment;
        let mut found = 0;
        // Numbers of grains in the payload, from its end: within a frame the later copy is the newer one.
        let mut place: u64 = table.extents.iter().map(|packed| Extent::unpack(*packed).len).sum();
        for packed in table.extents.iter().rev() {
            let extent = Extent::unpack(*packed);
            place -= extent.len;
            let (grain, stop) = (extent.grain.max(from), (extent.grain + extent.len).min(end));
            for (word, mask) in words(Extent { grain, len: stop.saturating_sub(grain) }) {
                let known = pending[word].load(Relaxed);
                let new = mask & !known;
                if new == 0 {
                    continue;
                }
                // No other thread has this word.
                pending[word].store(known | new, Relaxed);
                sources.enter((word - share.start) / block_words, segment);
                for run in runs(word, new) {
                    let at = place + run.grain - extent.grain;
                    for (won, bits) in words(Extent { grain: at, len: run.len }) {
                        table.won[won].fetch_or(bits, Relaxed);
                    }
                }
                found += u64::from(new.count_ones());
            }
        }
        segments_left[segment as usize].fetch_add(found, Relaxed);
    }
    sources
}
