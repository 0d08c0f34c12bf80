//! Appending extents to the log: the open frame, the buffers, the free segments.
//!
//! Invariants: an extent's bytes and table entry are complete before the fill word publishes them,
//! and the dirty bits are cleared after that; a frame's place and number are set before it takes
//! its first extent. So a process that takes the ledger over after a kill can finish every frame.

use std::collections::VecDeque;

use crate::format::{FRAME_HEADER_BYTES, room_for_payload};
use crate::seal::frame_bytes;
use crate::sync::{AtomicU64, Ordering::*, fence};
use perdura_dirty::extent::Extent;
use perdura_dirty::geometry::{BUFFERS, FRAME_MIN_BYTES, WORD_GRAINS};
use perdura_dirty::policy::pace::QUEUE_DEPTH;
use perdura_dirty::sys::Mapping;
use perdura_dirty::{BufferState, FrameBuffer, Ledger, NO_LOCATION, SegmentState};

/// A full segment is filled further if one part in this many is free again. The part is not
/// smaller, because small frames cost recovery a read each.
const REOPENED_PART: u64 = 8;

/// Most bytes of a frame while others wait behind it at the device.
const SHORT_FRAME_BYTES: u64 = 256 << 10;

/// Buffers that a sweep leaves to writers who capture.
const CAPTURE_BUFFERS: usize = 3;
// The other buffers, but for the one being filled, are enough for a full queue, which shows the
// device's rate.
const _: () = assert!(CAPTURE_BUFFERS + 1 + QUEUE_DEPTH <= BUFFERS as usize);

/// The source of an extent's bytes.
#[derive(Clone, Copy)]
pub enum Source<'m> {
    /// The region's memory, at the extent's place.
    Memory(&'m Mapping),
    /// Zeros, for a block that is emptied or has capacity memory, which the image never holds.
    Zeros,
}

impl<'m> From<&'m Mapping> for Source<'m> {
    fn from(map: &'m Mapping) -> Self {
        Self::Memory(map)
    }
}

/// Why nothing could be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Every buffer is on its way to the device.
    NoBuffer,
    /// Only the emergency reserve is left.
    NoSegment,
}

/// Appends extents to the log. It is private to a process, except for the ledger that it writes.
#[derive(Debug)]
pub struct Appender {
    open: Option<OpenFrame>,
    /// Buffers that are ready for a new frame.
    pub free_buffers: Vec<u32>,
    /// Buffers of frames that lack only header and checksums, in the order of the frames' numbers.
    pub closed: VecDeque<u32>,
    /// Free segments, in the order in which they will be used.
    pub free_segments: VecDeque<u32>,
    /// Number of free segments that ordinary appends must leave.
    pub reserve_segments: u32,
    /// Most bytes of a frame: as many as a buffer holds, or fewer if the budget is small.
    pub(crate) frame_bytes_max: u64,
    /// Whether new frames are short, because others wait behind each of them at the device.
    pub(crate) are_frames_short: bool,
    current: Option<(u32, u64)>,
    /// Whether free segments that were written before are used first.
    prefers_written: bool,
    /// Segments that were full until their last frame was compressed, and the offsets at which they
    /// continue.
    reopened: Vec<(u32, u64)>,
    /// The segment that compaction took up last.
    emptied: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
struct OpenFrame {
    buffer: u32,
    segment: u32,
    payload: usize,
    extents: usize,
    limit: usize,
    last: Extent,
}

impl Appender {
    /// Makes an appender over these buffers and free segments, with no frame open.
    pub fn new(
        free_buffers: Vec<u32>,
        free_segments: VecDeque<u32>,
        reserve_segments: u32,
        frame_bytes_max: u64,
    ) -> Self {
        Self {
            open: None,
            free_buffers,
            closed: VecDeque::new(),
            free_segments,
            reserve_segments,
            frame_bytes_max,
            are_frames_short: false,
            current: None,
            prefers_written: false,
            reopened: Vec::new(),
            emptied: None,
        }
    }

    /// Sets the reserve and the size of frames for a budget.
    pub(crate) fn set_budget(&mut self, reserve_segments: u32, frame_bytes_max: u64) {
        self.reserve_segments = reserve_segments;
        self.frame_bytes_max = frame_bytes_max;
    }

    /// From now on uses segments that were written before first, because somebody waits for every
    /// frame.
    pub(crate) fn prefer_written(&mut self, ledger: &Ledger) {
        if !std::mem::replace(&mut self.prefers_written, true) {
            self.sort_free(ledger);
        }
    }

