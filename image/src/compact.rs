//! Compaction: emptying a sparse segment, step by step.
//!
//! Live grains are copied from memory; for grains of capacity blocks zeros are written, as which
//! the image holds them. Only the victim's extent tables are read back, to find the grains to look
//! at. If the tables cannot be read, all locations of the ledger are searched, which is slower.
//! Between two steps the caller hands frames to the device and serves faults.

use std::sync::atomic::Ordering::*;

use perdura_dirty::extent::{Extent, runs};
use perdura_dirty::geometry::{BLOCK_BYTES, WORD_GRAINS};
use perdura_dirty::policy::space::Survey;
use perdura_dirty::{BufferState, Counters, RegionError, SegmentState};

use crate::append::{Appender, Refusal, Source, free_segment};
use crate::backed::Backed;
use crate::recover::{TableSpace, read_tables};

/// Extents by which locations are prefetched.
const EXTENTS_AHEAD: usize = 16;

/// A segment that is being emptied.
pub struct Compaction<'b> {
    backed: &'b Backed,
    victim: u32,
    candidates: Vec<Extent>,
    /// The candidate to look at next, and its first grain that was not looked at.
    next: (usize, u64),
}

/// The outcome of a step of compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Grains were moved.
    Moved,
    /// No grain had to be moved.
    Passed,
    /// No buffer is free, or a page is locked, so the same step must be tried again.
    Blocked,
    /// The segment has no live grains any more. Its copies are needed until the new ones are
    /// durable and committed, so the next commit frees it.
    Emptied,
}

impl<'b> Compaction<'b> {
    /// Begins to empty a segment that has no frame on its way to the device.
    pub fn begin(backed: &'b Backed, victim: u32, space: &mut TableSpace) -> Self {
        debug_assert!(
            !is_being_written(backed, victim),
            "segment {victim} has a frame on its way, whose table cannot be read back"
        );
        let ledger = &backed.memory.ledger;
        let candidates = match read_tables(ledger, &*backed.log.device, victim, space) {
            Ok((extents, bytes_read)) => {
                Counters::add(&backed.memory.stats.compaction_read_bytes, bytes_read);
                extents
            }
            Err(error) => {
                tracing::warn!(
                    victim,
                    %error,
                    "extent table unreadable; searching all grains instead"
                );
                let grains = backed.memory.region_bytes() >> ledger.geometry().grain_shift;
                vec![Extent { grain: 0, len: grains }]
            }
        };
        let first = candidates.first().map_or(0, |extent| extent.grain);
        Self { backed, victim, candidates, next: (0, first) }
    }

    /// Moves the segment's live grains of the next bitmap word.
    ///
    /// # Errors
    /// The log is full, or a block cannot be loaded.
    pub fn step(&mut self) -> Result<Step, RegionError> {
        let (number, grain) = self.next;
        let Some(&extent) = self.candidates.get(number) else {
            let left = self.backed.memory.ledger.segment(self.victim).live_bytes().load(Acquire);
            assert_eq!(left, 0, "segment {} kept {left} live bytes after compaction", self.victim);
            return Ok(Step::Emptied);
        };
        if grain == extent.grain
            && let Some(coming) = self.candidates.get(number + EXTENTS_AHEAD)
        {
            // Most grains have other locations by now, and the locations are in no cache.
            self.backed.memory.ledger.prefetch_locations(coming.grain, coming.len);
        }
        let end = extent.grain + extent.len;
        let word = (grain / WORD_GRAINS) as usize;
        let stop = end.min((word as u64 + 1) * WORD_GRAINS);
        let moved = match self.move_word(word, grain, stop)? {
            Some(moved) => moved,
            None => return Ok(Step::Blocked),
        };
        self.next = match stop < end {
            true => (number, stop),
            false => (number + 1, self.candidates.get(number + 1).map_or(0, |next| next.grain)),
        };
        Ok(if moved { Step::Moved } else { Step::Passed })
    }

