//! Recovery: the ledger is filled from an image, by the newest commit's segments, newest frame
//! first.
//!
//! The newest frame that holds a grain has its newest copy; older copies are never read. Payload is
//! left to `load`, except in the tail (the frames after the commit), which must be known to be
//! whole. Everything that the commit names must be there and whole. The tail counts only as far as
//! a contiguous run of whole frames that ends in a group commit.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::*;

use perdura_media::Device;
use rustix::io::Errno;

use crate::arena::Arena;
use crate::checks::{Checks, check_seal};
use crate::cipher::Key;
use crate::error::{ImageError, OpenError};
use crate::format::{
    CHECK_BYTES, FRAME_COMMIT, FRAME_HEADER_BYTES, Layout, SEGMENT_WRITTEN, checksum,
};
use crate::frame::{Frame, FrameTail, parse_header, tail_bytes, tail_of};
use crate::load::{Loading, Parts, Table, Tally};
use crate::slots::{Slot, aligned, read_slots};
use perdura_dirty::extent::Extent;
use perdura_dirty::geometry::Geometry;
use perdura_dirty::planted::Planted;
use perdura_dirty::sys::AlignedBytes;
use perdura_dirty::{Ledger, SegmentState, SetupError};

/// Segments whose tables are worth one thread more.
const SEGMENTS_PER_READER: usize = 16;
/// Most threads that read tables or enter them in the ledger.
const READERS_MAX: usize = 8;

/// Memory into which the tables of one segment after the other are read. It is kept in between:
/// memory that is mapped for each segment is cleared for each, and taking it away again stops the
/// other processors.
#[derive(Default)]
pub struct TableSpace(Option<(AlignedBytes, AlignedBytes)>);

/// Reads the frames of one image.
struct Reader<'d> {
    device: &'d dyn Device,
    geometry: Geometry,
    layout: Layout,
    image_id: u64,
    /// The key that frames are encrypted with.
    key: Option<Key>,
    page: AlignedBytes,
    /// Offset on the device from which the page was read.
    page_at: Option<u64>,
    /// Whether the next frame's header lies right behind the table that is read, and is needed.
    reads_on: bool,
    bytes: AlignedBytes,
    /// Memory for tables.
    arena: Arena,
}

/// The table of a frame, checked.
struct RawTable<'b> {
    /// Packed extents.
    extents: &'b [[u8; 8]],
    tail: FrameTail<'b>,
    chunk_ends: Box<[u32]>,
    bytes_read: u64,
}

impl<'b> RawTable<'b> {
    fn extents(&self) -> impl Iterator<Item = Extent> + Clone + use<'b> {
        self.extents.iter().map(|packed| Extent::unpack(u64::from_le_bytes(*packed)))
    }
}

/// The frames after the last commit that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// The frames up to the last group commit, if all are there and whole.
    Committed,
    /// Every whole frame (for inspection only).
    EveryWholeFrame,
}

/// The result of recovery, besides the ledger.
pub struct Recovered {
    /// The commit that was loaded.
    pub slot: Slot,
    /// Highest sequence number found anywhere; new frames get higher ones.
    pub seq_max: u64,
    /// Number of frames that count after the commit.
    pub tail_frames: u64,
    /// Segments up to the last one with a frame that counts: the log may have grown since the
    /// commit.
    pub segments_used: u32,
}

