//! The log of a replayed region: segments, frames, where each page's newest copy lies. Counts only, no bytes.

use std::collections::VecDeque;

use perdura_region::Geometry;
use perdura_region::format::{frame_body_bytes, room_for_payload};
use perdura_region::geometry::FRAME_MIN_BYTES;
use perdura_region::policy::space::{Space, Survey};

use crate::trace::PAGE_BYTES;

/// Why nothing could be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Every buffer is on its way to the device.
    NoBuffer,
    /// Only the emergency reserve is left.
    NoSegment,
}

/// A frame that is complete.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    pub segment: u32,
    pub bytes: u64,
    pub page_bytes: u64,
    /// Of its pages, bytes that count until they are durable.
    pub charged_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct OpenFrame {
    segment: u32,
    limit: usize,
    payload: usize,
    extents: usize,
    /// The page behind the last.
    next: u32,
    charged_bytes: u64,
}

#[derive(Debug, Default)]
struct Segment {
    is_used: bool,
    live_pages: u32,
    used_bytes: u64,
    /// In the order they were appended; with those that live elsewhere by now.
    pages: Vec<u32>,
    /// Of each frame: its bytes, and those before its table's first page.
    frames: Vec<(u64, u64)>,
    /// Frames that are not durable yet.
    unwritten: u32,
}

/// The log.
#[derive(Debug)]
pub(super) struct Log {
    geometry: Geometry,
    space: Space,
    frame_bytes_max: u64,
    segments: Vec<Segment>,
    free: VecDeque<u32>,
    current: Option<(u32, u64)>,
    open: Option<OpenFrame>,
    pub free_buffers: u32,
    pub closed: VecDeque<Frame>,
    /// Segment of each page's newest copy, plus one.
    homes: Vec<u32>,
    /// Frames begun.
    pub begun: u64,
}

impl Log {
    pub fn new(geometry: Geometry, log_percent: u64, region_bytes: u64, budget_bytes: u64) -> Self {
        let segments = geometry.segments_wanted(log_percent, region_bytes, budget_bytes);
        let space = Space {
            segment_bytes: geometry.segment_bytes,
            segments,
            reserve_segments: geometry.reserve_segments(budget_bytes),
            budget_bytes,
        };
        Self {
            geometry,
            space,
            frame_bytes_max: geometry.frame_bytes_max(budget_bytes),
            segments: (0..segments).map(|_| Segment::default()).collect(),
            free: (0..segments).collect(),
            current: None,
            open: None,
            free_buffers: geometry.buffers,
            closed: VecDeque::new(),
            homes: vec![0; (region_bytes / PAGE_BYTES) as usize],
            begun: 0,
        }
    }

    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Free segments beyond the reserve.
    pub fn spare(&self) -> u32 {
        (self.free.len() as u32).saturating_sub(self.space.reserve_segments)
    }

    pub fn survey(&self) -> Survey {
        let current = self.current.map(|(segment, _)| segment);
        let used = (0..).zip(&self.segments).filter(|(_, segment)| segment.is_used);
        let used = used.filter(|(number, _)| Some(*number) != current);
        let live =
            used.map(|(number, segment)| (number, u64::from(segment.live_pages) * PAGE_BYTES));
        Survey::of(self.geometry.segment_bytes, live)
    }

    /// Frames that are being filled or are not durable yet.
    pub fn buffers_in_use(&self) -> u32 {
        self.geometry.buffers - self.free_buffers
    }

    /// Appends pages `from..from + len`, whose newest copies lie there from now on. Returns how many fit the open frame, at
    /// least one.
    pub fn append(&mut self, from: u32, len: u32, charged: bool) -> Result<u32, Refusal> {
        let page_bytes = PAGE_BYTES as usize;
        let (mut open, merges, room) = loop {
            let open = match self.open {
                Some(open) => open,
                None => self.begin_frame()?,
            };
            let merges = open.extents > 0 && open.next == from;
            let extents = open.extents + usize::from(!merges);
            let room = room_for_payload(open.limit, open.payload, extents) / page_bytes;
            if room > 0 {
                break (open, merges, room);
            }
            self.close_frame();
        };
        let done = len.min(u32::try_from(room).unwrap_or(u32::MAX));
        open.extents += usize::from(!merges);
        open.payload += done as usize * page_bytes;
        open.next = from + done;
        open.charged_bytes += if charged { u64::from(done) * PAGE_BYTES } else { 0 };
        self.open = Some(open);
        for page in from..from + done {
            let home = std::mem::replace(&mut self.homes[page as usize], open.segment + 1);
            if home != 0 {
                self.segments[home as usize - 1].live_pages -= 1;
            }
            self.segments[open.segment as usize].pages.push(page);
        }
        self.segments[open.segment as usize].live_pages += done;
        Ok(done)
    }

