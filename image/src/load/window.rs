//! Loading a frame, window by window. A piece of its payload is read, the units that are needed are
//! verified, and all grains that have won are placed, part by part of the region.

use std::ops::Range;
use std::sync::atomic::Ordering::*;

use super::buffers::{Buffers, Flaw, FlawKind};
use super::compressed::decode;
use super::loading::{Loading, Scope, Target};
use super::table::{Cursor, Piece, Table};
use crate::checks::Wrong;
use crate::error::{ImageError, OpenError};
use crate::format::{CHECK_BYTES, CHUNK_BYTES, FRAME_HEADER_BYTES};
use perdura_dirty::RankedGuard;
use perdura_dirty::extent::{Extent, runs, words};
use perdura_dirty::planted::Planted;
use perdura_dirty::sys::prefetch;

/// Most unneeded payload blocks that are read between needed ones rather than reading twice.
const GAP_BLOCKS: usize = 16;
/// A frame is read whole if at least one grain in this many has won.
const SPARSE: u64 = 8;
/// Runs by which memory is prefetched.
const RUNS_AHEAD: usize = 12;
/// Cache lines of a run that are prefetched; the processor continues by itself.
const LINES_AHEAD: u64 = 20;

/// A window that was read.
#[derive(Clone, Copy)]
struct Window<'b> {
    /// Grains of the frame before the window.
    first_place: u64,
    /// Uncompressed bytes of the window.
    bytes: &'b [u8],
    flaws: &'b [Flaw],
    unit_bytes: usize,
}

impl Loading {
    /// Loads the grains of a frame that have won, of all blocks or of one.
    pub(super) fn load_from(
        &self,
        to: &Target<'_>,
        table: &Table,
        scope: Scope,
        buffers: &mut Buffers,
    ) -> Result<(), OpenError> {
        let parts = self.parts_of(scope);
        let unit_bytes = table.unit_bytes();
        let units = table.frame.raw().div_ceil(unit_bytes);
        let grains_of = |unit: usize| (unit * unit_bytes) as u64 >> self.geometry.grain_shift;
        buffers.wanted.clear();
        buffers.wanted.resize(units, false);
        buffers.own.clear();
        let mut want = |piece| {
            let bytes = self.bytes_of(&piece);
            let units = bytes.start / unit_bytes..bytes.end.div_ceil(unit_bytes);
            buffers.wanted[units].fill(true);
        };
        match scope {
            // Nearly every unit has such a grain, and finding the others would take longer than
            // verifying them.
            Scope::All if table.won_grains() >= grains_of(units).div_ceil(SPARSE) => {
                buffers.wanted.fill(true);
            }
            Scope::All => parts.clone().for_each(|part| {
                let share = table.share(part);
                share.for_each_winner(&mut Cursor::default(), 0..u64::MAX, &mut want);
            }),
            Scope::Block(block) => table.share(parts.start).for_each_winner_of(block, |piece| {
                if self.is_pending(&piece) {
                    want(piece);
                    buffers.own.push(piece);
                }
            }),
        }
        if matches!(scope, Scope::Block(_)) && buffers.own.is_empty() {
            return Ok(());
        }
        buffers.cursors.clear();
        buffers.cursors.resize(parts.len(), Cursor::default());
        let mut at = 0;
        let room_bytes = buffers.stored.as_slice().len();
        while let Some(range) = next_window(table, &buffers.wanted, at, room_bytes) {
            at = range.end;
            let mut read = || self.read_window(to, table, range.clone(), buffers);
            match scope {
                Scope::All => self.traffic.read(read)?,
                Scope::Block(_) => read()?,
            }
            let places = grains_of(range.start)..grains_of(range.end);
            let mut placed = 0;
            let outcome = self.place_window(to, table, scope, places, buffers, &mut placed);
            self.account(table, placed);
            outcome?;
        }
        Ok(())
    }