/// Fills an empty `ledger` from an image without reading payload. The returned [`Loading`] fills
/// the memory.
pub fn recover(
    device: &dyn Device,
    geometry: &Geometry,
    image_id: u64,
    ledger: &Ledger,
    tail_rule: Tail,
    planted: Planted,
) -> Result<(Recovered, Loading), OpenError> {
    let key = ledger.key_words().map(Key::from_words);
    let slot = read_slots(device, geometry, image_id, key.as_ref())?;
    let layout = Layout::of(geometry);
    let segments = slot.header.segments.get();
    let (expected_bytes, found_bytes) = (layout.segment_at(segments), device.capacity_bytes());
    if found_bytes < expected_bytes {
        return Err(ImageError::Truncated { expected_bytes, found_bytes }.into());
    }
    let open = || Reader::new(device, geometry, image_id, key.clone());
    for (number, named) in (0..segments).zip(&slot.segments) {
        if named.flags.get() & SEGMENT_WRITTEN != 0 {
            ledger.segment(number).set_written();
        }
    }
    let region_bytes = match tail_rule {
        Tail::Committed => slot.header.region_bytes.get(),
        // Frames behind the last commit may belong to a region that has grown since.
        Tail::EveryWholeFrame => geometry.reserved_bytes,
    };
    let rules = Rules { parts: Parts::of(geometry, region_bytes), region_bytes };
    let mut tables = named_tables(&slot, &rules, &open)?;
    let last_seq = slot.header.last_seq.get();
    let mut seq_max = last_seq;
    let mut tail_frames = 0;
    if slot.header.is_final.get() == 0 {
        let mut reader = open()?;
        let tail = reader.tail_frames(&slot)?;
        seq_max = tail.iter().map(Frame::seq).max().unwrap_or(0).max(seq_max);
        let committed = match tail_rule {
            Tail::Committed => reader.committed_tail(tail, last_seq)?,
            Tail::EveryWholeFrame => reader.whole_tail(tail)?,
        };
        tail_frames = committed.len() as u64;
        for frame in committed {
            tables.push(reader.sorted_table(&frame, &rules)?);
        }
    }
    tables.sort_unstable_by_key(|table| std::cmp::Reverse(table.frame.seq()));
    let frames: Vec<_> = tables.iter().map(|table| table.frame).collect();
    let threads = threads_for(frames.len());
    let loading = Loading::resolve(ledger, tables, rules.parts, region_bytes, threads, planted);
    for frame in &frames {
        // A segment without live bytes is used, too, because recovery reads all that a commit
        // names. The next commit frees it.
        let entry = ledger.segment(frame.segment);
        entry.set_state(SegmentState::Used);
        entry.used_bytes().fetch_max(frame.at + frame.total(), AcqRel);
        entry.first_seq().store(frame.first_seq, Relaxed);
    }
    let segments_used = frames.iter().map(|frame| frame.segment + 1).max().unwrap_or(0);
    Ok((Recovered { slot, seq_max, tail_frames, segments_used }, loading))
}

/// Reads the tables of all frames that a commit names. These are small reads at many places, so
/// several threads read.
fn named_tables<'d>(
    slot: &Slot,
    rules: &Rules,
    open: &(dyn Fn() -> Result<Reader<'d>, OpenError> + Sync),
) -> Result<Vec<Table>, OpenError> {
    let next = AtomicUsize::new(0);
    let read_one = |reader: &mut Reader<'d>, number: usize, tables: &mut Vec<Table>| {
        let named = &slot.segments[number];
        let (first_seq, used_bytes) = (named.first_seq.get(), named.used_bytes.get());
        reader.named_frames(number as u32, first_seq, used_bytes, |reader, frame| {
            tables.push(reader.sorted_table(&frame, rules)?);
            Ok(())
        })
    };
    // Of several errors the one of the first segment is returned, so that it is always the same:
    // all segments before it were read.
    let read = || {
        let mut reader = open().map_err(|error| (0, error))?;
        let mut tables = Vec::new();
        loop {
            let number = next.fetch_add(1, Relaxed);
            if number >= slot.segments.len() {
                return Ok(tables);
            }
            read_one(&mut reader, number, &mut tables).map_err(|error| (number, error))?;
        }
    };
    let read: &(dyn Fn() -> Result<Vec<Table>, (usize, OpenError)> + Sync) = &read;
    let needed = slot.segments.iter().filter(|named| named.used_bytes.get() > 0).count();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let spawn = || std::thread::Builder::new().spawn_scoped(scope, read).ok();
        let helpers: Vec<_> = (1..(needed / SEGMENTS_PER_READER).clamp(1, READERS_MAX))
            .filter_map(|_| spawn())
            .collect();
        let own = read();
        let theirs = helpers.into_iter().map(|helper| match helper.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        theirs.chain([own]).collect()
    });
    let (mut tables, mut first_error) = (Vec::new(), None::<(usize, OpenError)>);
    for outcome in outcomes {
        match outcome {
            Ok(mut found) => tables.append(&mut found),
            Err(error) if first_error.as_ref().is_some_and(|first| first.0 <= error.0) => {}
            Err(error) => first_error = Some(error),
        }
    }
    first_error.map_or(Ok(tables), |(_, error)| Err(error))
}

