//! Cutting an epoch, writing the data that belong to it, and committing it.
//!
//! The cut is an instant: in barrier mode every lane is held while the bitmaps change roles; in
//! trap mode faults are held while every open page is protected again. Data that are dirty at the
//! cut belong to the closing epoch and are written as they were at the cut: by the drain, or by
//! writers that capture them before a change.

use std::sync::atomic::Ordering::*;

use crate::clean::Cleaner;
use crate::sweep::Sweep;
use perdura_dirty::policy::pace::{DRAIN_STEP_BYTES, DRAIN_STEP_TRAPPED_BYTES};
use perdura_dirty::policy::space::FirstLook;
use perdura_dirty::{Counters, LaneId, Ledger, RegionError, SegmentState};
use perdura_image::format::FRAME_COMMIT;
use perdura_image::slots::{SlotContents, write_slot};
use perdura_image::{Backed, Pump, Refusal, free_segment};

use perdura_dirty::planted::Planted;

impl Cleaner {
    /// Makes a checkpoint. The caller has made sure of space in the log for a drain.
    pub(crate) fn commit_checkpoint(
        &mut self,
        backed: &Backed,
        is_final: bool,
    ) -> Result<(), RegionError> {
        backed.memory.check()?;
        let began_ns = backed.memory.clock.now_ns();
        // Taken before the cut: the commit covers what was acknowledged until then, and a backup
        // tells its lag by it.
        let unix_ms = backed.memory.clock.unix_ms();
        let dirtied = self.write_closing_epoch(backed, 0)?;
        let freed = self.commit_slot(backed, is_final, unix_ms)?;
        self.groups_need_commit = false;
        let mut appender = backed.log.appender.lock();
        for segment in freed {
            free_segment(&backed.memory.ledger, segment);
            appender.leave(segment);
            appender.add_free(&backed.memory.ledger, segment);
        }
        backed.note_space(&appender);
        drop(appender);
        backed.log.dirtied_committed.store(dirtied, Relaxed);
        Counters::add(&backed.memory.stats.checkpoints, 1);
        Counters::add(
            &backed.memory.stats.checkpoint_ns,
            backed.memory.clock.now_ns().saturating_sub(began_ns),
        );
        backed.memory.stats.checkpoint_at_ns.store(backed.memory.clock.now_ns(), Relaxed);
        backed.memory.budget.notify();
        Ok(())
    }

    /// Makes the current state durable by a flagged frame, without a commit slot. The caller has
    /// made sure of space in the log for a drain.
    pub(crate) fn commit_frame(&mut self, backed: &Backed) -> Result<(), RegionError> {
        self.write_closing_epoch(backed, FRAME_COMMIT)?;
        Counters::add(&backed.memory.stats.group_commits, 1);
        Ok(())
    }

    /// Cuts an epoch and writes all that belongs to it. Returns the bytes that had become dirty
    /// before the cut.
    fn write_closing_epoch(&mut self, backed: &Backed, flags: u16) -> Result<u64, RegionError> {
        if backed.memory.ledger.closing().load(Acquire) != 0 {
            // An earlier checkpoint ran out of log space: what is left of its epoch is written
            // first.
            self.finish_closing_epoch(backed, 0)?;
        }
        self.shut_prepared(backed)?;
        let dirtied = cut(backed)?;
        self.finish_closing_epoch(backed, flags)?;
        Ok(dirtied)
    }

    /// Writes all data of the closing epoch that are not written yet, and ends that epoch.
    pub(crate) fn finish_closing_epoch(
        &mut self,
        backed: &Backed,
        flags: u16,
    ) -> Result<(), RegionError> {
        self.drain(backed)?;
        loop {
            let mut appender = backed.log.appender.lock();
            let closed = if flags == 0 {
                appender.close_frame(&backed.memory.ledger, 0);
                Ok(())
            } else {
                appender.close_frame_with(&backed.memory.ledger, flags)
            };
            drop(appender);
            match closed {
                Ok(()) => break,
                Err(Refusal::NoBuffer) => self.outlet.pump(backed, Pump::One).map(drop)?,
                Err(Refusal::NoSegment) => return Err(backed.log.full()),
            }
        }
        backed.memory.ledger.closing().store(0, Release);
        if backed.memory.planted.is(Planted::AcknowledgeBeforeCommit) && flags != 0 {
            self.outlet.pump(backed, Pump::Poll)?;
            return Ok(());
        }
        if flags == 0 || !self.outlet.write_single(backed)? {
            self.outlet.pump(backed, Pump::Durable)?;
        }
        Ok(())
    }