    /// Places the grains of a window that have won. Counts them in `placed`, also those before an
    /// error.
    fn place_window(
        &self,
        to: &Target<'_>,
        table: &Table,
        scope: Scope,
        places: Range<u64>,
        buffers: &mut Buffers,
        placed: &mut u64,
    ) -> Result<(), OpenError> {
        let Buffers { stored, raw, own, cursors, order, found, flaws, first_part, .. } = buffers;
        let bytes = match table.frame.is_compressed() {
            true => &raw[..],
            false => &stored.as_slice()[FRAME_HEADER_BYTES..],
        };
        let first_place = places.start;
        let window = Window { first_place, bytes, flaws, unit_bytes: table.unit_bytes() };
        let parts = self.parts_of(scope);
        order.clear();
        order.extend((0..parts.len()).map(|turn| (turn + *first_part) % parts.len()));
        let mut next = 0;
        while let Some(&turn) = order.get(next) {
            let (part, mut cursor) = (parts.start + turn, cursors[turn]);
            found.clear();
            match scope {
                Scope::All => {
                    let share = table.share(part);
                    share.for_each_winner(&mut cursor, places.clone(), |piece| found.push(piece));
                }
                Scope::Block(_) => {
                    found.extend(own.iter().filter_map(|piece| piece.within(&places)));
                }
            }
            if !found.is_empty() {
                self.give_memory(to, found);
                let lock = &self.locks[part];
                let held = match next < parts.len() {
                    true => lock.try_lock(),
                    false => Some(lock.lock()),
                };
                match held {
                    Some(held) => self.place_all(to, table, window, found, &held, placed)?,
                    // Another thread is at work on the part, which comes again later.
                    None => {
                        order.push(turn);
                        cursor = cursors[turn];
                    }
                }
            }
            cursors[turn] = cursor;
            next += 1;
        }
        Ok(())
    }

    /// Gives memory to the blocks of these pieces. This takes longer than all the rest, so it comes
    /// before a lock is taken for which others may wait.
    fn give_memory(&self, to: &Target<'_>, pieces: &[Piece]) {
        let Some(huge_pages) = to.huge_pages else { return };
        for piece in pieces {
            let block = piece.run.grain >> self.parts.block_shift;
            let given = &self.given[block as usize];
            if !given.load(Relaxed) {
                given.store(true, Relaxed);
                // Page faults for each 4 KiB took longer than reading the bytes.
                huge_pages.for_block(to.map, to.ledger, block);
            }
        }
    }

    fn parts_of(&self, scope: Scope) -> Range<usize> {
        match scope {
            Scope::All => 0..self.parts.count,
            Scope::Block(block) => {
                let part = self.parts.of_block(block);
                part..part + 1
            }
        }
    }

    /// The bytes of a piece in its frame's uncompressed payload.
    fn bytes_of(&self, piece: &Piece) -> Range<usize> {
        let shift = self.geometry.grain_shift;
        (piece.place << shift) as usize..((piece.place + piece.run.len) << shift) as usize
    }

    /// Whether any grain of the piece is pending.
    fn is_pending(&self, piece: &Piece) -> bool {
        words(piece.run).any(|(word, mask)| self.pending[word].load(Acquire) & mask != 0)
    }

    /// Reads some units of a frame, and verifies or decodes those that are needed.
    fn read_window(
        &self,
        to: &Target<'_>,
        table: &Table,
        units: Range<usize>,
        buffers: &mut Buffers,
    ) -> Result<(), OpenError> {
        let stored = table.stored(units.clone());
        let (first_block, end_block) =
            (stored.start / CHECK_BYTES, stored.end.div_ceil(CHECK_BYTES));
        let end = FRAME_HEADER_BYTES + (end_block * CHECK_BYTES).min(table.frame.payload());
        let len = end.next_multiple_of(4096) - first_block * CHECK_BYTES;
        let frame_at = self.layout.segment_at(table.frame.segment) + table.frame.at;
        let Buffers { stored, raw, wanted, flaws, .. } = buffers;
        let bytes = &mut stored.as_mut()[..len];
        to.device.read_at(frame_at + (first_block * CHECK_BYTES) as u64, bytes)?;
        let bytes = &mut bytes[FRAME_HEADER_BYTES..];
        if table.frame.is_compressed() {
            raw.resize(units.len() * CHUNK_BYTES, 0);
        }
        flaws.clear();
        let checker = table.checks.checker(&table.frame, self.key.as_ref());
        // The block before this one was checked last. Two chunks may share a block, which is
        // decrypted only once.
        let (mut next_block, mut last) = (first_block, None);
        for unit in units.clone().filter(|unit| wanted[*unit]) {
            let stored = table.stored(unit..unit + 1);
            let blocks = stored.start / CHECK_BYTES..stored.end.div_ceil(CHECK_BYTES);
            let mut flaw = last.filter(|_| blocks.start < next_block);
            for block in blocks.start.max(next_block)..blocks.end {
                let place = &mut bytes[(block - first_block) * CHECK_BYTES..];
                let wrong = checker.check(block, place).err();
                last = wrong
                    .filter(|_| !self.planted.is(Planted::DropChecksum))
                    .map(|wrong| FlawKind::Block { block, wrong });
                flaw = flaw.or(last);
            }
            next_block = blocks.end;
            if flaw.is_none() && table.frame.is_compressed() {
                let from = stored.start - first_block * CHECK_BYTES;
                let raw = &mut raw[(unit - units.start) * CHUNK_BYTES..];
                flaw = decode(table, unit, &bytes[from..from + stored.len()], raw).err();
            }
            flaws.extend(flaw.map(|what| Flaw { unit, what }));
        }
        Ok(())
    }

