//! The log of a replayed region: its segments and frames, and the place of each page's newest copy.
//! There are only counts and no bytes.
//!
//! The log keeps the segments that were ever written, and the locations of the pages that were met.
//! The list of a segment's pages shrinks to those that still live there. So the memory that a log
//! takes follows the pages in it and not the size of its medium.

use std::collections::VecDeque;

use perdura_dirty::geometry::{FRAME_MIN_BYTES, Geometry};
use perdura_dirty::policy::space::{Space, Survey};
use perdura_image::format::{FRAME_HEADER_BYTES, frame_body_bytes, room_for_payload};

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
    /// The bytes of its pages that count against the budget until they are durable.
    pub charged_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct OpenFrame {
    segment: u32,
    limit: usize,
    payload: usize,
    extents: usize,
    /// The number of the page behind the last one.
    next: u32,
    charged_bytes: u64,
}

#[derive(Debug, Default)]
struct Segment {
    is_used: bool,
    live_pages: u32,
    used_bytes: u64,
    /// In the order they were appended; with those that live elsewhere by now, but see
    /// [`Log::forget_dead_runs`].
    pages: Vec<u32>,
    /// For each frame its pages, and those after them that hold its table.
    frames: Vec<(u16, u16)>,
    /// How many frames are not durable yet.
    unwritten: u32,
    /// Once fewer are live, `pages` is looked through; 0 as long as the segment is filled.
    looked_through_below: u32,
}

/// In the list of a segment's pages: runs of which nothing lives were left out here. No page has
/// this number.
const GAP: u32 = u32::MAX;

