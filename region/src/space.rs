//! Space in the log: segments come free when a checkpoint commits without them; compaction empties
//! the sparse ones.

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
    /// Keeps enough spare segments for a whole drain, committing and compacting if need be; a step
    /// ahead of need each time it is called, so that writers need not wait for all of it at once.
    ///
    /// At every moment a drain of all that is dirty fits the spare segments (the budget is held to
    /// that, see [`Backed::note_space`]), so a commit can always be made, and a commit is what
    /// frees segments.
    pub fn ensure_space(&mut self, backed: &Backed) -> Result<(), RegionError> {
        let spare = backed.log.appender.lock().spare_segments();
        let look = backed.space().first_look(spare);
        if look == FirstLook::Ample {
            return Ok(());
        }
        // The final flush waits for the cleaner, on the warning's time, and needs none of this.
        backed.memory.check_open()?;
        if backed.memory.planted.is(Planted::FreeBeforeCommit) {
            free_dead_now(backed);
            return Ok(());
        }
        if look == FirstLook::Needed {
            return self.make_space(backed);
        }
        // What is moved is loaded first; that can wait.
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
        // Each compaction should free about a segment; a log too small for its budget would never
        // see the end.
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

    /// Empties a segment.
    fn compact(&mut self, backed: &Backed, victim: u32) -> Result<(), RegionError> {
        if !backed.log.appender.lock().begin_emptying(victim) {
            // A writer who captured has begun a frame there.
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

    /// Nobody has paid for the time to write moved grains again, should this process be killed:
    /// only so many frames may be on their way. An extent may come from a frame of another budget,
    /// and be as long as many of today's.
    pub fn limit_frames(&mut self, backed: &Backed) -> Result<(), RegionError> {
        while buffers_in_use(backed) > COMPACTION_FRAMES {
            let before = buffers_in_use(backed);
            self.outlet.pump(backed, Pump::One)?;
            if buffers_in_use(backed) == before {
                // A later frame was written first; or the rest is what writers have captured and
                // not closed.
                self.outlet.pump(backed, Pump::Durable)?;
                break;
            }
        }
        Ok(())
    }
}