    /// Copies the pending grains of a part's pieces. Counts them in `placed`, also those before an
    /// error.
    fn place_all(
        &self,
        to: &Target<'_>,
        table: &Table,
        window: Window<'_>,
        pieces: &[Piece],
        held: &RankedGuard<'_, ()>,
        placed: &mut u64,
    ) -> Result<(), OpenError> {
        let shift = self.geometry.grain_shift;
        for (at, piece) in pieces.iter().enumerate() {
            if let Some(later) = pieces.get(at + RUNS_AHEAD) {
                self.prefetch_run(to, later.run);
            }
            let bytes = self.bytes_of(piece);
            let units = bytes.start / window.unit_bytes..bytes.end.div_ceil(window.unit_bytes);
            let flaw = window.flaws.iter().find(|flaw| units.contains(&flaw.unit));
            match flaw {
                // A piece that is not needed any more may have been overwritten while it was read.
                Some(_) if !self.is_pending(piece) => {}
                Some(flaw) => return Err(self.error(table, piece, flaw)),
                None => {
                    let from = ((piece.place - window.first_place) << shift) as usize;
                    let bytes = &window.bytes[from..from + bytes.len()];
                    *placed += self.place(to, table.frame.segment, piece.run, bytes, held);
                }
            }
        }
        Ok(())
    }

    /// Prefetches the memory that placing a run will touch.
    fn prefetch_run(&self, to: &Target<'_>, run: Extent) {
        let shift = self.geometry.grain_shift;
        let from = to.map.base().wrapping_add((run.grain << shift) as usize);
        let len = run.len << shift;
        for line in (0..len.min(LINES_AHEAD * 64)).step_by(64) {
            prefetch(from.wrapping_add(line as usize));
        }
        to.ledger.prefetch_locations(run.grain, run.len);
    }

    /// Copies the pending grains of a run; the lock of its part is held. Returns how many.
    fn place(
        &self,
        to: &Target<'_>,
        segment: u32,
        run: Extent,
        bytes: &[u8],
        _held: &RankedGuard<'_, ()>,
    ) -> u64 {
        let shift = self.geometry.grain_shift;
        let block = run.grain >> self.parts.block_shift;
        let pending = |(word, mask): (usize, u64)| self.pending[word].load(Relaxed) & mask;
        let is_all = words(run).all(|(word, mask)| pending((word, mask)) == mask);
        if !is_all && words(run).all(|part| pending(part) == 0) {
            return 0;
        }
        let copy = |part: Extent| {
            let from = ((part.grain - run.grain) << shift) as usize;
            let len = (part.len << shift) as usize;
            // SAFETY: nobody reads or writes a pending grain: its block is not loaded, and its bits
            // change under the lock of its part only, which is held.
            unsafe { to.map.bytes_mut(part.grain << shift, len) }
                .copy_from_slice(&bytes[from..from + len]);
            to.ledger.locations().set(part, segment + 1);
            part.len
        };
        let placed = match is_all {
            true => copy(run),
            false => words(run)
                .flat_map(|(word, mask)| runs(word, pending((word, mask))))
                .map(copy)
                .sum(),
        };
        for (word, mask) in words(run) {
            let before = self.pending[word].load(Relaxed);
            self.pending[word].store(before & !mask, Release);
        }
        let left = &self.blocks_left[block as usize];
        let before = left.load(Relaxed);
        left.store(before - placed as u32, Release);
        if u64::from(before) == placed {
            (to.loaded)(block);
        }
        placed
    }

    /// Counts `placed` grains of a frame as loaded.
    fn account(&self, table: &Table, placed: u64) {
        self.segments_left[table.frame.segment as usize].fetch_sub(placed, AcqRel);
        // Counted last: at zero the callback was called for every block.
        self.bytes_left.fetch_sub(placed << self.geometry.grain_shift, AcqRel);
    }