    /// Sorts the free segments again, because others may have written to them.
    pub fn sort_free(&mut self, ledger: &Ledger) {
        if self.prefers_written {
            let free = self.free_segments.make_contiguous();
            free.sort_by_key(|number| !ledger.segment(*number).was_written());
        }
    }

    /// Whether segments that were written before are used first.
    pub(crate) fn prefers_written(&self) -> bool {
        self.prefers_written
    }

    /// The number of free segments that were written before, and the first of the other free ones.
    /// `None` if there is no other, or written segments are not preferred.
    pub(crate) fn next_unwritten(&self, ledger: &Ledger) -> Option<(usize, u32)> {
        let place = self.written_free(ledger);
        let next = self.free_segments.get(place).filter(|_| self.prefers_written)?;
        Some((place, *next))
    }

    fn written_free(&self, ledger: &Ledger) -> usize {
        self.free_segments.partition_point(|number| ledger.segment(*number).was_written())
    }

    /// Takes the next segment to be filled. While there are others, as many segments written before
    /// as the emergency flush may need are left to it, because its rate was proven on such
    /// segments.
    fn take_free(&mut self, ledger: &Ledger) -> Option<u32> {
        let written = if self.prefers_written { self.written_free(ledger) } else { 0 };
        let is_left = written <= self.reserve_segments as usize;
        let place = if is_left && written < self.free_segments.len() { written } else { 0 };
        self.free_segments.remove(place)
    }

    /// Notes that a segment has become free.
    pub fn add_free(&mut self, ledger: &Ledger, segment: u32) {
        debug_assert!(
            self.reopened.iter().all(|(reopened, _)| *reopened != segment),
            "segment {segment} is free and would be filled further"
        );
        let is_first = self.prefers_written && ledger.segment(segment).was_written();
        let place = if is_first { self.written_free(ledger) } else { self.free_segments.len() };
        self.free_segments.insert(place, segment);
    }

    /// Notes that the log has grown by a segment.
    pub(crate) fn add_new(&mut self, segment: u32) {
        if self.prefers_written {
            self.free_segments.push_back(segment);
        } else {
            self.free_segments.push_front(segment);
        }
    }

    /// Number of free segments beyond the reserve.
    pub fn spare_segments(&self) -> u32 {
        (self.free_segments.len() as u32).saturating_sub(self.reserve_segments)
    }

    /// Whether one more grain could be appended now.
    pub fn can_take(&self, ledger: &Ledger) -> bool {
        self.open.is_some() || (!self.free_buffers.is_empty() && self.has_place(ledger))
    }

    /// Whether a sweep must wait for a buffer before it copies `bytes` more. The last buffers are
    /// for writers who capture; without them writers would wait for the device while a checkpoint
    /// is written.
    pub fn leaves_to_captures(&self, bytes: usize) -> bool {
        let fits = |open: OpenFrame| {
            room_for_payload(open.limit, open.payload, open.extents + WORD_GRAINS as usize) >= bytes
        };
        self.free_buffers.len() <= CAPTURE_BUFFERS && !self.open.is_some_and(fits)
    }

    fn has_place(&self, ledger: &Ledger) -> bool {
        self.place_in_current(ledger.geometry().segment_bytes)
            || !self.reopened.is_empty()
            || self.spare_segments() > 0
    }

    fn place_in_current(&self, segment_bytes: u64) -> bool {
        self.current.is_some_and(|(_, at)| segment_bytes - at >= FRAME_MIN_BYTES)
    }

    /// The segment to which the next frame goes if it has room; reopened segments come after it.
    pub fn current_segment(&self) -> Option<u32> {
        self.current.map(|(segment, _)| segment)
    }

    /// Appends grains of the run and enters their new location in the ledger; the caller excludes
    /// their writers. Returns how many fit the open frame (at least one). `charged`: their bytes
    /// count in the budget until they are durable.
    pub fn append<'m>(
        &mut self,
        ledger: &Ledger,
        source: impl Into<Source<'m>>,
        run: Extent,
        charged: bool,
    ) -> Result<u64, Refusal> {
        let (len, segment) = self.put(ledger, source, run)?;
        if charged && let Some(open) = &self.open {
            let bytes = len * ledger.geometry().grain_bytes();
            add_exclusively(ledger.buffer(open.buffer).charged_bytes(), bytes);
        }
        ledger.uncounted().store(1, Relaxed);
        fence(Release);
        move_locations(ledger, Extent { grain: run.grain, len }, segment);
        ledger.uncounted().store(0, Release);
        Ok(len)
    }