    fn place_in_current(&self) -> Option<(u32, u64)> {
        self.current.filter(|(_, at)| self.geometry.segment_bytes - at >= FRAME_MIN_BYTES)
    }

    fn begin_frame(&mut self) -> Result<OpenFrame, Refusal> {
        if self.free_buffers == 0 {
            return Err(Refusal::NoBuffer);
        }
        let (segment, at) = match self.place_in_current() {
            Some(place) => place,
            None if self.spare() == 0 => return Err(Refusal::NoSegment),
            None => {
                let segment = self.free.pop_front().ok_or(Refusal::NoSegment)?;
                self.segments[segment as usize] = Segment { is_used: true, ..Segment::default() };
                (segment, 0)
            }
        };
        self.current = Some((segment, at));
        self.free_buffers -= 1;
        self.begun += 1;
        self.segments[segment as usize].unwritten += 1;
        let limit =
            (self.geometry.segment_bytes - at).min(self.frame_bytes_max.max(FRAME_MIN_BYTES));
        let open = OpenFrame {
            segment,
            limit: limit as usize,
            payload: 0,
            extents: 0,
            next: 0,
            charged_bytes: 0,
        };
        self.open = Some(open);
        Ok(open)
    }

    /// Ends the open frame, if there is one.
    pub fn close_frame(&mut self) {
        let Some(open) = self.open.take() else { return };
        let bytes = frame_body_bytes(open.payload, open.extents).next_multiple_of(4096) as u64;
        let before_table =
            frame_body_bytes(open.payload, 0) as u64 - open.payload.div_ceil(4096) as u64 * 8;
        let segment = &mut self.segments[open.segment as usize];
        segment.frames.push((bytes, before_table / 4096 * 4096));
        segment.used_bytes += bytes;
        self.current = Some((open.segment, segment.used_bytes));
        self.closed.push_back(Frame {
            segment: open.segment,
            bytes,
            page_bytes: open.payload as u64,
            charged_bytes: open.charged_bytes,
        });
    }

    /// A frame is durable: its buffer is free.
    pub fn settled(&mut self, frame: &Frame) {
        self.free_buffers += 1;
        self.segments[frame.segment as usize].unwritten -= 1;
    }

    /// Nobody needs segments any more that a commit finds dead.
    pub fn free_dead(&mut self) {
        let current = self.current.map(|(segment, _)| segment);
        for (number, segment) in (0..).zip(&mut self.segments) {
            if segment.is_used && segment.live_pages == 0 && Some(number) != current {
                *segment = Segment::default();
                self.free.push_back(number);
            }
        }
    }

    /// Whether frames of this segment are not on the device yet; `None`: it is being filled, and not to be emptied.
    pub fn begin_emptying(&self, victim: u32) -> Option<bool> {
        let current = self.current.map(|(segment, _)| segment);
        (current != Some(victim)).then(|| self.segments[victim as usize].unwritten > 0)
    }

    /// Bytes of each read that finds out which pages a victim holds, as a region reads its tables.
    pub fn table_reads(&self, victim: u32) -> Vec<u64> {
        let segment = &self.segments[victim as usize];
        let mut reads = vec![4096];
        let mut at = 0;
        for (bytes, before_table) in &segment.frames {
            at += bytes;
            let reads_on = at < segment.used_bytes && at + 4096 <= self.geometry.segment_bytes;
            reads.push(bytes - before_table + if reads_on { 4096 } else { 0 });
        }
        reads
    }

    /// Runs of neighbours within a word that were written to a victim, in order.
    pub fn runs_of(&self, victim: u32) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for &page in &self.segments[victim as usize].pages {
            match runs.last_mut() {
                Some((from, len)) if *from + *len == page && page % 64 != 0 => *len += 1,
                _ => runs.push((page, 1)),
            }
        }
        runs
    }

    /// Of pages `from..from + len` of one word, those that live in `victim`: bits.
    pub fn living_in(&self, victim: u32, from: u32, len: u32) -> u64 {
        (from..from + len)
            .filter(|page| self.homes[*page as usize] == victim + 1)
            .fold(0, |bits, page| bits | 1 << (page % 64))
    }

    /// The planted mistake: what lived there is forgotten.
    pub fn forget(&mut self, victim: u32) {
        let victim_segment = &mut self.segments[victim as usize];
        victim_segment.live_pages = 0;
        for page in std::mem::take(&mut victim_segment.pages) {
            let home = &mut self.homes[page as usize];
            if *home == victim + 1 {
                *home = 0;
            }
        }
    }

    /// Bytes of pages in frames that were not handed to the device.
    pub fn unwritten_page_bytes(&self) -> u64 {
        let closed: u64 = self.closed.iter().map(|frame| frame.page_bytes).sum();
        closed + self.open.map_or(0, |open| open.payload as u64)
    }

    /// Segments a commit names.
    pub fn segments(&self) -> u32 {
        self.space.segments
    }
}
