//! Space: segments come free when a checkpoint commits without them; compaction empties the sparse
//! ones.
//!
//! Compaction copies live grains from memory (of capacity blocks, which the image holds as zeros,
//! zeros). Only the victim's extent tables are read back, to know which grains to look at; if they
//! cannot be read, the `home` array tells, more slowly.

use std::sync::atomic::Ordering::*;

use crate::append::{Appender, Refusal, Source, free_segment};
use crate::clean::{Cleaner, Pump};
use crate::core::Core;
use crate::recover::read_tables;
use crate::tracking::Tracking;
use perdura_dirty::error::RegionError;
use perdura_dirty::extent::{Extent, runs};
use perdura_dirty::geometry::{BLOCK_BYTES, COMPACTION_FRAMES, WORD_GRAINS};
use perdura_dirty::ledger::{BufferState, SegmentState};
use perdura_dirty::planted::Planted;
use perdura_dirty::policy::space::{Ahead, FRUITLESS_MAX, FirstLook, Space, Survey};
use perdura_dirty::stats::Counters;

/// Extents whose homes are asked for ahead.
const EXTENTS_AHEAD: usize = 16;
impl Cleaner {
    /// Keeps enough spare segments for a whole drain, committing and compacting if need be; a step
    /// ahead of need each time it is called, so that writers need not wait for all of it at once.
    ///
    /// At every moment a drain of all that is dirty fits the spare segments (the budget is held to
    /// that, see [`Core::note_space`]), so a commit can always be made, and a commit is what frees
    /// segments.
    pub fn ensure_space(&mut self, core: &Core) -> Result<(), RegionError> {
        let spare = core.appender.lock().spare_segments();
        let look = core.space().first_look(spare);
        if look == FirstLook::Ample {
            return Ok(());
        }
        // The final flush waits for the cleaner, on the warning's time, and needs none of this.
        core.check_open()?;
        if core.planted.is(Planted::FreeBeforeCommit) {
            free_dead_now(core);
            return Ok(());
        }
        if look == FirstLook::Needed {
            return self.make_space(core);
        }
        // What is moved is loaded first; that can wait.
        match core.space().ahead(spare, &survey(core), core.loading().is_none()) {
            Ahead::Nothing => Ok(()),
            Ahead::Commit => self.commit_checkpoint(core, false),
            Ahead::Empty(victims) => {
                victims.into_iter().flatten().try_for_each(|victim| self.compact(core, victim))
            }
        }
    }

    fn make_space(&mut self, core: &Core) -> Result<(), RegionError> {
        // Each compaction should free about a segment; a log too small for its budget would never
        // see the end.
        let mut compactions_left = core.ledger.segments().load(Relaxed);
        let mut fruitless = 0;
        while fruitless < FRUITLESS_MAX {
            let spare = core.appender.lock().spare_segments();
            if !core.space().is_short(spare) {
                return Ok(());
            }
            core.check_open()?;
            let used_bytes = core.ledger.budget_used().load(Relaxed);
            if let Some(victim) = core.space().needed(spare, &survey(core), used_bytes)
                && compactions_left > 0
            {
                self.compact(core, victim)?;
                compactions_left -= 1;
                continue;
            }
            self.commit_checkpoint(core, false)?;
            let gained = core.appender.lock().spare_segments() > spare;
            fruitless = if gained { 0 } else { fruitless + 1 };
        }
        Ok(())
    }

    /// Empties a segment.
    fn compact(&mut self, core: &Core, victim: u32) -> Result<(), RegionError> {
        if !core.appender.lock().begin_emptying(victim) {
            // A writer who captured has begun a frame there.
            return Ok(());
        }
        // Frames still on their way could not be read back.
        if core.is_being_written(victim) {
            self.pump(core, Pump::Durable)?;
        }
        let tables = read_tables(core, victim);
        let candidates = match tables {
            Ok((extents, bytes_read)) => {
                Counters::add(&core.stats.compaction_read_bytes, bytes_read);
                extents
            }
            Err(error) => {
                tracing::warn!(victim, %error, "extent table unreadable; searching all grains instead");
                vec![Extent {
                    grain: 0,
                    len: core.region_bytes() >> core.ledger.geometry().grain_shift,
                }]
            }
        };
        for (number, &extent) in candidates.iter().enumerate() {
            // Most are no longer at home here, and where their homes are noted is in no cache.
            if let Some(coming) = candidates.get(number + EXTENTS_AHEAD) {
                core.ledger.prefetch_homes(coming.grain, coming.len);
            }
            self.move_extent(core, victim, extent)?;
        }
        // The victim's copies are needed until the new ones are durable and committed: a commit
        // sees to both.
        let left = core.ledger.segment(victim).live_bytes().load(Acquire);
        assert_eq!(left, 0, "segment {victim} kept {left} live bytes after compaction");
        Ok(())
    }