    fn error(&self, table: &Table, piece: &Piece, flaw: &Flaw) -> OpenError {
        // The piece begins before the damaged unit, or within it.
        let unit_at = flaw.unit * table.unit_bytes();
        let before = unit_at.saturating_sub(self.bytes_of(piece).start) as u64;
        let region_offset = (piece.run.grain << self.geometry.grain_shift) + before;
        let (page, segment) = (region_offset / 4096, table.frame.segment);
        let frame_at = self.layout.segment_at(segment) + table.frame.at;
        let payload_at = frame_at + FRAME_HEADER_BYTES as u64;
        match flaw.what {
            FlawKind::Block { block, wrong } => {
                let offset_bytes = payload_at + (block * CHECK_BYTES) as u64;
                match wrong {
                    Wrong::Sum { expected, found } => ImageError::DamagedPage {
                        page,
                        region_offset,
                        segment,
                        offset_bytes,
                        expected,
                        found,
                    },
                    Wrong::Tag => {
                        ImageError::ForgedPage { page, region_offset, segment, offset_bytes }
                    }
                }
            }
            FlawKind::Chunk(found) => {
                let stored = table.stored(flaw.unit..flaw.unit + 1);
                ImageError::DamagedChunk {
                    page,
                    region_offset,
                    segment,
                    offset_bytes: payload_at + stored.start as u64,
                    stored_bytes: stored.len() as u64,
                    expected_bytes: crate::codec::chunk_bytes(table.frame.raw(), flaw.unit) as u64,
                    found,
                }
            }
        }
        .into()
    }
}

