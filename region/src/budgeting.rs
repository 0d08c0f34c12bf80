//! Changing the budget and the size of a region in use.

use std::sync::atomic::Ordering::*;

use perdura_dirty::RegionError;
use perdura_dirty::geometry::{BLOCK_BYTES, BUDGET_MIN_BYTES};
use perdura_image::{OpenError, Pump};

use crate::config::check_size;
use crate::memory_files::reserve;
use crate::region::Region;
use crate::space::Raising;

impl Region {
    /// Sets the budget. A smaller budget makes writers wait, and the call returns when the dirty
    /// set fits. A larger budget may need a larger log, which is enlarged and compacted first. A
    /// call waits for one that another thread has begun. Must be called with no lane held.
    ///
    /// # Errors
    /// The budget stays as it is. The log may have become larger, or been compacted.
    /// - [`RegionError::Budget`]: the budget is too small, or too large for the image.
    /// - [`RegionError::LogFull`]: the live data leave no room in the log for such a flush.
    /// - The device has no room for the log, or has failed; or the region is closed.
    pub fn set_budget(&self, bytes: u64) -> Result<(), RegionError> {
        self.change_budget(bytes, |_| 0)
    }

    /// Sets the budget as [`Region::set_budget`] does, for a while: the log keeps space for the
    /// largest budget since that call, so that it can be in force again at once.
    ///
    /// # Errors
    /// Those of [`Region::set_budget`].
    pub fn set_budget_for_now(&self, bytes: u64) -> Result<(), RegionError> {
        self.change_budget(bytes, |ready| ready)
    }

    /// Sets the budget. Meanwhile the log keeps the space that it has, and afterwards space for the
    /// budget that `ready` makes of the largest one.
    fn change_budget(&self, bytes: u64, ready: impl Fn(u64) -> u64) -> Result<(), RegionError> {
        let (running, backed) = (self.running(), &self.running().backed);
        let refused = |why| Err(RegionError::Budget { asked_bytes: bytes, why });
        if bytes < BUDGET_MIN_BYTES {
            return refused("below 128 KiB nothing can proceed");
        }
        let geometry = backed.memory.ledger.geometry();
        if geometry.reserve_segments(bytes) > geometry.segments_max / 2 {
            return refused(
                "the image was made for a smaller region: its log cannot hold such a flush",
            );
        }
        // One change at a time: a change that fails restores the limits that it found.
        let _changing = running.budget_change.lock();
        let before = self.budget_bytes();
        let largest = backed.log.sized_for(before);
        backed.log.keep_ready_for(largest);
        let outcome = self.raise_or_lower(before, bytes);
        match outcome {
            Ok(()) => {
                backed.log.keep_ready_for(ready(largest));
                backed.size_reserve_for(bytes);
            }
            Err(_) => {
                backed.memory.budget.abandon_change();
                backed.size_reserve_for(before);
            }
        }
        outcome
    }

    fn raise_or_lower(&self, before: u64, bytes: u64) -> Result<(), RegionError> {
        let backed = &self.running().backed;
        if bytes > backed.log.sized_for(before) {
            self.fit_log_for(bytes)?;
        }
        backed.memory.budget.begin_shrink(bytes);
        self.reach_budget(bytes)
    }

    /// Cleans until `bytes` are enough, and puts that limit in force. Waits where nothing can be
    /// cleaned, for the causes that `satisfy` names.
    pub(crate) fn reach_budget(&self, bytes: u64) -> Result<(), RegionError> {
        let (running, backed) = (self.running(), &self.running().backed);
        let _lanes = backed.memory.budget.wait_for_lanes();
        let mut raising = Raising::to(backed, bytes);
        loop {
            let seen = backed.memory.budget.version();
            let mut cleaner = running.open_cleaner()?;
            backed.memory.check()?;
            if cleaner.gain_space(backed, &mut raising)? {
                continue;
            }
            // Whoever had the cleaner between two steps might begin a commit, which takes long.
            let excess = || backed.memory.ledger.budget_used().load(SeqCst).saturating_sub(bytes);
            while excess() > 0 && cleaner.make_room(backed, excess())? > 0 {}
            if excess() > 0 {
                cleaner.release_in_vain();
                if backed.tracked.reclaim_all_credit() == 0 {
                    running.await_change(seen);
                }
                continue;
            }
            backed.fit_log(backed.memory.region_bytes(), bytes)?;
            if raising.is_larger() {
                cleaner.ensure_space(backed)?;
            }
            // An open frame has the size for the former budget, but the promise reckons the
            // time to write half-done frames again by the new one.
            backed.log.appender.lock().close_frame(&backed.memory.ledger, 0);
            cleaner.outlet.pump(backed, Pump::Durable)?;
            if backed.coverable_bytes() < bytes {
                return Err(backed.log.full());
            }
            if backed.memory.budget.commit_limit(&backed.memory.ledger, bytes) {
                return Ok(());
            }
        }
    }

    /// Makes room in the log for the emergency flush of `budget_bytes`, without changing the
    /// budget.
    pub(crate) fn fit_log_for(&self, budget_bytes: u64) -> Result<(), RegionError> {
        let (running, backed) = (self.running(), &self.running().backed);
        let _cleaner = running.open_cleaner()?;
        backed.fit_log(backed.memory.region_bytes(), budget_bytes)?;
        backed.fit_log(backed.memory.region_bytes(), self.budget_bytes())
    }

    /// Enlarges the region and its log while they are in use.
    pub fn grow(&self, region_bytes: u64) -> Result<(), OpenError> {
        let (running, backed) = (self.running(), &self.running().backed);
        let geometry = backed.memory.ledger.geometry();
        let region_bytes = region_bytes.next_multiple_of(BLOCK_BYTES);
        check_size(geometry, region_bytes)?;
        let mut cleaner = running.open_cleaner()?;
        reserve(&backed.memory.file, region_bytes)?;
        backed.fit_log(region_bytes.max(backed.memory.region_bytes()), self.budget_bytes())?;
        if let (Some(tracker), true) =
            (backed.tracked.pages(), region_bytes > backed.memory.region_bytes())
        {
            tracker.extend(backed.memory.region_bytes(), region_bytes)?;
        }
        if backed.memory.ledger.region_bytes().fetch_max(region_bytes, AcqRel) < region_bytes {
            // A group commit does not record the size of the region, so a checkpoint must do it
            // first.
            cleaner.checkpoint(backed, false)?;
        }
        Ok(())
    }
}