/// The log of a replayed region.
#[derive(Debug)]
pub(super) struct Log {
    geometry: Geometry,
    space: Space,
    frame_bytes_max: u64,
    /// The segments that were ever written to.
    segments: Vec<Segment>,
    /// The segments that are free; those that were never written to are taken first.
    free: VecDeque<u32>,
    current: Option<(u32, u64)>,
    open: Option<OpenFrame>,
    pub free_buffers: u32,
    pub closed: VecDeque<Frame>,
    /// The segment of each page's newest copy, plus one.
    locations: Vec<u32>,
    /// How many frames were begun.
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
            segments: Vec::new(),
            free: VecDeque::new(),
            current: None,
            open: None,
            free_buffers: geometry.buffers,
            closed: VecDeque::new(),
            locations: Vec::new(),
            begun: 0,
        }
    }

    /// Makes room for the locations of pages up to this one, before the page is appended.
    pub fn reach(&mut self, page: u32) {
        if self.locations.len() <= page as usize {
            self.locations.resize(page as usize + 1, 0);
        }
    }

    pub fn space(&self) -> &Space {
        &self.space
    }

    /// How many segments are free beyond the reserve.
    pub fn spare(&self) -> u32 {
        let never_used = self.space.segments - self.segments.len() as u32;
        (never_used + self.free.len() as u32).saturating_sub(self.space.reserve_segments)
    }

    /// The segment to write to next; `None` where all are in use.
    fn next_free(&mut self) -> Option<u32> {
        let number = self.segments.len() as u32;
        if number < self.space.segments {
            self.segments.push(Segment::default());
            return Some(number);
        }
        self.free.pop_front()
    }

    pub fn survey(&self) -> Survey {
        let current = self.current.map(|(segment, _)| segment);
        let used = (0..).zip(&self.segments).filter(|(_, segment)| segment.is_used);
        let used = used.filter(|(number, _)| Some(*number) != current);
        let live =
            used.map(|(number, segment)| (number, u64::from(segment.live_pages) * PAGE_BYTES));
        Survey::of(self.geometry.segment_bytes, live)
    }

    /// How many frames are being filled or are not durable yet.
    pub fn buffers_in_use(&self) -> u32 {
        self.geometry.buffers - self.free_buffers
    }

    /// Appends pages `from..from + len`, whose newest copies lie there from now on. Returns how
    /// many fit the open frame, at least one.
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
            let location = std::mem::replace(&mut self.locations[page as usize], open.segment + 1);
            if location != 0 {
                self.left(location - 1);
            }
            self.segments[open.segment as usize].pages.push(page);
        }
        self.segments[open.segment as usize].live_pages += done;
        Ok(done)
    }

    /// Notes that a page's newest copy no longer lies in `segment`.
    #[inline]
    fn left(&mut self, segment: u32) {
        let left = &mut self.segments[segment as usize];
        left.live_pages -= 1;
        if left.live_pages < left.looked_through_below {
            left.looked_through_below = left.live_pages / 2;
            self.forget_dead_runs(segment);
        }
    }

    /// Leaves out of a full segment's list what emptying it would pass over. Runs stay whole: what
    /// is moved is moved in the same steps. Each time half of the pages have left, so it costs a
    /// constant for each.
    fn forget_dead_runs(&mut self, segment: u32) {
        let listed = std::mem::take(&mut self.segments[segment as usize].pages);
        let mut kept: Vec<u32> = Vec::new();
        for run in runs_and_gaps(&listed) {
            let is_gap = run[0] == GAP;
            if !is_gap && self.living_in(segment, run[0], run.len() as u32) != 0 {
                kept.extend(run);
            } else if kept.last() != Some(&GAP) {
                kept.push(GAP);
            }
        }
        kept.shrink_to_fit();
        self.segments[segment as usize].pages = kept;
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
                let segment = self.next_free().ok_or(Refusal::NoSegment)?;
                if let Some((full, _)) = self.current {
                    let full = &mut self.segments[full as usize];
                    full.looked_through_below = full.pages.len() as u32 / 2;
                }
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
        let pages = frame_body_bytes(open.payload, open.extents).div_ceil(4096);
        let before_table = FRAME_HEADER_BYTES + open.payload;
        let bytes = pages as u64 * PAGE_BYTES;
        let segment = &mut self.segments[open.segment as usize];
        segment.frames.push((pages as u16, (pages - before_table / 4096) as u16));
        segment.used_bytes += bytes;
        self.current = Some((open.segment, segment.used_bytes));
        self.closed.push_back(Frame {
            segment: open.segment,
            bytes,
            page_bytes: open.payload as u64,
            charged_bytes: open.charged_bytes,
        });
    }

    /// Notes that a frame is durable, which frees its buffer.
    pub fn settled(&mut self, frame: &Frame) {
        self.free_buffers += 1;
        self.segments[frame.segment as usize].unwritten -= 1;
    }

    /// Frees the segments that a commit finds without a newest copy.
    pub fn free_dead(&mut self) {
        let current = self.current.map(|(segment, _)| segment);
        for (number, segment) in (0..).zip(&mut self.segments) {
            if segment.is_used && segment.live_pages == 0 && Some(number) != current {
                *segment = Segment::default();
                self.free.push_back(number);
            }
        }
    }

    /// Whether frames of this segment are not on the device yet; `None`: it is being filled, and
    /// not to be emptied.
    pub fn begin_emptying(&self, victim: u32) -> Option<bool> {
        let current = self.current.map(|(segment, _)| segment);
        (current != Some(victim)).then(|| self.segments[victim as usize].unwritten > 0)
    }

    /// Bytes of each read that finds out which pages a victim holds, as a region reads its tables.
    pub fn table_reads(&self, victim: u32) -> Vec<u64> {
        let segment = &self.segments[victim as usize];
        let mut reads = vec![4096];
        let mut at = 0;
        for &(pages, table_pages) in &segment.frames {
            at += u64::from(pages) * PAGE_BYTES;
            let reads_on = at < segment.used_bytes && at + 4096 <= self.geometry.segment_bytes;
            reads.push((u64::from(table_pages) + u64::from(reads_on)) * 4096);
        }
        reads
    }

    /// Runs of neighbours within a word that were written to a victim, in order; those of which
    /// nothing lives may be missing.
    pub fn runs_of(&self, victim: u32) -> Vec<(u32, u32)> {
        runs(&self.segments[victim as usize].pages).collect()
    }

    /// The pages `from..from + len` of one word whose newest copies lie in `victim`, as bits.
    pub fn living_in(&self, victim: u32, from: u32, len: u32) -> u64 {
        (from..from + len)
            .filter(|page| self.locations[*page as usize] == victim + 1)
            .fold(0, |bits, page| bits | 1 << (page % 64))
    }

    /// Forgets what `victim` holds: the planted mistake.
    pub fn forget(&mut self, victim: u32) {
        let victim_segment = &mut self.segments[victim as usize];
        victim_segment.live_pages = 0;
        for page in std::mem::take(&mut victim_segment.pages) {
            // A gap has no location.
            if let Some(location) = self.locations.get_mut(page as usize)
                && *location == victim + 1
            {
                *location = 0;
            }
        }
    }

    /// The bytes of pages in frames that were not handed to the device.
    pub fn unwritten_page_bytes(&self) -> u64 {
        let closed: u64 = self.closed.iter().map(|frame| frame.page_bytes).sum();
        closed + self.open.map_or(0, |open| open.payload as u64)
    }

    /// The number of segments that a commit names.
    pub fn segments(&self) -> u32 {
        self.space.segments
    }
}

