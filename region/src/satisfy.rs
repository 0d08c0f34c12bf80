//! Waiting for budget or a frame buffer, with no lane held.
//!
//! A writer that needs room first cleans for itself. Where nothing can be cleaned it waits for a
//! cause, and each cause is followed by a notification of the budget:
//! - bytes are given back: frames became durable, a lane keeps less credit, dirty data were
//!   dropped;
//! - a lane is released under which budget was taken: what became dirty can be cleaned now, and
//!   what is left can be taken back;
//! - the cleaner is released by somebody who did something with it;
//! - a prepared write ends, and its pages can be cleaned;
//! - a limit rises: the budget was changed, the log has more space, the device is as fast as
//!   proven;
//! - a failure was latched, or the final flush has begun.
//!
//! Credit that lanes keep is taken back lane by lane, which waits for those that are held.

use std::sync::atomic::Ordering::*;
use std::time::Duration;

use perdura_dirty::{Counters, Need, RegionError};

use crate::running::Running;

/// Waits look again after this long even if nobody woke them. Only in trap mode may there be need
/// for it: a fault that takes budget while a prepared write waits tells the cleaner's thread alone.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Attempts in a row that gain nothing, each of which has committed and compacted all it could,
/// until the log counts as full.
const VAIN_MAX: u32 = 4;

impl Running {
    /// Blocks until what a writer needed may be there. Room is taken: the caller passes it to
    /// [`Running::lock_with`]. Must be called with no lane held.
    pub fn satisfy(&self, need: Need) -> Result<u64, RegionError> {
        let memory = &self.backed.memory;
        Counters::add(&memory.stats.stalls, 1);
        let began_ns = memory.clock.now_ns();
        let outcome = self.satisfy_now(need);
        let waited_ns = memory.clock.now_ns().saturating_sub(began_ns);
        Counters::add(&memory.stats.stall_ns, waited_ns);
        memory.stats.stall_ns_max.fetch_max(waited_ns, Relaxed);
        outcome
    }

    fn satisfy_now(&self, need: Need) -> Result<u64, RegionError> {
        let memory = &*self.backed.memory;
        let (budget, ledger) = (&memory.budget, &memory.ledger);
        let wanted = match need {
            Need::Room { bytes } => bytes,
            Need::Buffer => 0,
        };
        let mut vain = 0;
        loop {
            // Read before anything is looked at: what happens later changes it.
            let seen = budget.version();
            memory.check_open()?;
            match need {
                Need::Room { bytes } => {
                    let budget_bytes = budget.wanted_limit(ledger);
                    if bytes > budget_bytes {
                        return Err(RegionError::BeyondBudget { asked_bytes: bytes, budget_bytes });
                    }
                    if budget.try_take(ledger, bytes) {
                        return Ok(bytes);
                    }
                }
                Need::Buffer if self.backed.log.appender.lock().can_take(ledger) => return Ok(0),
                Need::Buffer => {}
            }
            memory.check()?;
            let Some(mut cleaner) = self.try_cleaner() else {
                budget.wait(&*memory.clock, seen, LOOK_AGAIN);
                continue;
            };
            memory.check_open()?;
            let gained = cleaner.make_room(&self.backed, wanted)?;
            if gained > 0 {
                vain = 0;
                continue;
            }
            cleaner.release_in_vain();
            // Nothing dirty that could be cleaned: what lanes keep is in the way.
            if self.backed.tracked.reclaim_all_credit() > 0 {
                continue;
            }
            vain += 1;
            if vain >= VAIN_MAX && budget.effective_limit(ledger) < wanted {
                return Err(self.backed.log.full());
            }
            budget.wait(&*memory.clock, seen, LOOK_AGAIN);
        }
    }
}
