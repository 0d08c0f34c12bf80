//! What the cleaner is asked for: room for a writer, a round of the region's thread, a checkpoint.
//! Each makes space in the log first, if that is short.

use std::sync::atomic::Ordering::*;

use perdura_dirty::RegionError;
use perdura_dirty::policy::pace;
use perdura_image::{Backed, Pump};

use crate::clean::Cleaner;
use crate::demand::asked_bytes;

impl Cleaner {
    /// Frees at least `bytes` of budget or one frame buffer if that can be done. Returns the bytes
    /// freed.
    pub fn make_room(&mut self, backed: &Backed, bytes: u64) -> Result<u64, RegionError> {
        let freed = self.outlet.pump(backed, Pump::Poll)?;
        if freed >= bytes.max(1) {
            return Ok(freed);
        }
        if bytes > 0 {
            let limit = backed.memory.budget.effective_limit(&backed.memory.ledger);
            self.clean(backed, pace::demanded(bytes, limit))?;
        }
        Ok(freed + self.outlet.pump(backed, Pump::Durable)?)
    }

    /// Copies victims worth about `want_bytes` into frames and submits them. Returns the bytes
    /// copied.
    pub fn clean(&mut self, backed: &Backed, want_bytes: u64) -> Result<u64, RegionError> {
        self.ensure_space(backed)?;
        let mut round = self.begin_round(backed, want_bytes);
        while self.run_round(backed, &mut round)? {
            self.ensure_space(backed)?;
            if backed.log.appender.lock().spare_segments() == 0 {
                return Err(backed.log.full());
            }
        }
        self.end_round(backed)?;
        Ok(round.copied_bytes)
    }

    /// Makes the state of this moment durable and lets go of segments only older states needed.
    pub fn checkpoint(&mut self, backed: &Backed, is_final: bool) -> Result<(), RegionError> {
        self.ensure_space(backed)?;
        self.commit_checkpoint(backed, is_final)
    }

    /// Makes the state of this moment durable by a flagged frame only: `durability = "fsync"`.
    pub fn group_commit(&mut self, backed: &Backed) -> Result<(), RegionError> {
        backed.memory.check()?;
        self.ensure_space(backed)?;
        match self.groups_need_commit {
            true => self.commit_checkpoint(backed, false),
            false => self.commit_frame(backed),
        }
    }

    /// Makes what faults wait for, if any do.
    fn serve_faults(&mut self, backed: &Backed) -> Result<(), RegionError> {
        match asked_bytes(backed) {
            Some(bytes) => self.make_room(backed, bytes).map(drop),
            None => Ok(()),
        }
    }

    /// One round of the region's thread: the paper's proactive rule. `is_epoch`: an epoch has
    /// passed since the last one that was; rounds in between are those that writers have called
    /// for. Returns whether another round should follow at once.
    pub fn tick(&mut self, backed: &Backed, is_epoch: bool) -> Result<bool, RegionError> {
        let pages = backed.tracked.pages();
        if pages.is_some() {
            self.serve_faults(backed)?;
        }
        if is_epoch {
            match pages {
                None => backed.memory.hints.advance(),
                Some(tracker) => tracker.sample(),
            }
            self.outlet.pace.epoch(backed.tracked.net_dirtied_bytes());
        }
        // The device works on the last round's frames while the next are copied.
        self.outlet.pump(backed, Pump::Poll)?;
        let threshold = self.threshold(backed);
        let least = pace::round_bytes_min(threshold);
        if self.outlet.written_bytes() >= least.max(1) {
            self.outlet.flush_written(backed)?;
        }
        let used = backed.memory.ledger.budget_used().load(Relaxed);
        let excess = pace::excess(used, self.outlet.in_flight_bytes, threshold);
        if excess > 0 && self.clean(backed, excess.max(least))? > 0 {
            return Ok(true);
        }
        if self.outlet.is_busy() {
            self.outlet.pump(backed, Pump::Durable)?;
        }
        Ok(false)
    }

    /// More than this in use is cleaned (Viyojit, section 5.3), in time for what comes meanwhile.
    pub fn threshold(&self, backed: &Backed) -> u64 {
        self.outlet.pace.threshold(backed.memory.budget.effective_limit(&backed.memory.ledger))
    }

    /// Cleans a part of what a checkpoint is about to write anyway. After its cut every write costs
    /// budget anew, and nothing is given back until the first of its frames are durable: without a
    /// margin all writers would wait then.
    pub fn make_margin(&mut self, backed: &Backed) -> Result<(), RegionError> {
        let limit = backed.memory.budget.effective_limit(&backed.memory.ledger);
        let used = backed.memory.ledger.budget_used().load(Relaxed);
        let excess = pace::checkpoint_excess(used, limit);
        if excess > 0 {
            self.clean(backed, excess)?;
            self.outlet.pump(backed, Pump::Durable)?;
        }
        Ok(())
    }
}