/// The runs of neighbours within a word, each by its first page and its length.
fn runs(pages: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    let runs = runs_and_gaps(pages).filter(|run| run[0] != GAP);
    runs.map(|run| (run[0], run.len() as u32))
}

fn runs_and_gaps(pages: &[u32]) -> impl Iterator<Item = &[u32]> {
    pages.chunk_by(|before, page| *page != GAP && before.wrapping_add(1) == *page && page % 64 != 0)
}

// Pages of a frame are told in 16 bits.
const _: () = assert!(perdura_dirty::geometry::SEGMENT_MAX_BYTES / 4096 < 1 << 16);

#[cfg(test)]
mod tests {
    use perdura_dirty::geometry::{BUFFERS, GRAIN_SHIFT_TRAP};
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// The runs as they were written of which at least one page has its newest copy here.
    fn living_runs(log: &Log, segment: u32, written: &[u32]) -> Vec<(u32, u32)> {
        let mut all: Vec<(u32, u32)> = Vec::new();
        for &page in written {
            match all.last_mut() {
                Some((from, len)) if *from + *len == page && page % 64 != 0 => *len += 1,
                _ => all.push((page, 1)),
            }
        }
        all.retain(|(from, len)| log.living_in(segment, *from, *len) != 0);
        all
    }

    #[test]
    fn what_is_left_out_of_a_segments_list_is_what_emptying_it_would_pass_over() {
        const PAGES: u32 = 3_000;
        let region_bytes = u64::from(PAGES) * PAGE_BYTES;
        let (mut listed_most, mut written_most) = (0, 0);
        for seed in 0..30 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let geometry =
                Geometry::new(64 << 20, GRAIN_SHIFT_TRAP, Some(256 << 10), BUFFERS).unwrap();
            let mut log = Log::new(geometry, 400, region_bytes, 128 << 10);
            log.reach(PAGES - 1);
            let mut written: Vec<Vec<u32>> = Vec::new();
            let hot = random.random_range(1..PAGES);
            for _ in 0..4_000 {
                let most = if random.random_range(0..8) == 0 { PAGES } else { hot };
                let page = random.random_range(0..most);
                let len = random.random_range(1..=8).min(64 - page % 64).min(PAGES - page);
                match log.append(page, len, false) {
                    Ok(done) => {
                        let segment = log.locations[page as usize] as usize - 1;
                        written.resize(written.len().max(segment + 1), Vec::new());
                        written[segment].extend(page..page + done);
                    }
                    Err(Refusal::NoBuffer) => {
                        while let Some(frame) = log.closed.pop_front() {
                            log.settled(&frame);
                        }
                    }
                    Err(Refusal::NoSegment) => break,
                }
                if random.random_range(0..400) == 0 {
                    log.free_dead();
                    for (pages, segment) in written.iter_mut().zip(&log.segments) {
                        if !segment.is_used {
                            pages.clear();
                        }
                    }
                }
            }
            for (segment, written) in (0..).zip(&written) {
                let mut runs = log.runs_of(segment);
                runs.retain(|(from, len)| log.living_in(segment, *from, *len) != 0);
                assert_eq!(runs, living_runs(&log, segment, written), "seed {seed}: {segment}");
            }
            listed_most += log.segments.iter().map(|segment| segment.pages.len()).sum::<usize>();
            written_most += written.iter().map(Vec::len).sum::<usize>();
        }
        assert!(listed_most * 5 < written_most * 4, "{listed_most} kept of {written_most}");
    }
}