    /// Copies as many of the run's grains as fit to the open frame. Returns their number (at least
    /// one) and the number of the frame's segment. The caller enters this location in the ledger.
    pub fn put<'m>(
        &mut self,
        ledger: &Ledger,
        source: impl Into<Source<'m>>,
        run: Extent,
    ) -> Result<(u64, u32), Refusal> {
        let source = source.into();
        let grain_bytes = ledger.geometry().grain_bytes() as usize;
        let mut open = match self.open {
            Some(open) => open,
            None => self.begin_frame(ledger)?,
        };
        let merges = open.extents > 0
            && open.last.grain + open.last.len == run.grain
            && open.last.len + run.len <= Extent::LEN_MAX;
        let extents = open.extents + usize::from(!merges);
        let room = room_for_payload(open.limit, open.payload, extents) / grain_bytes;
        if room == 0 {
            self.open = Some(open);
            self.close_frame(ledger, 0);
            return self.put(ledger, source, run);
        }
        let len = run.len.min(room as u64);
        let bytes = len as usize * grain_bytes;
        let buffer = ledger.buffer(open.buffer);
        // SAFETY: the appender's lock is held (`&mut self`), so the buffer is ours; the source is
        // excluded from writers by the caller.
        unsafe {
            let room = buffer.bytes_mut((FRAME_HEADER_BYTES + open.payload) as u64, bytes);
            match source {
                Source::Memory(map) => {
                    room.copy_from_slice(map.bytes(run.grain * grain_bytes as u64, bytes));
                }
                Source::Zeros => room.fill(0),
            }
        }
        open.last = if merges {
            Extent { grain: open.last.grain, len: open.last.len + len }
        } else {
            Extent { grain: run.grain, len }
        };
        buffer.table()[extents - 1].store(open.last.pack(), Relaxed);
        open.payload += bytes;
        open.extents = extents;
        buffer.fill().store((extents as u64) << 32 | open.payload as u64, Release);
        self.open = Some(open);
        Ok((len, open.segment))
    }

    fn begin_frame(&mut self, ledger: &Ledger) -> Result<OpenFrame, Refusal> {
        let segment_bytes = ledger.geometry().segment_bytes;
        let Some(&buffer_number) = self.free_buffers.last() else {
            return Err(Refusal::NoBuffer);
        };
        if !self.place_in_current(segment_bytes)
            && let Some(place) = self.reopened.pop()
        {
            self.current = Some(place);
        }
        let opened = if self.place_in_current(segment_bytes) {
            None
        } else if self.spare_segments() == 0 {
            return Err(Refusal::NoSegment);
        } else {
            Some(self.take_free(ledger).ok_or(Refusal::NoSegment)?)
        };
        // The number is taken once, for frame and segment, because threads of a flush begin frames
        // at the same time.
        let seq = ledger.next_seq().fetch_add(1, AcqRel);
        if let Some(segment) = opened {
            let entry = ledger.segment(segment);
            entry.used_bytes().store(0, Relaxed);
            entry.live_bytes().store(0, Relaxed);
            entry.first_seq().store(seq, Relaxed);
            entry.begin_writing();
            entry.set_state(SegmentState::Used);
            self.current = Some((segment, 0));
        }
        let Some((segment, at)) = self.current else { return Err(Refusal::NoSegment) };
        self.free_buffers.pop();
        let buffer = ledger.buffer(buffer_number);
        // The limit counts uncompressed bytes: whether the frame shrinks is only known when it is
        // full.
        let most = match self.are_frames_short {
            true => self.frame_bytes_max.min(SHORT_FRAME_BYTES),
            false => self.frame_bytes_max,
        };
        let limit = (segment_bytes - at).min(most.max(FRAME_MIN_BYTES));
        buffer.segment().store(u64::from(segment), Relaxed);
        buffer.segment_offset().store(at, Relaxed);
        buffer.fill().store(0, Relaxed);
        buffer.charged_bytes().store(0, Relaxed);
        buffer.flags().store(0, Relaxed);
        buffer.set_packed(None);
        buffer.seq().store(seq, Relaxed);
        buffer.set_state(BufferState::Filling);
        let open = OpenFrame {
            buffer: buffer_number,
            segment,
            payload: 0,
            extents: 0,
            limit: limit as usize,
            last: Extent { grain: 0, len: 0 },
        };
        self.open = Some(open);
        Ok(open)
    }

    /// Ends the open frame, if there is one, and moves it to `closed`, where it waits for its
    /// checksums.
    pub fn close_frame(&mut self, ledger: &Ledger, flags: u16) {
        let Some(open) = self.open.take() else { return };
        let buffer = ledger.buffer(open.buffer);
        buffer.flags().store(u64::from(flags), Relaxed);
        let end = buffer.segment_offset().load(Relaxed) + frame_bytes(&buffer);
        let entry = ledger.segment(open.segment);
        entry.used_bytes().store(end, Release);
        buffer.set_state(BufferState::Sealed);
        self.closed.push_back(open.buffer);
        self.current = Some((open.segment, end));
    }

    /// Gives back the space of a closed frame that compression has made superfluous, unless another
    /// frame was begun behind it; the segment is then filled further. Returns the bytes that the
    /// frame keeps. The used bytes of the segment shrink before the frame is marked as packed.
    /// After a kill in between, the frame is written uncompressed, and the process that writes it
    /// counts its bytes again.
    pub(crate) fn give_back(
        &mut self,
        ledger: &Ledger,
        buffer: &FrameBuffer<'_>,
        raw_bytes: u64,
        stored_bytes: u64,
    ) -> u64 {
        let segment = buffer.segment().load(Relaxed) as u32;
        let at = buffer.segment_offset().load(Relaxed);
        let entry = ledger.segment(segment);
        let is_last = entry.used_bytes().load(Relaxed) == at + raw_bytes
            && self.open.is_none_or(|open| open.segment != segment);
        if !is_last {
            return raw_bytes;
        }
        let end = at + stored_bytes;
        entry.used_bytes().store(end, Release);
        let segment_bytes = ledger.geometry().segment_bytes;
        if self.current_segment() == Some(segment) {
            self.current = Some((segment, end));
        } else if self.emptied != Some(segment)
            && segment_bytes - end >= FRAME_MIN_BYTES.max(segment_bytes / REOPENED_PART)
        {
            self.reopened.push((segment, end));
        }
        stored_bytes
    }

    /// Forgets a reopened segment, because it is being freed.
    pub fn leave(&mut self, segment: u32) {
        self.reopened.retain(|(reopened, _)| *reopened != segment);
    }

    /// From now on nothing more goes to this segment, until another one is emptied. Returns false
    /// if the segment is being filled.
    pub fn begin_emptying(&mut self, segment: u32) -> bool {
        if self.current_segment() == Some(segment) {
            return false;
        }
        self.leave(segment);
        self.emptied = Some(segment);
        true
    }

    /// Ends the open frame with `flags`; an empty frame is begun if none is open.
    pub fn close_frame_with(&mut self, ledger: &Ledger, flags: u16) -> Result<(), Refusal> {
        if self.open.is_none() {
            self.begin_frame(ledger)?;
        }
        self.close_frame(ledger, flags);
        Ok(())
    }
}

