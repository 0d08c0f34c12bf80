//! Cutting an epoch, writing all it owes, and committing it.
//!
//! The cut is an instant: every lane is held while the bitmaps change roles (barrier), or every
//! open page is protected again while faults are held (trap). What was dirty then belongs to the
//! closing epoch and is written as it was then: by the drain, or by writers that capture it before
//! they change it.

use std::sync::atomic::Ordering::*;

use crate::append::free_segment;
use crate::clean::{Cleaner, Pump};
use crate::core::Core;
use crate::format::FRAME_COMMIT;
use crate::image::{SlotContents, write_slot};
use crate::tracking::Tracking;
use perdura_dirty::error::RegionError;
use perdura_dirty::ledger::SegmentState;
use perdura_dirty::planted::Planted;
use perdura_dirty::stats::Counters;

impl Cleaner {
    /// Makes the state of this moment durable and lets go of segments only older states needed.
    pub fn checkpoint(&mut self, core: &Core, is_final: bool) -> Result<(), RegionError> {
        self.ensure_space(core)?;
        self.commit_checkpoint(core, is_final)
    }

    /// The checkpoint itself; the caller has made sure of space for a drain.
    pub(crate) fn commit_checkpoint(
        &mut self,
        core: &Core,
        is_final: bool,
    ) -> Result<(), RegionError> {
        core.check()?;
        let began_ns = core.clock.now_ns();
        let dirtied = self.write_closing_epoch(core, 0)?;
        let freed = self.commit_slot(core, is_final)?;
        core.groups_need_commit.store(false, Relaxed);
        let mut appender = core.appender.lock();
        for segment in freed {
            free_segment(&core.ledger, segment);
            appender.leave(segment);
            appender.add_free(&core.ledger, segment);
        }
        core.note_space(&appender);
        drop(appender);
        self.dirtied_committed = dirtied;
        Counters::add(&core.stats.checkpoints, 1);
        Counters::add(&core.stats.checkpoint_ns, core.clock.now_ns().saturating_sub(began_ns));
        core.budget.notify();
        Ok(())
    }

    /// Makes the state of this moment durable by a flagged frame only: `durability = "fsync"`.
    pub fn group_commit(&mut self, core: &Core) -> Result<(), RegionError> {
        core.check()?;
        self.ensure_space(core)?;
        if core.groups_need_commit.load(Relaxed) {
            return self.commit_checkpoint(core, false);
        }
        self.write_closing_epoch(core, FRAME_COMMIT)?;
        Counters::add(&core.stats.group_commits, 1);
        Ok(())
    }

    /// Returns [`Core::dirtied_bytes`] at the cut.
    fn write_closing_epoch(&mut self, core: &Core, flags: u16) -> Result<u64, RegionError> {
        if core.ledger.closing().load(Acquire) != 0 {
            // An earlier checkpoint ran out of log space: what it still owes comes first.
            self.finish_closing_epoch(core, 0)?;
        }
        self.shut_prepared(core)?;
        let dirtied = cut(core)?;
        self.finish_closing_epoch(core, flags)?;
        Ok(dirtied)
    }

    /// Writes all that the closing epoch still owes.
    pub(crate) fn finish_closing_epoch(
        &mut self,
        core: &Core,
        flags: u16,
    ) -> Result<(), RegionError> {
        self.drain(core)?;
        loop {
            let mut appender = core.appender.lock();
            let closed = if flags == 0 {
                appender.close_frame(&core.ledger, 0);
                Ok(())
            } else {
                appender.close_frame_with(&core.ledger, flags)
            };
            drop(appender);
            match closed {
                Ok(()) => break,
                Err(crate::append::Refusal::NoBuffer) => self.pump(core, Pump::One).map(drop)?,
                Err(crate::append::Refusal::NoSegment) => return Err(core.log_full()),
            }
        }
        core.ledger.closing().store(0, Release);
        if core.planted.is(Planted::AcknowledgeBeforeCommit) && flags != 0 {
            self.pump(core, Pump::Poll)?;
            return Ok(());
        }
        if flags == 0 || !self.write_single(core)? {
            self.pump(core, Pump::Durable)?;
        }
        Ok(())
    }