    /// Moves those of the grains `from..to` of a word that live in the victim. Returns whether
    /// there were any; `None` if no buffer is free or a page is locked, so that the caller must try
    /// again.
    fn move_word(&self, word: usize, from: u64, to: u64) -> Result<Option<bool>, RegionError> {
        let offset = word as u64 * self.backed.memory.ledger.geometry().word_bytes();
        // Compaction copies from memory, and a block that is not loaded has no locations yet.
        self.backed.load_block(offset / BLOCK_BYTES)?;
        let locations = self.backed.memory.ledger.locations();
        let lives_there = || {
            (from..to)
                .filter(|grain| locations.of(*grain) == self.victim + 1)
                .fold(0u64, |bits, grain| bits | 1 << (grain % WORD_GRAINS))
        };
        if lives_there() == 0 {
            return Ok(Some(false));
        }
        let parity = self.backed.memory.parity();
        let shift = self.backed.memory.ledger.geometry().grain_shift;
        let _lane = (!self.backed.tracked.is_trapped())
            .then(|| self.backed.tracked.lanes.lock_owner_of(offset));
        // While the cleaner is held, blocks with copies in the image do not change their kind.
        let (lives, capacity) = (lives_there(), self.backed.memory.ledger.capacity_bits(word));
        let (bits, zeros) = (lives & !capacity, lives & capacity);
        if let Some(tracker) = self.backed.tracked.pages()
            && tracker.close_all(word, bits).is_none()
        {
            return Ok(None);
        }
        // Dirty grains are cleaned here, and their bytes count in the budget until they are
        // durable.
        let dirty = self.backed.memory.ledger.bitmap(parity)[word].load(Acquire) & bits;
        let mut appender = self.backed.log.appender.lock();
        let (_, mut refusal) = self.backed.append_bits(&mut appender, parity, word, dirty);
        let clean =
            runs(word, bits & !dirty).map(|run| (run, Source::Memory(&self.backed.memory.map)));
        for (mut run, source) in clean.chain(runs(word, zeros).map(|run| (run, Source::Zeros))) {
            while run.len > 0 && refusal.is_none() {
                match appender.append(&self.backed.memory.ledger, source, run, false) {
                    Ok(len) => {
                        Counters::add(&self.backed.memory.stats.compacted_bytes, len << shift);
                        run = Extent { grain: run.grain + len, len: run.len - len };
                    }
                    Err(why) => refusal = Some(why),
                }
            }
        }
        self.backed.note_space(&appender);
        drop(appender);
        if let Some(tracker) = self.backed.tracked.pages() {
            // Those that could not be cleaned.
            tracker.release(word, bits, bits);
        }
        match refusal {
            None => Ok(Some(true)),
            Some(Refusal::NoBuffer) => Ok(None),
            Some(Refusal::NoSegment) => Err(self.backed.log.full()),
        }
    }
}

/// Number of frames that are being filled or are not durable yet.
pub fn buffers_in_use(backed: &Backed) -> u32 {
    let free = backed.log.appender.lock().free_buffers.len() as u32;
    backed.memory.ledger.geometry().buffers - free
}

/// Whether frames of this segment are on their way to the device, and so could not be read back.
pub fn is_being_written(backed: &Backed, segment: u32) -> bool {
    let ledger = &backed.memory.ledger;
    (0..ledger.geometry().buffers).any(|number| {
        let buffer = ledger.buffer(number);
        buffer.state() != BufferState::Free && buffer.segment().load(Relaxed) == u64::from(segment)
    })
}

/// The planted bug: frees segments that the last commit still needs.
pub fn free_dead_now(backed: &Backed) {
    let mut appender = backed.log.appender.lock();
    let segments = backed.memory.ledger.segments().load(Relaxed) as u32;
    for segment in 0..segments {
        if live_bytes(backed, &appender, segment) != Some(0) {
            continue;
        }
        free_segment(&backed.memory.ledger, segment);
        appender.leave(segment);
        appender.free_segments.push_front(segment);
    }
    backed.note_space(&appender);
}

/// A survey of the log's segments, without the one that is being filled.
pub fn survey(backed: &Backed) -> Survey {
    let appender = backed.log.appender.lock();
    let segments = backed.memory.ledger.segments().load(Relaxed) as u32;
    let live = (0..segments)
        .filter_map(|segment| Some((segment, live_bytes(backed, &appender, segment)?)));
    Survey::of(backed.memory.ledger.geometry().segment_bytes, live)
}

/// Live bytes of a segment; `None` if it is not used, or is being filled.
fn live_bytes(backed: &Backed, appender: &Appender, segment: u32) -> Option<u64> {
    let entry = backed.memory.ledger.segment(segment);
    let counts = entry.state() == SegmentState::Used && appender.current_segment() != Some(segment);
    counts.then(|| entry.live_bytes().load(Relaxed))
}
