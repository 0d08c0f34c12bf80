//! The cleaner's services: room for a writer, a round of the region's thread, a checkpoint. Each
//! first makes space in the log if that is short.

use std::sync::atomic::Ordering::*;

use perdura_dirty::RegionError;
use perdura_dirty::policy::pace;
use perdura_image::{Backed, Pump};

use crate::clean::Cleaner;
use crate::demand::asked_bytes;

impl Cleaner {
    /// Frees at least `bytes` of budget, or one frame buffer if `bytes` is 0, as far as that is
    /// possible. Returns the bytes freed.
    pub(crate) fn make_room(&mut self, backed: &Backed, bytes: u64) -> Result<u64, RegionError> {
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

    /// Copies victims of about `want_bytes` into frames and submits the frames. Returns the bytes
    /// copied.
    pub(crate) fn clean(&mut self, backed: &Backed, want_bytes: u64) -> Result<u64, RegionError> {
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

    /// Makes the current state durable, and frees segments that only older states needed.
    pub(crate) fn checkpoint(
        &mut self,
        backed: &Backed,
        is_final: bool,
    ) -> Result<(), RegionError> {
        self.ensure_space(backed)?;
        self.commit_checkpoint(backed, is_final)
    }

    /// Makes the current state durable by a flagged frame: the group commit of `durability =
    /// "fsync"`.
    pub(crate) fn group_commit(&mut self, backed: &Backed) -> Result<(), RegionError> {
        backed.memory.check()?;
        backed.memory.ledger.group_commits().fetch_add(1, Relaxed);
        self.ensure_space(backed)?;
        match self.groups_need_commit {
            true => self.commit_checkpoint(backed, false),
            false => self.commit_frame(backed),
        }
    }

    /// Frees budget if faults wait for it.
    fn serve_faults(&mut self, backed: &Backed) -> Result<(), RegionError> {
        match asked_bytes(backed) {
            Some(bytes) => self.make_room(backed, bytes).map(drop),
            None => Ok(()),
        }
    }

    /// One round of the region's thread: the proactive rule of Viyojit. `is_epoch` says that the
    /// time of [`Config::epoch`](crate::Config::epoch) has passed; other rounds are those that
    /// writers call for. Returns whether another round should follow at once.
    pub(crate) fn tick(&mut self, backed: &Backed, is_epoch: bool) -> Result<bool, RegionError> {
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
        // Submitted first, so that the device writes these frames while the next ones are copied.
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

    /// Bytes in use above which the thread cleans (Viyojit, section 5.3).
    pub(crate) fn threshold(&self, backed: &Backed) -> u64 {
        let limit = backed.memory.budget.effective_limit(&backed.memory.ledger);
        self.outlet.pace.threshold(limit, backed.memory.region_bytes())
    }

    /// Cleans a part of the data that the next checkpoint would write anyway. After its cut every
    /// write takes budget again, and none is given back until the first frames are durable. Without
    /// a margin all writers would wait then.
    pub(crate) fn make_margin(&mut self, backed: &Backed) -> Result<(), RegionError> {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_media::{LoneClock, SimDevice};

    use crate::testing::write;
    use crate::{BLOCK_BYTES, Config, Region};

    #[test]
    fn the_thread_cleans_what_is_above_the_threshold_and_then_rests() {
        let config = Config {
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            ..Config::new(64 * BLOCK_BYTES, 32 * BLOCK_BYTES)
        };
        let device = Arc::new(SimDevice::new(0, 1));
        let region = Region::open(device, Arc::new(LoneClock::default()), config).unwrap();
        let backed = &region.running().backed;
        for block in 0..31 {
            write(&region, block * BLOCK_BYTES, &[1; BLOCK_BYTES as usize]);
        }
        let mut cleaner = region.running().any_cleaner();
        // What has become dirty in this epoch lowers the threshold.
        let mut is_more = cleaner.tick(backed, true).unwrap();
        assert!(is_more, "{} B are in use", region.used_bytes());
        for _ in 0..100 {
            is_more = is_more && cleaner.tick(backed, false).unwrap();
        }
        let threshold = cleaner.threshold(backed);
        assert!(!is_more && region.used_bytes() <= threshold, "{} B", region.used_bytes());
        assert!(region.used_bytes() > threshold / 2, "hot data stay dirty below the threshold");
    }
}