/// Number of threads that are worth their cost for this many frames.
pub(crate) fn threads_for(frames: usize) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (frames / SEGMENTS_PER_READER).clamp(1, processors.min(READERS_MAX))
}

/// The rules that extents must obey, and the parts by which they are sorted.
struct Rules {
    parts: Parts,
    region_bytes: u64,
}

impl<'d> Reader<'d> {
    fn new(
        device: &'d dyn Device,
        geometry: &Geometry,
        image_id: u64,
        key: Option<Key>,
    ) -> Result<Self, OpenError> {
        let len = geometry.segment_bytes as usize;
        let bytes = AlignedBytes::in_huge_pages(len).map_err(refused(len))?;
        Ok(Self::with(device, geometry, image_id, key, (aligned(4096)?, bytes)))
    }

    /// A reader that reads into a page and into memory for a whole segment.
    fn with(
        device: &'d dyn Device,
        geometry: &Geometry,
        image_id: u64,
        key: Option<Key>,
        (page, bytes): (AlignedBytes, AlignedBytes),
    ) -> Self {
        Self {
            device,
            geometry: *geometry,
            layout: Layout::of(geometry),
            image_id,
            key,
            page,
            page_at: None,
            reads_on: false,
            bytes,
            arena: Arena::default(),
        }
    }
}

