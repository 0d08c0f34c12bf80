//! Waiting for budget or a frame buffer, with no lane held.
//!
//! A writer that needs room first cleans for itself. If nothing can be cleaned, it waits for one of
//! these causes, each of which ends with a notification of the budget:
//! - bytes are given back: frames became durable, or a lane has more credit than it may keep, also
//!   because dirty data were dropped;
//! - a lane is released under which budget was taken: data that became dirty can be cleaned now,
//!   and credit that is left can be taken back. Releases notify only while a thread says that it
//!   waits for them: they are far more frequent than such waits;
//! - the cleaner is released by a thread that did something with it (barrier mode);
//! - a prepared write ends, and its pages can be cleaned;
//! - a limit rises: the budget was changed, the log has more space, the device is as fast as
//!   proven;
//! - writers are not held any more;
//! - a failure was latched, or the final flush has begun.
//!
//! Credit that lanes keep is taken back from one lane after the other, waiting for lanes that are
//! held.

use std::sync::atomic::Ordering::*;
use std::time::Duration;

use perdura_dirty::{Counters, Need, RegionError};

use crate::running::Running;

/// Longest wait for a notification. Two causes may need this bound: in trap mode a fault that takes
/// budget while a prepared write waits notifies the cleaner's thread alone, and in barrier mode
/// dropped dirty data that a lane keeps as credit notify nobody.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Attempts in a row that free nothing until the log counts as full. Each of them has committed and
/// compacted all it could.
const VAIN_MAX: u32 = 4;

impl Running {
    /// Waits until what a writer needs may be there. Room is taken from the budget, and the caller
    /// passes it to [`Running::lock_with`]. Must be called with no lane held.
    pub(crate) fn satisfy(&self, need: Need) -> Result<u64, RegionError> {
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
        let mut lanes = None;
        loop {
            // Read before everything else, so that any later change is noticed.
            let seen = budget.version();
            memory.check_open()?;
            if budget.is_held() {
                self.await_change(seen);
                continue;
            }
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
                self.await_change(seen);
                continue;
            };
            memory.check_open()?;
            let gained = cleaner.make_room(&self.backed, wanted)?;
            if gained > 0 {
                vain = 0;
                continue;
            }
            cleaner.release_in_vain();
            // Nothing dirty could be cleaned: lanes keep the budget as credit.
            if self.backed.tracked.reclaim_all_credit() > 0 {
                continue;
            }
            if lanes.is_none() {
                // Looks once more: a lane may have been released before this thread was counted.
                lanes = Some(budget.wait_for_lanes());
                continue;
            }
            vain += 1;
            if vain >= VAIN_MAX && budget.effective_limit(ledger) < wanted {
                return Err(self.backed.log.full());
            }
            self.await_change(seen);
        }
    }

    /// Waits for a notification of the budget later than the version `seen`. Must be called with
    /// neither a lane nor the cleaner held.
    pub(crate) fn await_change(&self, seen: u32) {
        let memory = &self.backed.memory;
        memory.budget.wait(&*memory.clock, seen, LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use perdura_dirty::extent::Extent;
    use perdura_media::{Clock, LoneClock, RealClock, SimDevice};

    use super::*;
    use crate::{BLOCK_BYTES, Config, LaneId, Region};

    const BUDGET_BYTES: u64 = 8 * BLOCK_BYTES;

    fn open(clock: Arc<dyn Clock>) -> Region {
        let config = Config {
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            ..Config::new(64 * BLOCK_BYTES, BUDGET_BYTES)
        };
        Region::open(Arc::new(SimDevice::new(0, 1)), clock, config).unwrap()
    }

    #[test]
    fn who_waits_for_a_buffer_has_one_afterwards() {
        let region = open(Arc::new(LoneClock::default()));
        let backed = &region.running().backed;
        let ledger = &backed.memory.ledger;
        assert_eq!(region.satisfy(Need::Buffer).unwrap(), 0);
        let mut appender = backed.log.appender.lock();
        let mut frames = 0;
        while appender.can_take(ledger) {
            // Without charged bytes, as in a frame of compaction, none are given back.
            let run = Extent { grain: 0, len: 1 };
            appender.append(ledger, &backed.memory.map, run, false).unwrap();
            appender.close_frame(ledger, 0);
            frames += 1;
        }
        drop(appender);
        assert!(frames > 1);
        assert_eq!(region.satisfy(Need::Buffer).unwrap(), 0);
        assert!(backed.log.appender.lock().can_take(ledger), "the device has the frames still");
    }

    #[test]
    fn a_log_without_room_for_what_is_wanted_is_full_after_some_attempts_and_never_before() {
        let region = open(Arc::new(LoneClock::default()));
        let budget = &region.running().backed.memory.budget;
        let outcome = |wanted: u64, room: u64| {
            budget.limit_by_space(room);
            region.satisfy(Need::Room { bytes: wanted })
        };
        let credit_bytes = outcome(4096, 4096).unwrap();
        drop(region.lock_with(LaneId(0), credit_bytes));
        let refused = outcome(8192, 8191);
        assert!(matches!(refused, Err(RegionError::LogFull { .. })), "{refused:?}");
        assert_eq!(outcome(8192, 8192).unwrap(), 8192);
    }

    /// A clock that counts the waits that were begun.
    #[derive(Default)]
    struct Counting(AtomicU32);

    impl Clock for Counting {
        fn now_ns(&self) -> u64 {
            RealClock.now_ns()
        }
        fn unix_ms(&self) -> u64 {
            0
        }
        fn thread_cpu_ns(&self) -> u64 {
            0
        }
        fn sleep_ns(&self, duration_ns: u64) {
            RealClock.sleep_ns(duration_ns);
        }
        fn wait_change(&self, word: &AtomicU32, seen: u32, longest: Duration) {
            self.0.fetch_add(1, Relaxed);
            RealClock.wait_change(word, seen, longest);
        }
    }

    #[test]
    fn who_can_clean_nothing_sleeps_until_the_budget_is_given_back() {
        type Act = fn(&Region);
        let acts: [Act; 2] = [
            |region| _ = region.satisfy(Need::Room { bytes: 4096 }).unwrap(),
            |region| region.set_budget(BUDGET_BYTES / 2).unwrap(),
        ];
        for (number, act) in acts.into_iter().enumerate() {
            let clock = Arc::new(Counting::default());
            let region = open(clock.clone());
            let credit_bytes = region.satisfy(Need::Room { bytes: BUDGET_BYTES }).unwrap();
            std::thread::scope(|scope| {
                let acting = scope.spawn(|| act(&region));
                let until_ns = RealClock.now_ns() + 10_000_000_000;
                while clock.0.load(Relaxed) == 0 && RealClock.now_ns() < until_ns {
                    std::thread::yield_now();
                }
                let is_asleep = clock.0.load(Relaxed) > 0;
                assert!(!acting.is_finished(), "act {number} had nothing to wait for");
                drop(region.lock_with(LaneId(0), credit_bytes));
                acting.join().unwrap();
                assert!(is_asleep, "act {number} looks again and again without a sleep");
            });
        }
    }
}
