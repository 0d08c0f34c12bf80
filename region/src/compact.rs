//! Space: segments come free when a checkpoint commits without them; compaction empties the sparse ones.
//!
//! Compaction copies live grains from memory. Only the victim's extent tables are read back, to know which
//! grains to look at; if they cannot be read, the `home` array tells, more slowly.

use std::sync::atomic::Ordering::*;

use crate::append::Refusal;
use crate::clean::{Cleaner, Pump};
use crate::core::Core;
use crate::error::RegionError;
use crate::format::Extent;
use crate::geometry::WORD_GRAINS;
use crate::ledger::SEGMENT_USED;
use crate::recover::read_tables;
use crate::stats::Counters;
use crate::tracking::Tracking;

impl Cleaner {
    /// Keeps enough spare segments for a whole drain, compacting and committing if need be.
    pub fn ensure_space(&mut self, core: &Core) -> Result<(), RegionError> {
        loop {
            let (low, drain, spare) = {
                let appender = core.appender.lock();
                let frames_in_flight = core.ledger.geometry().buffers;
                let drain = appender.reserve_segments;
                (drain + drain / 2 + frames_in_flight.min(8), drain, appender.spare_segments())
            };
            if spare >= low {
                return Ok(());
            }
            let dead = count_dead(core);
            // A commit first writes all that is dirty, and writers may dirty as much again meanwhile. It is
            // worth it once it frees that and what is missing, or when compacting on would leave no place
            // for it.
            let dirty_bytes = core.ledger.budget_used().load(Acquire);
            let gain = low - spare + core.ledger.geometry().reserve_segments(dirty_bytes);
            if dead < gain && spare > drain + 2 && self.compact_one(core)? {
                continue;
            }
            let dead = count_dead(core);
            if dead == 0 && !self.compact_one(core)? {
                return Ok(());
            }
            self.checkpoint(core, false)?;
            let now = core.appender.lock().spare_segments();
            if now <= spare && count_dead(core) == 0 {
                return Ok(());
            }
        }
    }

    /// Empties the segment with the fewest live bytes. False: none is worth it.
    fn compact_one(&mut self, core: &Core) -> Result<bool, RegionError> {
        // Frames still on their way could not be read back.
        core.appender.lock().close_frame(&core.ledger, 0);
        self.pump(core, Pump::Durable)?;
        let Some(victim) = sparsest(core) else { return Ok(false) };
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
        for extent in candidates {
            self.move_extent(core, victim, extent)?;
        }
        core.appender.lock().close_frame(&core.ledger, 0);
        // The victim's copies are needed until the new ones are durable and committed.
        self.pump(core, Pump::Durable)?;
        let left = core.ledger.segment(victim).live_bytes().load(Acquire);
        assert_eq!(left, 0, "segment {victim} kept {left} live bytes after compaction");
        Ok(true)
    }

    fn move_extent(&mut self, core: &Core, victim: u32, extent: Extent) -> Result<(), RegionError> {
        let (mut grain, end) = (extent.grain, extent.grain + extent.len);
        while grain < end {
            let word = (grain / WORD_GRAINS) as usize;
            let stop = end.min((word as u64 + 1) * WORD_GRAINS);
            while !self.move_word(core, victim, word, grain, stop)? {
                self.pump(core, Pump::One)?;
                self.serve_faults_nested(core)?;
            }
            grain = stop;
        }
        Ok(())
    }

    /// Moves what lives in `victim` of grains `from..to` of one word. False: no buffer, or a page is locked;
    /// try again.
    fn move_word(
        &mut self,
        core: &Core,
        victim: u32,
        word: usize,
        from: u64,
        to: u64,
    ) -> Result<bool, RegionError> {
        let homes = core.ledger.homes();
        let lives_there = || {
            (from..to)
                .filter(|grain| homes[*grain as usize].load(Relaxed) == victim + 1)
                .fold(0u64, |bits, grain| bits | 1 << (grain % WORD_GRAINS))
        };
        if lives_there() == 0 {
            return Ok(true);
        }
        let parity = core.parity();
        let shift = core.ledger.geometry().grain_shift;
        let offset = word as u64 * core.ledger.geometry().word_bytes();
        let _lane = matches!(core.tracking, Tracking::Barrier)
            .then(|| core.lanes.lock(core.lanes.of(offset)).lock());
        let bits = lives_there();
        if let Tracking::Pages(tracker) = &core.tracking
            && tracker.close_all(core, word, bits).is_none()
        {
            return Ok(false);
        }
        // A dirty grain met here is cleaned: its bytes stay charged until they are durable.
        let dirty = core.ledger.bitmap(parity)[word].load(Acquire) & bits;
        let mut appender = core.appender.lock();
        let (_, mut refusal) = core.append_bits(&mut appender, parity, word, dirty);
        for mut run in crate::append::runs(word, bits & !dirty) {
            while run.len > 0 && refusal.is_none() {
                match appender.append(&core.ledger, &core.map, run, false) {
                    Ok(len) => {
                        Counters::add(&core.stats.compacted_bytes, len << shift);
                        run = Extent { grain: run.grain + len, len: run.len - len };
                    }
                    Err(why) => refusal = Some(why),
                }
            }
        }
        drop(appender);
        if let Tracking::Pages(tracker) = &core.tracking {
            let still_dirty = core.ledger.bitmap(parity)[word].load(Acquire) & bits;
            tracker.release(core, word, bits, still_dirty);
        }
        match refusal {
            None => Ok(true),
            Some(Refusal::NoBuffer) => Ok(false),
            Some(Refusal::NoSegment) => Err(core.log_full()),
        }
    }
}

fn count_dead(core: &Core) -> u32 {
    let current = core.appender.lock().current_segment();
    let segments = core.ledger.segments().load(Relaxed) as u32;
    (0..segments)
        .filter(|&segment| {
            let entry = core.ledger.segment(segment);
            entry.state().load(Relaxed) == SEGMENT_USED
                && entry.live_bytes().load(Relaxed) == 0
                && current != Some(segment)
        })
        .count() as u32
}

/// The used segment with the fewest live bytes, if moving them gains at least an eighth of a segment.
fn sparsest(core: &Core) -> Option<u32> {
    let current = core.appender.lock().current_segment();
    let segments = core.ledger.segments().load(Relaxed) as u32;
    let segment_bytes = core.ledger.geometry().segment_bytes;
    (0..segments)
        .filter(|segment| current != Some(*segment))
        .filter(|&segment| core.ledger.segment(segment).state().load(Relaxed) == SEGMENT_USED)
        .map(|segment| (core.ledger.segment(segment).live_bytes().load(Relaxed), segment))
        .filter(|(live, _)| *live > 0 && *live <= segment_bytes / 8 * 7)
        .min()
        .map(|(_, segment)| segment)
}