    /// Copies every grain that the closing epoch has not written yet.
    fn drain(&mut self, backed: &Backed) -> Result<(), RegionError> {
        let closing = backed.memory.parity() ^ 1;
        let mut from = 0;
        loop {
            let mut want_bytes = DRAIN_STEP_BYTES;
            if backed.tracked.pages().is_some() {
                self.serve_urgent(backed, closing)?;
                want_bytes = DRAIN_STEP_TRAPPED_BYTES;
            }
            let mut sweep = Sweep::new(backed, closing, want_bytes);
            let words = backed.memory.ledger.words_in_use();
            let refusal = sweep.run(from, words, |_, dirty| dirty);
            let (bytes, next) = (sweep.copied_bytes, sweep.next);
            drop(sweep);
            Counters::add(&backed.memory.stats.drained_bytes, bytes);
            self.outlet.in_flight_bytes += bytes;
            match refusal {
                None if next >= words => return Ok(()),
                None => self.outlet.pump(backed, Pump::Poll).map(drop)?,
                Some(Refusal::NoBuffer) => self.outlet.pump(backed, Pump::One).map(drop)?,
                Some(Refusal::NoSegment) => return Err(backed.log.full()),
            }
            from = next;
        }
    }

    /// Writes a commit slot. Returns the segments that no committed state needs any more.
    fn commit_slot(
        &mut self,
        backed: &Backed,
        is_final: bool,
        unix_ms: u64,
    ) -> Result<Vec<u32>, RegionError> {
        let ledger = &backed.memory.ledger;
        let current = backed.log.appender.lock().current_segment();
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
        // A backup that is reading them need not begin again with this commit.
        let spare = backed.log.appender.lock().spare_segments();
        if backed.log.is_held() && backed.space().first_look(spare) == FirstLook::Ample {
            freed.clear();
        }
        let last_seq = ledger.next_seq().load(Acquire) - 1;
        let slot = SlotContents { needed: &needed, last_seq, is_final, unix_ms };
        let skip_flush = backed.memory.planted.is(Planted::SkipFlush);
        let written =
            write_slot(ledger, &backed.log.layout, &*backed.log.device, &slot, skip_flush)
                .map_err(|error| backed.memory.latch(&error))?;
        Counters::add(&backed.memory.stats.device_bytes, written);
        Counters::add(&backed.memory.stats.device_flushes, 1);
        Ok(freed)
    }
}

/// Ends the current epoch. Returns the bytes that had become dirty before that; 0 in trap mode.
fn cut(backed: &Backed) -> Result<u64, RegionError> {
    let ledger = &backed.memory.ledger;
    assert_eq!(ledger.closing().load(Acquire), 0, "an epoch is still closing");
    let began_ns = backed.memory.clock.now_ns();
    let dirtied = match backed.tracked.pages() {
        None => {
            let lanes = &backed.tracked.lanes;
            let held: Vec<_> = (0..lanes.count()).map(|n| lanes.lock(LaneId(n)).lock()).collect();
            flip(ledger);
            let dirtied = backed.tracked.dirtied_bytes();
            drop(held);
            dirtied
        }
        Some(tracker) => {
            tracker.cut(|| flip(ledger))?;
            0
        }
    };
    let held_ns = backed.memory.clock.now_ns().saturating_sub(began_ns);
    backed.memory.stats.cut_ns_max.fetch_max(held_ns, Relaxed);
    Ok(dirtied)
}

fn flip(ledger: &Ledger) {
    // Every closing epoch was written whole, or redone, before the next cut.
    debug_assert!(
        ledger.bitmap(ledger.epoch().load(Relaxed) ^ 1)[..ledger.words_in_use()]
            .iter()
            .all(|word| word.load(Relaxed) == 0),
        "the epoch that closed before left dirty grains"
    );
    ledger.closing().store(1, Release);
    ledger.epoch().fetch_add(1, AcqRel);
}
