//! Space in the log: a checkpoint frees the segments that it does not name, and compaction empties
//! sparse ones before it.

use std::ops::Range;
use std::sync::atomic::Ordering::*;

use perdura_dirty::RegionError;
use perdura_dirty::geometry::COMPACTION_FRAMES;
use perdura_dirty::planted::Planted;
use perdura_dirty::policy::space::{Ahead, FRUITLESS_MAX, FirstLook, Space, VICTIMS_AHEAD};
use perdura_image::{
    Backed, Compaction, Pump, Step, buffers_in_use, free_dead_now, is_being_written, survey,
};

use crate::clean::Cleaner;

/// The space that is gained for a larger budget, step by step, before the budget is raised. The
/// steps end when there is enough, or when several commits in a row have brought no more free space
/// than there was after an earlier one.
pub(crate) struct Raising {
    budget_bytes: u64,
    /// Each step that compacts takes one.
    compactions: Range<u64>,
    /// The most free segments that there were after a commit.
    free_most: u32,
    fruitless: u32,
    is_larger: bool,
}

impl Raising {
    /// Begins to gain space for a budget; there are no steps if it is no larger than the one in
    /// force.
    pub(crate) fn to(backed: &Backed, budget_bytes: u64) -> Self {
        let is_larger = budget_bytes > backed.space().budget_bytes;
        Self {
            budget_bytes,
            // Each compaction should free about a segment, as in `make_space`.
            compactions: 0..backed.memory.ledger.segments().load(Relaxed),
            free_most: 0,
            fruitless: if is_larger { 0 } else { FRUITLESS_MAX },
            is_larger,
        }
    }

    /// Whether the log is to have space for a larger budget than before.
    pub(crate) fn is_larger(&self) -> bool {
        self.is_larger
    }

    /// Free segments that are wanted before the budget is raised.
    fn free_wanted(&self, backed: &Backed) -> u32 {
        let before = backed.space();
        let reserve_segments = backed.memory.ledger.geometry().reserve_segments(self.budget_bytes);
        // Until all is loaded, compaction loads what it moves, and a restart should answer soon. So
        // it gains the larger reserve, with the space of the budget in force beside it.
        let budget_bytes = match backed.loads.left() {
            None => self.budget_bytes,
            Some(_) => before.budget_bytes,
        };
        Space { reserve_segments, budget_bytes, ..before }.free_wanted()
    }

    /// Notes what a commit has come to. Writers take free segments between two steps, so what a
    /// commit frees does not count where they have taken as much: they could go on for ever.
    fn committed(&mut self, free: u32) {
        self.fruitless = if free > self.free_most { 0 } else { self.fruitless + 1 };
        self.free_most = self.free_most.max(free);
    }
}

impl Cleaner {
    /// Gains some of the space for a larger budget. Returns whether another step should follow; the
    /// cleaner may be released in between.
    ///
    /// At first the reserve is still that of the budget in force. With the larger one there might
    /// be no spare segment to which live data could be moved.
    pub(crate) fn gain_space(
        &mut self,
        backed: &Backed,
        raising: &mut Raising,
    ) -> Result<bool, RegionError> {
        let free = || backed.log.appender.lock().free_segments.len() as u32;
        let wanted = raising.free_wanted(backed);
        if free() >= wanted || raising.fruitless >= FRUITLESS_MAX {
            return Ok(false);
        }
        for _ in 0..VICTIMS_AHEAD {
            backed.memory.check_open()?;
            let spare = backed.log.appender.lock().spare_segments();
            match backed.space().to_gain(spare, wanted, &survey(backed)) {
                Some(victim) if raising.compactions.next().is_some() => {
                    self.compact(backed, victim)?;
                }
                _ => {
                    self.commit_checkpoint(backed, false)?;
                    raising.committed(free());
                    break;
                }
            }
        }
        Ok(true)
    }

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
        if gives_up_budget(backed, spare) {
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
        let mut compactions = 0..ledger.segments().load(Relaxed);
        let mut fruitless = 0;
        while fruitless < FRUITLESS_MAX {
            let spare = backed.log.appender.lock().spare_segments();
            if !backed.space().is_short(spare) {
                return Ok(());
            }
            backed.memory.check_open()?;
            let used_bytes = ledger.budget_used().load(Relaxed);
            if let Some(victim) = backed.space().needed(spare, &survey(backed), used_bytes)
                && compactions.next().is_some()
            {
                self.compact(backed, victim)?;
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
        let mut compaction = Compaction::begin(backed, victim, &mut self.tables);
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

/// Whether a smaller budget is being reached, and the spare segments are enough for all that is
/// dirty. Others may wait for what the region gives up, and making space could take as long again:
/// a commit writes all dirty data.
pub(crate) fn gives_up_budget(backed: &Backed, spare: u32) -> bool {
    let ledger = &backed.memory.ledger;
    backed.memory.budget.is_shrinking(ledger)
        && backed.space().limit_bytes(spare) >= ledger.budget_used().load(Relaxed)
}