    /// Writes the commit slot. Returns the segments that no committed state needs any more.
    fn commit_slot(&mut self, core: &Core, is_final: bool) -> Result<Vec<u32>, RegionError> {
        let ledger = &core.ledger;
        let current = core.appender.lock().current_segment();
        let segments = ledger.segments().load(Relaxed) as u32;
        let (mut needed, mut freed) = (vec![false; segments as usize], Vec::new());
        for segment in 0..segments {
            let entry = ledger.segment(segment);
            if entry.state() != SegmentState::Used {
                continue;
            }
            if entry.live_bytes().load(Acquire) > 0 {
                needed[segment as usize] = true;
            } else if current != Some(segment) {
                freed.push(segment);
            }
        }
        let last_seq = ledger.next_seq().load(Acquire) - 1;
        let slot =
            SlotContents { needed: &needed, last_seq, is_final, unix_ms: core.clock.unix_ms() };
        let skip_flush = core.planted.is(Planted::SkipFlush);
        let written = write_slot(ledger, &core.layout, &*core.device, &slot, skip_flush)
            .map_err(|error| core.latch(&error))?;
        Counters::add(&core.stats.device_bytes, written);
        Counters::add(&core.stats.device_flushes, 1);
        Ok(freed)
    }
}

/// The instant between two epochs. Returns the bytes dirtied before it; exact in barrier mode.
fn cut(core: &Core) -> Result<u64, RegionError> {
    let ledger = &core.ledger;
    assert_eq!(ledger.closing().load(Acquire), 0, "an epoch is still closing");
    let began_ns = core.clock.now_ns();
    let dirtied = match &core.tracking {
        Tracking::Barrier => {
            let held: Vec<_> =
                (0..core.lanes.count()).map(|n| core.lanes.lock(crate::LaneId(n)).lock()).collect();
            flip(core);
            let dirtied = core.dirtied_bytes();
            drop(held);
            dirtied
        }
        Tracking::Pages(tracker) => {
            tracker.cut(core, || flip(core))?;
            0
        }
    };
    let held_ns = core.clock.now_ns().saturating_sub(began_ns);
    core.stats.cut_ns_max.fetch_max(held_ns, Relaxed);
    Ok(dirtied)
}

fn flip(core: &Core) {
    core.ledger.closing().store(1, Release);
    core.ledger.epoch().fetch_add(1, AcqRel);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_media::{SimClock, SimDevice};

    use crate::Config;
    use crate::LaneId;
    use crate::Region;
    use crate::testing::write;
    use perdura_dirty::geometry::BLOCK_BYTES;
    use perdura_dirty::planted::Planted;

    #[test]
    fn an_idle_region_is_committed_though_a_lane_keeps_credit() {
        let config = Config {
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            ..Config::new(64 * BLOCK_BYTES, 32 * BLOCK_BYTES)
        };
        let device = Arc::new(SimDevice::new(0, 1));
        let region = Region::open(device, Arc::new(SimClock::new(1_000)), config).unwrap();
        let is_committed = || region.core().cleaner.lock().is_committed(region.core());
        for value in 1..4 {
            region.lock(LaneId(0)).store(4096, value).unwrap();
            assert!(!is_committed());
            region.checkpoint().unwrap();
            assert!(region.used_bytes() > 0, "no credit was kept: this test shows nothing");
            assert!(is_committed());
        }
        region.lock(LaneId(0)).store(8192, 1).unwrap();
        region.commit_group().unwrap();
        assert!(!is_committed(), "a group commit frees no segments; a checkpoint must follow");
    }

    #[test]
    fn a_group_commit_makes_durable_what_was_cleaned_before_it_too() {
        let lost = |planted| {
            let is_lost = |seed: &u64| {
                let config = || Config {
                    lanes: Some(1),
                    thread: false,
                    checkpoint_every: None,
                    planted,
                    ..Config::new(64 * BLOCK_BYTES, 32 * BLOCK_BYTES)
                };
                let device = SimDevice::new(0, *seed);
                let clock = || Arc::new(SimClock::new(1_000));
                let region = Region::open(Arc::new(device.clone()), clock(), config()).unwrap();
                write(&region, BLOCK_BYTES, &[1; 20_000]);
                // Its frame is on its way, or written; it is not flushed.
                region.core().cleaner.lock().clean(region.core(), BLOCK_BYTES).unwrap();
                assert!(device.unflushed_bytes() > 0);
                write(&region, 2 * BLOCK_BYTES, &[2; 100]);
                region.commit_group().unwrap();
                let after_the_cut = device.power_cycle(*seed);
                let region = Region::open(Arc::new(after_the_cut), clock(), config()).unwrap();
                let lane = region.lock(LaneId(0));
                lane.bytes(BLOCK_BYTES, 20_000) != [1; 20_000]
                    || lane.bytes(2 * BLOCK_BYTES, 100) != [2; 100]
            };
            (0..20).filter(is_lost).count()
        };
        assert_eq!(lost(Planted::None), 0);
        assert!(lost(Planted::SingleAlways) > 0);
    }
}