/// Enters `segment` as the location of a run of grains, and counts the live bytes of all segments
/// concerned.
fn move_locations(ledger: &Ledger, run: Extent, segment: u32) {
    let locations = ledger.locations();
    let grain_bytes = ledger.geometry().grain_bytes();
    let mut rest = run;
    while rest.len > 0 {
        let old = locations.of(rest.grain);
        let same = Extent { grain: rest.grain, len: locations.alike(rest) };
        locations.set(same, segment + 1);
        if old != NO_LOCATION {
            let live = ledger.segment(old - 1);
            let (live, gone) = (live.live_bytes(), same.len * grain_bytes);
            let before = live.load(Relaxed);
            assert!(before >= gone, "segment {} lost count", old - 1);
            live.store(before - gone, Release);
        }
        rest = Extent { grain: rest.grain + same.len, len: rest.len - same.len };
    }
    add_exclusively(ledger.segment(segment).live_bytes(), run.len * grain_bytes);
}

/// Adds to a counter that only the holder of the appender's lock changes. A locked instruction
/// would wait for all stores before it, and so for the copy just made, which was half the cost of a
/// cleaned record.
fn add_exclusively(counter: &AtomicU64, bytes: u64) {
    counter.store(counter.load(Relaxed) + bytes, Release);
}

/// Frees a buffer for a new frame.
pub fn free_buffer(ledger: &Ledger, number: u32) {
    let buffer = ledger.buffer(number);
    buffer.set_state(BufferState::Free);
    // Cleared after the state: until the buffer is free, a process that takes over needs it.
    buffer.set_packed(None);
}

/// Frees a segment, which may be filled anew.
pub fn free_segment(ledger: &Ledger, number: u32) {
    let entry = ledger.segment(number);
    entry.used_bytes().store(0, Relaxed);
    entry.live_bytes().store(0, Relaxed);
    entry.set_state(SegmentState::Free);
}

// The path is said because the room *model* includes this file from elsewhere.
#[cfg(test)]
#[path = "append/tests.rs"]
mod tests;