/// The next units to be read together: needed units from `from` on with few others between them, as
/// many as fit `room_bytes`.
fn next_window(
    table: &Table,
    wanted: &[bool],
    from: usize,
    room_bytes: usize,
) -> Option<Range<usize>> {
    let next = |from: usize| Some(from + wanted[from..].iter().position(|wanted| *wanted)?);
    let start = next(from)?;
    let mut end = start + 1;
    while let Some(unit) = next(end) {
        let gap_bytes =
            table.stored(end..unit + 1).start.abs_diff(table.stored(unit..unit + 1).start);
        // What is read begins and ends with a whole block, and the frame's header may shift it by
        // one.
        let len = table.stored(start..unit + 1).len() + 3 * CHECK_BYTES;
        if gap_bytes > GAP_BLOCKS * CHECK_BYTES || len > room_bytes {
            break;
        }
        end = unit + 1;
    }
    Some(start..end)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use perdura_media::SimDevice;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus as Random;

    use super::*;
    use crate::arena::Arena;
    use crate::checks::Checks;
    use crate::format::FRAME_LZ4;
    use crate::frame::Frame;
    use crate::load::table::{Parts, Tally};
    use perdura_dirty::Ledger;
    use perdura_dirty::geometry::{BLOCK_BYTES, GRAIN_SHIFT_BARRIER, GRAIN_SHIFT_TRAP, Geometry};
    use perdura_dirty::sys::SharedMemory;

    /// The table of a frame of which only the sizes matter.
    fn table(units: usize, chunk_ends: Option<Box<[u32]>>) -> Table {
        let mut frame = Frame::in_segment(0);
        let payload = match &chunk_ends {
            Some(ends) => *ends.last().unwrap() as usize,
            None => units * CHECK_BYTES - 100,
        };
        frame.header.payload_bytes = (payload as u32).into();
        if chunk_ends.is_some() {
            frame.header.flags = FRAME_LZ4.into();
            frame.header.raw_bytes = ((units * CHUNK_BYTES) as u32).into();
        }
        let geometry = Geometry::new(4 * BLOCK_BYTES, GRAIN_SHIFT_TRAP, None, 4).unwrap();
        let tally = Tally::new(&Parts::of(&geometry, geometry.reserved_bytes));
        let (none, ends) = (std::iter::empty(), chunk_ends.unwrap_or_default());
        Table::new(frame, &tally, none, Checks::none(), ends, &mut Arena::default()).unwrap()
    }

    /// Parts of a run may be in memory already, because its frame is read window by window, and
    /// another thread reads the whole block.
    #[test]
    fn of_a_run_the_pending_grains_are_placed_and_no_others() {
        let geometry = Geometry::new(4 * BLOCK_BYTES, GRAIN_SHIFT_BARRIER, None, 4).unwrap();
        let region_bytes = geometry.reserved_bytes;
        let parts = Parts::of(&geometry, region_bytes);
        // The end of a word, two whole ones, and the beginning of another.
        let run = Extent { grain: 70, len: 58 + 128 + 14 };
        let cases: [&[(u64, u64)]; 9] = [
            &[],
            &[(70, 200)],
            &[(70, 1)],
            &[(269, 1)],
            &[(71, 199)],
            &[(128, 64)],
            &[(70, 58), (192, 64)],
            &[(70, 58), (128, 64), (192, 64), (256, 14)],
            // A part of each word.
            &[(80, 2), (120, 20), (200, 30), (260, 2)],
        ];
        for before in cases {
            let ledger = Ledger::create(geometry, 7, region_bytes).unwrap();
            let map = SharedMemory::create("test", region_bytes).unwrap().map().unwrap();
            let mut tally = Tally::new(&parts);
            tally.add(run);
            let (frame, none) = (Frame::in_segment(0), Checks::none());
            let mut arena = Arena::default();
            let extents = [run].into_iter();
            let table = Table::new(frame, &tally, extents, none, Box::default(), &mut arena);
            let tables = vec![table.unwrap()];
            let loading = Loading::resolve(&ledger, tables, parts, region_bytes, 1, Planted::None);
            let (device, loaded) = (SimDevice::new(0, 1), Mutex::new(Vec::new()));
            let note = |block| loaded.lock().unwrap().push(block);
            let (ledger, map) = (&ledger, &map);
            let to = Target { device: &device, ledger, map, loaded: &note, huge_pages: None };
            let held = loading.locks[0].lock();
            let place = |run: Extent, byte: u8| {
                let bytes = vec![byte; (run.len * 64) as usize];
                loading.place(&to, u32::from(byte), run, &bytes, &held)
            };
            let mut expected = vec![2; run.len as usize];
            for (grain, len) in before {
                assert_eq!(place(Extent { grain: *grain, len: *len }, 1), *len);
                expected[(grain - run.grain) as usize..][..*len as usize].fill(1);
            }
            let rest = expected.iter().filter(|byte| **byte == 2).count() as u64;
            assert_eq!(place(run, 2), rest, "{before:?}");
            assert_eq!(place(run, 3), 0, "{before:?}");
            let placed = (70..270).map(|grain| map.octets(grain * 64 + 63, 1)[0].load(Relaxed));
            assert_eq!(Vec::from_iter(placed), expected, "{before:?}");
            let segments = (70..270).map(|grain| ledger.locations().of(grain) as u8 - 1);
            assert_eq!(Vec::from_iter(segments), expected, "{before:?}");
            for beside in [69, 270] {
                assert_eq!(map.octets(beside * 64, 64)[63].load(Relaxed), 0);
                assert_eq!(ledger.locations().of(beside), 0);
            }
            assert_eq!(*loaded.lock().unwrap(), [0], "{before:?}");
            assert_eq!(loading.blocks().count(), 0);
        }
    }

    #[test]
    fn windows_have_every_unit_that_is_wanted_once_and_are_as_long_as_gaps_and_room_admit() {
        for seed in 0..300 {
            let mut random = Random::seed_from_u64(seed);
            let units = random.random_range(1..300);
            let ends = (seed % 2 == 0).then(|| {
                let mut end = 0;
                let next = |_| {
                    end += random.random_range(1..=CHUNK_BYTES as u32);
                    end
                };
                (0..units).map(next).collect()
            });
            let table = table(units, ends);
            let share = [0.02, 0.1, 0.5, 1.0][random.random_range(0..4)];
            let wanted: Vec<usize> = (0..units).filter(|_| random.random_bool(share)).collect();
            let is_wanted: Vec<_> = (0..units).map(|unit| wanted.contains(&unit)).collect();
            let room = [128 << 10, 1 << 20][random.random_range(0..2)];
            // Bytes from the beginning of one unit to the end of another, as stored.
            let stored = |from: usize, to: usize| table.stored(from..to + 1).len();
            let joins = |first: usize, last: usize, next: usize| {
                let gap = if next > last + 1 { stored(last + 1, next - 1) } else { 0 };
                gap <= 16 * CHECK_BYTES && stored(first, next) + 3 * CHECK_BYTES <= room
            };
            let mut expected: Vec<Range<usize>> = Vec::new();
            for unit in wanted {
                match expected.last_mut() {
                    Some(window) if joins(window.start, window.end - 1, unit) => {
                        window.end = unit + 1;
                    }
                    _ => expected.push(unit..unit + 1),
                }
            }
            let mut at = 0;
            let found: Vec<_> = std::iter::from_fn(|| {
                let window = next_window(&table, &is_wanted, at, room)?;
                at = window.end;
                Some(window)
            })
            .take(units + 1)
            .collect();
            assert_eq!(found, expected, "seed {seed}");
        }
    }
}