impl Reader<'_> {
    /// The frame at offset `at` of a segment, if there is a valid header.
    fn header(&mut self, segment: u32, at: u64) -> Result<Option<Frame>, OpenError> {
        if at + 4096 > self.geometry.segment_bytes {
            return Ok(None);
        }
        let offset = self.layout.segment_at(segment) + at;
        if self.page_at != Some(offset) {
            self.page_at = None;
            self.device.read_at(offset, self.page.as_mut())?;
            self.page_at = Some(offset);
        }
        let bytes = &self.page.as_slice()[..FRAME_HEADER_BYTES];
        Ok(parse_header(bytes, self.image_id, self.geometry.segment_bytes, at)
            .map(|header| Frame { segment, at, header, first_seq: header.seq.get() }))
    }

    /// Calls `f` with the frames that a commit names in a segment, all of which must be there.
    fn named_frames(
        &mut self,
        segment: u32,
        first_seq: u64,
        used_bytes: u32,
        mut f: impl FnMut(&mut Self, Frame) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let (mut at, mut expected_seq) = (0, first_seq);
        while at < u64::from(used_bytes) {
            let found = self.header(segment, at)?;
            let whole = found.filter(|frame| {
                let in_order =
                    if at == 0 { frame.seq() == expected_seq } else { frame.seq() >= expected_seq };
                in_order && at + frame.total() <= u64::from(used_bytes)
            });
            let Some(frame) = whole else {
                return Err(ImageError::LostFrame {
                    segment,
                    offset_bytes: self.layout.segment_at(segment) + at,
                    expected_seq,
                    found_seq: found.map_or(0, |frame| frame.seq()),
                }
                .into());
            };
            at += frame.total();
            let has_header = at < u64::from(used_bytes) && at + 4096 <= self.geometry.segment_bytes;
            self.reads_on = has_header && frame.total() == frame.written() as u64;
            f(self, Frame { first_seq, ..frame })?;
            expected_seq = frame.seq() + 1;
        }
        self.reads_on = false;
        Ok(())
    }

    /// All frames of the commit's incarnation that were written after it, in any segment.
    fn tail_frames(&mut self, slot: &Slot) -> Result<Vec<Frame>, OpenError> {
        let mut tail = Vec::new();
        // The log may have grown since the commit.
        let room_bytes = self.device.capacity_bytes().saturating_sub(self.layout.segment_at(0));
        let on_device = (room_bytes / self.geometry.segment_bytes) as u32;
        for segment in 0..on_device.clamp(slot.header.segments.get(), self.geometry.segments_max) {
            let named = slot.segments.get(segment as usize);
            let mut at = named.map_or(0, |named| u64::from(named.used_bytes.get()));
            let mut seq = 0;
            // A segment whose older frames are all dead is not named, but begins with them.
            let mut first_seq = named.filter(|_| at > 0).map(|named| named.first_seq.get());
            while let Some(frame) = self.header(segment, at)? {
                if frame.seq() <= seq
                    || frame.header.incarnation.get() != slot.header.incarnation.get()
                {
                    break;
                }
                seq = frame.seq();
                at += frame.total();
                let first_seq = *first_seq.get_or_insert(seq);
                if seq > slot.header.last_seq.get() {
                    tail.push(Frame { first_seq, ..frame });
                }
            }
        }
        Ok(tail)
    }

    /// Keeps the contiguous run of whole frames after `last_seq`, up to its last group commit.
    fn committed_tail(
        &mut self,
        mut tail: Vec<Frame>,
        last_seq: u64,
    ) -> Result<Vec<Frame>, OpenError> {
        tail.sort_unstable_by_key(Frame::seq);
        let (mut run, mut committed) = (0, 0);
        for (frame, expected_seq) in tail.iter().zip(last_seq + 1..) {
            if frame.seq() != expected_seq || !self.is_whole(frame)? {
                break;
            }
            run += 1;
            if frame.header.flags.get() & FRAME_COMMIT != 0 {
                committed = run;
            }
        }
        tail.truncate(committed);
        Ok(tail)
    }

    fn whole_tail(&mut self, tail: Vec<Frame>) -> Result<Vec<Frame>, OpenError> {
        let mut whole = Vec::new();
        for frame in tail {
            if self.is_whole(&frame)? {
                whole.push(frame);
            }
        }
        Ok(whole)
    }

    /// Whether all of a frame is there as it was written. A frame that only an attacker can have
    /// made is an error.
    fn is_whole(&mut self, frame: &Frame) -> Result<bool, OpenError> {
        self.read_frame(frame)?;
        let (head, rest) = self.bytes.as_mut().split_at_mut(FRAME_HEADER_BYTES + frame.payload());
        let tail = tail_bytes(frame, rest);
        if checksum(tail) != frame.header.tail_checksum.get() {
            return Ok(false);
        }
        let offset_bytes = self.layout.segment_at(frame.segment) + frame.at;
        check_seal(frame, tail, self.key.as_ref(), offset_bytes)?;
        let checks = Checks::of(frame, &tail_of(frame, tail));
        let checker = checks.checker(frame, self.key.as_ref());
        let mut blocks = head[FRAME_HEADER_BYTES..].chunks_mut(CHECK_BYTES).enumerate();
        Ok(blocks.all(|(number, block)| checker.check(number, block).is_ok()))
    }

    fn read_frame(&mut self, frame: &Frame) -> Result<(), OpenError> {
        let offset = self.layout.segment_at(frame.segment) + frame.at;
        self.device.read_at(offset, &mut self.bytes.as_mut()[..frame.written()])?;
        Ok(())
    }

    /// Reads and checks a frame's table: only the pages that hold it and, if needed, the next
    /// frame's header behind it. Calls `f` with each extent after it was checked.
    fn table(
        &mut self,
        frame: &Frame,
        region_bytes: u64,
        mut f: impl FnMut(Extent),
    ) -> Result<RawTable<'_>, OpenError> {
        let payload_end = FRAME_HEADER_BYTES + frame.payload();
        let from = payload_end / 4096 * 4096;
        let offset_bytes = self.layout.segment_at(frame.segment) + frame.at;
        let len = frame.written() - from;
        // Always read to the buffer's beginning, which stays in the cache.
        let read = &mut self.bytes.as_mut()[..len + if self.reads_on { 4096 } else { 0 }];
        self.device.read_at(offset_bytes + from as u64, read)?;
        if self.reads_on {
            self.page.as_mut().copy_from_slice(&read[len..]);
            self.page_at = Some(offset_bytes + frame.total());
        }
        let bytes = tail_bytes(frame, &self.bytes.as_slice()[payload_end - from..]);
        let (expected, found) = (frame.header.tail_checksum.get(), checksum(bytes));
        if expected != found {
            let (what, offset_bytes) = ("frame table", offset_bytes + from as u64);
            return Err(ImageError::Damaged { what, offset_bytes, expected, found }.into());
        }
        check_seal(frame, bytes, self.key.as_ref(), offset_bytes)?;
        let impossible = |what, value| ImageError::Impossible { what, value, offset_bytes };
        let tail = tail_of(frame, bytes);
        let Some(chunk_ends) = frame.chunk_ends(tail.lengths) else {
            return Err(impossible("chunk lengths", frame.payload() as u64).into());
        };
        let extents = tail.table.as_chunks().0;
        let table = RawTable { extents, tail, chunk_ends, bytes_read: len as u64 };
        let shift = self.geometry.grain_shift;
        let (region_grains, mut room) = (region_bytes >> shift, frame.raw() as u64 >> shift);
        for extent in table.extents() {
            if extent.len == 0 || extent.grain + extent.len > region_grains {
                return Err(impossible("extent", extent.pack()).into());
            }
            room = match room.checked_sub(extent.len) {
                Some(room) => room,
                None => return Err(impossible("extent length", extent.len).into()),
            };
            f(extent);
        }
        // Chunks must decode to exactly the bytes of the extents.
        if frame.is_compressed() && (room != 0 || !frame.raw().is_multiple_of(1 << shift)) {
            return Err(impossible("length before compression", frame.raw() as u64).into());
        }
        Ok(table)
    }

    /// Reads and checks a frame's table, and sorts it for loading.
    fn sorted_table(&mut self, frame: &Frame, rules: &Rules) -> Result<Table, OpenError> {
        let mut arena = std::mem::take(&mut self.arena);
        let mut tally = Tally::new(&rules.parts);
        let raw = self.table(frame, rules.region_bytes, |extent| tally.add(extent))?;
        let (checks, extents) = (Checks::of(frame, &raw.tail), raw.extents());
        let table = Table::new(*frame, &tally, extents, checks, raw.chunk_ends, &mut arena);
        self.arena = arena;
        Ok(table.map_err(refused(frame.extents() * 8))?)
    }
}

