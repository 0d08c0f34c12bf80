//! What the cleaner does for faults that wait (trap mode): room, captures, open pages; and the
//! waits in which it must go on doing so.

use std::sync::atomic::Ordering::*;
use std::time::Duration;

use crate::append::Refusal;
use crate::clean::{Cleaner, Pump};
use crate::core::Core;
use crate::tracking::PageTracker;
use perdura_dirty::error::RegionError;
use perdura_dirty::geometry::WORD_GRAINS;
use perdura_dirty::stats::Counters;

/// How often a cut that waits for prepared writes looks after faults.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

impl Cleaner {
    /// Makes what faults wait for, if any do.
    pub fn serve_faults(&mut self, core: &Core) -> Result<(), RegionError> {
        let Some(tracker) = core.tracking.pages() else { return Ok(()) };
        tracker.relieve(core);
        let room = core.ledger.geometry().grain_bytes();
        let limit = core.budget.effective_limit(&core.ledger);
        let is_full = core.ledger.budget_used().load(Acquire) + room > limit;
        if tracker.take_room_asked() && is_full {
            self.make_room(core, room)?;
        }
        Ok(())
    }

    /// As [`Cleaner::serve_faults`], in the middle of a checkpoint or a compaction.
    pub fn serve_faults_nested(&mut self, core: &Core) -> Result<(), RegionError> {
        let before = std::mem::replace(&mut self.nested, true);
        let outcome = self.serve_faults(core);
        self.nested = before;
        outcome
    }

    /// Captures the owed pages that faults wait for, before the drain comes to them.
    pub fn serve_urgent(&mut self, core: &Core, closing: u64) -> Result<(), RegionError> {
        let Some(tracker) = core.tracking.pages() else { return Ok(()) };
        let mut wanted = [0u64; 32];
        let mut count = 0;
        tracker.take_urgent(|page| {
            wanted[count] = page;
            count += 1;
        });
        for page in &wanted[..count] {
            let (word, bit) = ((page / WORD_GRAINS) as usize, 1 << (page % WORD_GRAINS));
            loop {
                match capture(core, tracker, closing, word, bit) {
                    None => break,
                    Some(Refusal::NoBuffer) => self.pump(core, Pump::One).map(drop)?,
                    Some(Refusal::NoSegment) => return Err(core.log_full()),
                }
            }
        }
        Ok(())
    }

    /// Lets no prepared write begin and waits for those that have; faults are served meanwhile, for
    /// one of them may be what a prepared write waits for.
    pub fn shut_prepared(&mut self, core: &Core) -> Result<(), RegionError> {
        let Some(tracker) = core.tracking.pages() else { return Ok(()) };
        tracker.prepared.begin_shut();
        while !tracker.prepared.is_empty_within(&*core.clock, LOOK_AGAIN) {
            if let Err(error) = self.serve_faults_nested(core) {
                tracker.prepared.reopen();
                tracker.door.notify();
                return Err(error);
            }
        }
        Ok(())
    }
}

fn capture(
    core: &Core,
    tracker: &PageTracker,
    closing: u64,
    word: usize,
    bit: u64,
) -> Option<Refusal> {
    let owed = core.ledger.bitmap(closing)[word].load(Acquire) & bit;
    if owed == 0 {
        return None;
    }
    let closed = tracker.close(core, word, owed);
    assert_eq!(closed, owed, "an owed page is locked");
    let (done, refusal) = core.append_bits(&mut core.appender.lock(), closing, word, owed);
    tracker.release(core, word, owed, 0);
    let bytes = u64::from(done.count_ones()) << core.ledger.geometry().grain_shift;
    Counters::add(&core.stats.captured_bytes, bytes);
    refusal
}
