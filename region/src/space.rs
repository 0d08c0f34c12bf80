//! Space in the log: a checkpoint frees the segments that it does not name, and compaction empties
//! sparse ones before it.

use std::sync::atomic::Ordering::*;

use perdura_dirty::RegionError;
use perdura_dirty::geometry::COMPACTION_FRAMES;
use perdura_dirty::planted::Planted;
use perdura_dirty::policy::space::{Ahead, FRUITLESS_MAX, FirstLook};
use perdura_image::{
    Backed, Compaction, Pump, Step, buffers_in_use, free_dead_now, is_being_written, survey,
};

use crate::clean::Cleaner;

impl Cleaner {
    /// Keeps enough spare segments for a whole drain, by commits and compaction. Each call does a
    /// step before it is needed, so that writers need not wait for all steps at once.
    ///
    /// A drain of all dirty data always fits the spare segments, because [`Backed::note_space`]
    /// limits the budget to that. So a commit is always possible, and commits free segments.
    pub(crate) fn ensure_space(&mut self, backed: &Backed) -> Result<(), RegionError> {
        let spare = backed.log.appender.lock().spare_segments();
        let look = backed.space().first_look(spare);
        if look == FirstLook::Ample {
            return Ok(());
        }
        // The final flush waits for the cleaner while the warning runs, and needs no space that is
        // made here.
        backed.memory.check_open()?;
        if backed.memory.planted.is(Planted::FreeBeforeCommit) {
            free_dead_now(backed);
            return Ok(());
        }
        if look == FirstLook::Needed {
            return self.make_space(backed);
        }
        // Compaction would have to load the data that it moves, so it waits until all is loaded.
        let may_move = backed.loads.left().is_none();
        match backed.space().ahead(spare, &survey(backed), may_move) {
            Ahead::Nothing => Ok(()),
            Ahead::Commit => self.commit_checkpoint(backed, false),
            Ahead::Empty(victims) => {
                victims.into_iter().flatten().try_for_each(|victim| self.compact(backed, victim))
            }
        }
    }

    fn make_space(&mut self, backed: &Backed) -> Result<(), RegionError> {
        let ledger = &backed.memory.ledger;
        // Each compaction should free about a segment. Without this bound, a log too small for its
        // budget would be compacted for ever.
        let mut compactions_left = ledger.segments().load(Relaxed);
        let mut fruitless = 0;
        while fruitless < FRUITLESS_MAX {
            let spare = backed.log.appender.lock().spare_segments();
            if !backed.space().is_short(spare) {
                return Ok(());
            }
            backed.memory.check_open()?;
            let used_bytes = ledger.budget_used().load(Relaxed);
            if let Some(victim) = backed.space().needed(spare, &survey(backed), used_bytes)
                && compactions_left > 0
            {
                self.compact(backed, victim)?;
                compactions_left -= 1;
                continue;
            }
            self.commit_checkpoint(backed, false)?;
            let gained = backed.log.appender.lock().spare_segments() > spare;
            fruitless = if gained { 0 } else { fruitless + 1 };
        }
        Ok(())
    }

    /// Moves the live grains of a segment to other segments.
    pub(crate) fn compact(&mut self, backed: &Backed, victim: u32) -> Result<(), RegionError> {
        if !backed.log.appender.lock().begin_emptying(victim) {
            // A writer has begun a frame there for a capture.
            return Ok(());
        }
        if is_being_written(backed, victim) {
            self.outlet.pump(backed, Pump::Durable)?;
        }
        let mut compaction = Compaction::begin(backed, victim);
        loop {
            match compaction.step()? {
                Step::Emptied => return Ok(()),
                Step::Passed => {}
                Step::Moved => self.limit_frames(backed)?,
                Step::Blocked => {
                    self.outlet.pump(backed, Pump::One)?;
                    self.serve_faults_in_place(backed)?;
                }
            }
        }
    }

    /// Limits the frames of moved grains that are on their way: the time to write them again after
    /// a kill is not in the budget, which allows for so many frames only. An extent may come from a
    /// frame for another budget, and be as long as many of today's.
    pub(crate) fn limit_frames(&mut self, backed: &Backed) -> Result<(), RegionError> {
        while buffers_in_use(backed) > COMPACTION_FRAMES {
            let before = buffers_in_use(backed);
            self.outlet.pump(backed, Pump::One)?;
            if buffers_in_use(backed) == before {
                // A later frame was written first, or the other frames belong to captures and are
                // not closed.
                self.outlet.pump(backed, Pump::Durable)?;
                break;
            }
        }
        Ok(())
    }
}