fn refused(len_bytes: usize) -> impl FnOnce(Errno) -> SetupError {
    move |source| {
        let len_bytes = len_bytes as u64;
        SetupError::Memory { what: "frames' tables", len_bytes, source }
    }
}

/// Reads the extents of all frames in a segment. Also returns the bytes that were read.
///
/// # Errors
/// A frame that the segment should have is not on the device, or is damaged.
pub(crate) fn read_tables(
    ledger: &Ledger,
    device: &dyn Device,
    segment: u32,
    space: &mut TableSpace,
) -> Result<(Vec<Extent>, u64), OpenError> {
    let image_id = ledger.image_id().load(Relaxed);
    let region_bytes = ledger.region_bytes().load(Acquire);
    let memory = match space.0.take() {
        Some(memory) => memory,
        // In small pages, of which tables touch few. So little is kept.
        None => (aligned(4096)?, aligned(ledger.geometry().segment_bytes as usize)?),
    };
    let key = ledger.key_words().map(Key::from_words);
    let mut reader = Reader::with(device, ledger.geometry(), image_id, key, memory);
    let entry = ledger.segment(segment);
    let (first_seq, used) = (entry.first_seq().load(Acquire), entry.used_bytes().load(Acquire));
    let (mut extents, mut bytes_read) = (Vec::new(), 0);
    reader.named_frames(segment, first_seq, used as u32, |reader, frame| {
        let table = reader.table(&frame, region_bytes, |extent| extents.push(extent))?;
        bytes_read += table.bytes_read + 4096;
        Ok(())
    })?;
    space.0 = Some((reader.page, reader.bytes));
    Ok((extents, bytes_read))
}

#[cfg(test)]
mod tests;