    fn move_extent(&mut self, core: &Core, victim: u32, extent: Extent) -> Result<(), RegionError> {
        let (mut grain, end) = (extent.grain, extent.grain + extent.len);
        while grain < end {
            let word = (grain / WORD_GRAINS) as usize;
            let stop = end.min((word as u64 + 1) * WORD_GRAINS);
            let moved = loop {
                match self.move_word(core, victim, word, grain, stop)? {
                    Some(moved) => break moved,
                    None => _ = self.pump(core, Pump::One)?,
                }
                self.serve_faults_nested(core)?;
            };
            grain = stop;
            if !moved {
                continue;
            }
            // Nobody has paid for the time to write these again, should this process be killed:
            // only so many. An extent may come from a frame of another budget, and be as long as
            // many of today's.
            while core.buffers_in_use() > COMPACTION_FRAMES {
                let before = core.buffers_in_use();
                self.pump(core, Pump::One)?;
                if core.buffers_in_use() == before {
                    // A later frame was written first; or the rest is what writers have captured
                    // and not closed.
                    self.pump(core, Pump::Durable)?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Moves what lives in `victim` of grains `from..to` of one word. Returns whether anything
    /// does; `None`: no buffer, or a page is locked; try again.
    fn move_word(
        &mut self,
        core: &Core,
        victim: u32,
        word: usize,
        from: u64,
        to: u64,
    ) -> Result<Option<bool>, RegionError> {
        let offset = word as u64 * core.ledger.geometry().word_bytes();
        // It copies from memory, and only what is in memory is known to be at home anywhere.
        core.load_block(offset / BLOCK_BYTES)?;
        let homes = core.ledger.homes();
        let lives_there = || {
            (from..to)
                .filter(|grain| homes.of(*grain) == victim + 1)
                .fold(0u64, |bits, grain| bits | 1 << (grain % WORD_GRAINS))
        };
        if lives_there() == 0 {
            return Ok(Some(false));
        }
        let parity = core.parity();
        let shift = core.ledger.geometry().grain_shift;
        let _lane =
            matches!(core.tracking, Tracking::Barrier).then(|| core.lanes.lock_owner_of(offset));
        // While the cleaner is held no kind changes of a block that has copies in the image.
        let (lives, capacity) = (lives_there(), core.capacity_bits(word));
        let (bits, zeros) = (lives & !capacity, lives & capacity);
        if let Tracking::Pages(tracker) = &core.tracking
            && tracker.close_all(core, word, bits).is_none()
        {
            return Ok(None);
        }
        // A dirty grain met here is cleaned: its bytes stay charged until they are durable.
        let dirty = core.ledger.bitmap(parity)[word].load(Acquire) & bits;
        let mut appender = core.appender.lock();
        let (_, mut refusal) = core.append_bits(&mut appender, parity, word, dirty);
        let clean = runs(word, bits & !dirty).map(|run| (run, Source::Memory(&core.map)));
        for (mut run, source) in clean.chain(runs(word, zeros).map(|run| (run, Source::Zeros))) {
            while run.len > 0 && refusal.is_none() {
                match appender.append(&core.ledger, source, run, false) {
                    Ok(len) => {
                        Counters::add(&core.stats.compacted_bytes, len << shift);
                        run = Extent { grain: run.grain + len, len: run.len - len };
                    }
                    Err(why) => refusal = Some(why),
                }
            }
        }
        core.note_space(&appender);
        drop(appender);
        if let Tracking::Pages(tracker) = &core.tracking {
            let still_dirty = core.ledger.bitmap(parity)[word].load(Acquire) & bits;
            tracker.release(core, word, bits, still_dirty);
        }
        match refusal {
            None => Ok(Some(true)),
            Some(Refusal::NoBuffer) => Ok(None),
            Some(Refusal::NoSegment) => Err(core.log_full()),
        }
    }
}

impl Core {
    /// Frames that are being filled or are not durable yet.
    fn buffers_in_use(&self) -> u32 {
        let free = self.appender.lock().free_buffers.len() as u32;
        self.ledger.geometry().buffers - free
    }

    /// The log's sizes that decide about its space.
    pub fn space(&self) -> Space {
        self.space_of(&self.appender.lock())
    }

    fn space_of(&self, appender: &Appender) -> Space {
        Space {
            segment_bytes: self.ledger.geometry().segment_bytes,
            segments: self.ledger.segments().load(Relaxed) as u32,
            reserve_segments: appender.reserve_segments,
            budget_bytes: self.ledger.budget_limit().load(Relaxed),
        }
    }

    /// Whether frames of this segment are not on the device yet.
    fn is_being_written(&self, segment: u32) -> bool {
        (0..self.ledger.geometry().buffers).any(|number| {
            let buffer = self.ledger.buffer(number);
            buffer.state() != BufferState::Free
                && buffer.segment().load(Relaxed) == u64::from(segment)
        })
    }

    /// Holds the budget to what a drain into the spare segments could take.
    pub fn note_space(&self, appender: &Appender) {
        let spare = appender.spare_segments();
        self.budget.limit_by_space(self.space_of(appender).limit_bytes(spare));
    }
}

/// The planted bug: what the last commit still needs is overwritten.
fn free_dead_now(core: &Core) {
    let mut appender = core.appender.lock();
    let segments = core.ledger.segments().load(Relaxed) as u32;
    for segment in 0..segments {
        if live_bytes(core, &appender, segment) != Some(0) {
            continue;
        }
        free_segment(&core.ledger, segment);
        appender.leave(segment);
        appender.free_segments.push_front(segment);
    }
    core.note_space(&appender);
}

/// What the log's segments hold, but for the one being filled.
fn survey(core: &Core) -> Survey {
    let appender = core.appender.lock();
    let segments = core.ledger.segments().load(Relaxed) as u32;
    let live =
        (0..segments).filter_map(|segment| Some((segment, live_bytes(core, &appender, segment)?)));
    Survey::of(core.ledger.geometry().segment_bytes, live)
}

/// Live bytes of a segment that is used and not being filled.
fn live_bytes(core: &Core, appender: &Appender, segment: u32) -> Option<u64> {
    let entry = core.ledger.segment(segment);
    let counts = entry.state() == SegmentState::Used && appender.current_segment() != Some(segment);
    counts.then(|| entry.live_bytes().load(Relaxed))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_media::{SimClock, SimDevice};

    use super::*;
    use crate::Config;
    use crate::Region;
    use crate::testing::write;
    use perdura_dirty::geometry::BLOCK_BYTES;

    #[test]
    fn space_is_made_though_nothing_is_in_use() {
        // No lane keeps credit, so after a group commit nothing at all is in use.
        let (blocks, clock) = (512, Arc::new(SimClock::new(1_000)));
        let config = Config {
            segment_bytes: Some(64 << 10),
            lanes: Some(64),
            thread: false,
            checkpoint_every: None,
            ..Config::new(blocks * BLOCK_BYTES, 4 * BLOCK_BYTES)
        };
        let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock, config).unwrap();
        let records = blocks * 64;
        // Every segment stays half alive and none dies, until hardly any are spare.
        let all = (0..records).chain((0..8).flat_map(|halving| {
            (0..records >> (halving + 1)).map(move |record| record << (halving + 1))
        }));
        for (step, record) in all.enumerate() {
            write(&region, record * 1024, &[1; 1024]);
            if step % 54 == 53 {
                // About a segment each.
                region.commit_group().unwrap();
                assert_eq!(region.used_bytes(), 0, "this test shows nothing");
                region.checkpoint().unwrap();
            }
        }
    }

    #[test]
    fn the_final_flush_does_not_wait_for_space_to_be_made() {
        let (blocks, clock) = (64, Arc::new(SimClock::new(1_000)));
        let config = Config {
            segment_bytes: Some(64 << 10),
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            ..Config::new(blocks * BLOCK_BYTES, 8 * BLOCK_BYTES)
        };
        let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock, config).unwrap();
        for step in 0..4 * blocks * 64 {
            let record = step * 7_919 % (blocks * 64);
            write(&region, record * 1024, &[1]);
        }
        // More space is wanted than there is.
        let core = region.core();
        core.ledger.budget_limit().store(4 * blocks * BLOCK_BYTES, Relaxed);
        region.refuse_writers();
        let before = region.stats();
        let refused = core.cleaner.lock().ensure_space(core);
        assert!(matches!(refused, Err(RegionError::Closed)), "{refused:?}");
        assert_eq!(region.stats(), before);
    }

    #[test]
    fn compaction_has_no_more_on_its_way_than_the_warning_leaves_time_for() {
        // What a smaller budget finds was written in the long frames of a larger one.
        for budget in [16 << 20, 1 << 20, 128 << 10] {
            let config = Config {
                segment_bytes: Some(1 << 20),
                lanes: Some(1),
                thread: false,
                checkpoint_every: None,
                ..Config::new(16 << 20, 16 << 20)
            };
            let clock = Arc::new(SimClock::new(1_000));
            let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock, config).unwrap();
            for block in 0..128 {
                write(&region, block * BLOCK_BYTES, &[1; 65_536]);
            }
            region.checkpoint().unwrap();
            region.set_budget(budget).unwrap();
            let core = region.core();
            let victim = (0..core.ledger.segments().load(Relaxed) as u32)
                .find(|n| core.ledger.segment(*n).live_bytes().load(Relaxed) > 900_000)
                .unwrap();
            let (extents, _) = read_tables(core, victim).unwrap();
            let mut cleaner = core.cleaner.lock();
            assert!(core.appender.lock().begin_emptying(victim));
            for extent in extents {
                cleaner.move_extent(core, victim, extent).unwrap();
                let unpaid: u64 = (0..core.ledger.geometry().buffers)
                    .map(|number| core.ledger.buffer(number))
                    .filter(|buffer| buffer.state() != BufferState::Free)
                    .map(|buffer| {
                        crate::seal::frame_bytes(&buffer) - buffer.charged_bytes().load(Relaxed)
                    })
                    .sum();
                let reckoned = core.ledger.geometry().settle_bytes(budget);
                assert!(unpaid <= reckoned, "budget {budget}: {unpaid}, {reckoned} reckoned");
            }
        }
    }
}
