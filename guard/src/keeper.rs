//! Acting on demands: the budget, the writers, and saving everything.

use std::cmp::Reverse;
use std::time::Duration;

use perdura_region::{
    BUDGET_MIN_BYTES, BudgetWish, Region, RegionError, Terms, default_reserve, largest_within,
    promise,
};
use perdura_warning::{Demand, Reading};

/// Checkpoints, after the first, that are made for a region to be clean. One is enough, unless a
/// writer that was let in before takes long.
const CHECKPOINTS_MAX: u32 = 8;

/// Those who write to a region.
pub trait Writers: Send + Sync {
    /// Learns what the sources say, and what follows from it. From [`Demand::Clean`] on, writes are
    /// refused; below it they are let in.
    fn told(&self, reading: &Reading, demand: Demand);

    /// Learns that a demand is met.
    fn met(&self, demand: Demand);

    /// Returns when no write that was let in before is under way, or after a moment if one takes
    /// long. Returns whether all have ended.
    fn have_ended(&self) -> bool;
}

/// What else limits the dirty data, besides the demand of the power.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Most {
    /// The region's share of a battery that a guard divides.
    pub share: Option<Duration>,
    /// The time that a battery lasts now.
    pub battery: Option<Duration>,
}

/// Keeps one region's dirty data within what is demanded.
#[derive(Debug)]
pub struct Keeper {
    terms: Terms,
    /// The budget of the promise.
    budget_bytes: u64,
}

impl Keeper {
    /// Keeps a region with the promise of `budget_bytes`, made on `terms`.
    pub fn new(terms: Terms, budget_bytes: u64) -> Self {
        Self { terms, budget_bytes }
    }

    /// The most bytes that may be dirty so that a flush takes no longer than `time`, and never more
    /// than the promise.
    pub fn budget_within(&self, region: &Region, time: Duration) -> u64 {
        let warning = time.min(self.terms.warning);
        let reserve = default_reserve(warning).min(self.terms.reserve);
        let terms = Terms { warning, reserve, ..self.terms };
        match promise(region.geometry(), &terms, BudgetWish::Derived) {
            Ok(promise) => promise.budget_bytes.min(self.budget_bytes),
            // Nothing smaller lets a write proceed at all.
            Err(_) => BUDGET_MIN_BYTES,
        }
    }

    /// The most bytes that may be dirty with a share of a battery, and never more than the promise.
    /// Whoever divides the battery has taken the reserve off.
    pub fn budget_of_share(&self, region: &Region, share: Duration) -> u64 {
        let rate = self.terms.rate_bytes_per_s;
        let fits = largest_within(rate, share, |bytes| region.geometry().warned_bytes(bytes));
        fits.clamp(BUDGET_MIN_BYTES, self.budget_bytes)
    }

    /// Meets a demand, and keeps within what else limits the dirty data. Returns when both hold.
    ///
    /// # Errors
    /// The device has failed, or the region is closed.
    pub fn meet(
        &self,
        region: &Region,
        demand: Demand,
        most: Most,
        writers: &dyn Writers,
    ) -> Result<(), RegionError> {
        let of_share = most.share.map(|share| self.budget_of_share(region, share));
        let of_battery = most.battery.map(|time| self.budget_within(region, time));
        let limits = [of_share, of_battery];
        let most = limits.into_iter().flatten().fold(self.budget_bytes, u64::min);
        match demand {
            Demand::Promise => region.set_budget_for_now(most),
            Demand::Within(Reverse(time)) => {
                region.set_budget_for_now(self.budget_within(region, time).min(most))
            }
            Demand::Clean => {
                save_all(region, writers)?;
                region.set_budget_for_now(most.min(region.budget_bytes()))
            }
            // The program closes the region, which saves everything.
            Demand::End => Ok(()),
        }
    }
}

/// Saves everything that writers have written, who are refused by now.
fn save_all(region: &Region, writers: &dyn Writers) -> Result<(), RegionError> {
    // Most is saved before it is known that no write is under way.
    region.checkpoint()?;
    for _ in 0..CHECKPOINTS_MAX {
        // Asked before the checkpoint, so that it has the last write's data.
        let have_ended = writers.have_ended();
        region.checkpoint()?;
        if have_ended {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use perdura_media::{SimClock, SimDevice};
    use perdura_region::{BLOCK_BYTES, Config, LaneId};

    use super::*;

    const BLOCKS: u64 = 64;
    const MIB: u64 = 1 << 20;

    fn region(device: &SimDevice) -> Region {
        let budget_bytes = 2 * MIB;
        let config = Config {
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            ..Config::new(BLOCKS * BLOCK_BYTES, budget_bytes)
        };
        let clock = Arc::new(SimClock::new(1_000));
        Region::open(Arc::new(device.clone()), clock, config).unwrap()
    }

    fn terms(region: &Region) -> Terms {
        Terms {
            warning: Duration::from_secs(10),
            reserve: Duration::from_secs(1),
            rate_bytes_per_s: MIB,
            region_bytes: region.len_bytes(),
        }
    }

    fn write(region: &Region, block: u64, byte: u8) {
        let mut credit = 0;
        loop {
            let mut lane = region.lock_with(LaneId(0), std::mem::take(&mut credit));
            let Err(need) = lane.write(block * BLOCK_BYTES, &[byte; 4096]) else { return };
            drop(lane);
            credit = region.satisfy(need).unwrap();
        }
    }

    /// Writers that write once more the first few times that they are asked whether they have
    /// ended.
    struct Late<'r>(&'r Region, AtomicU32);

    impl Writers for Late<'_> {
        fn told(&self, _: &Reading, _: Demand) {}

        fn met(&self, _: Demand) {}

        fn have_ended(&self) -> bool {
            let left = self.1.load(Ordering::Relaxed);
            if left > 0 {
                self.1.store(left - 1, Ordering::Relaxed);
                write(self.0, u64::from(left), 9);
            }
            left == 0
        }
    }

    #[test]
    fn the_budget_follows_the_time_and_comes_back() {
        let device = SimDevice::new(0, 1);
        let region = region(&device);
        let (keeper, idle) = (Keeper::new(terms(&region), 2 * MIB), Late(&region, 0.into()));
        (0..40).for_each(|block| write(&region, block, 1));
        for seconds in [8, 2, 1] {
            let time = Duration::from_secs(seconds);
            keeper.meet(&region, Demand::Within(Reverse(time)), Most::default(), &idle).unwrap();
            let budget = region.budget_bytes();
            assert_eq!(budget, keeper.budget_within(&region, time));
            let flushed = perdura_region::flush_time(region.geometry(), MIB, budget);
            assert!(flushed <= time || budget == BUDGET_MIN_BYTES, "{seconds} s: {flushed:?}");
            assert!(region.used_bytes() <= budget && budget <= 2 * MIB);
        }
        assert!(region.budget_bytes() < MIB);
        // No time leaves less than a write needs, and none is longer than the promise.
        assert_eq!(keeper.budget_within(&region, Duration::ZERO), BUDGET_MIN_BYTES);
        assert_eq!(keeper.budget_within(&region, Duration::MAX), 2 * MIB);
        keeper.meet(&region, Demand::Promise, Most::default(), &idle).unwrap();
        assert_eq!(region.budget_bytes(), 2 * MIB);
        keeper.meet(&region, Demand::End, Most::default(), &idle).unwrap();
    }

    #[test]
    fn the_budget_is_the_smaller_one_of_power_and_share() {
        let device = SimDevice::new(0, 1);
        let region = region(&device);
        let (keeper, idle) = (Keeper::new(terms(&region), 2 * MIB), Late(&region, 0.into()));
        let meet = |demand, share_ms: u64| {
            let share = Some(Duration::from_millis(share_ms));
            keeper.meet(&region, demand, Most { share, battery: None }, &idle).unwrap();
            region.budget_bytes()
        };
        let within = |seconds| Demand::Within(Reverse(Duration::from_secs(seconds)));
        let half = meet(Demand::Promise, 1_000);
        let flushed = perdura_region::flush_time(region.geometry(), MIB, half);
        assert!(flushed <= Duration::from_secs(1) && flushed > Duration::from_millis(800));
        assert_eq!(meet(within(8), 1_000), half);
        assert!(meet(within(1), 1_000) < half);
        assert_eq!(meet(Demand::Promise, 60_000), 2 * MIB, "never more than the promise");
        assert_eq!(meet(Demand::Clean, 500), meet(Demand::Promise, 500));
        assert_eq!(meet(Demand::Promise, 0), BUDGET_MIN_BYTES);
        let lasts = |seconds, share| {
            let battery = Some(Duration::from_secs(seconds));
            keeper.meet(&region, Demand::Promise, Most { share, battery }, &idle).unwrap();
            region.budget_bytes()
        };
        assert_eq!(lasts(60, None), 2 * MIB, "a good battery allows no more than the promise");
        assert_eq!(lasts(1, None), keeper.budget_within(&region, Duration::from_secs(1)));
        assert!(lasts(1, None) < half);
        assert_eq!(lasts(60, Some(Duration::from_secs(1))), half);
    }

    #[test]
    fn what_late_writers_wrote_is_saved_too() {
        for late in 0..4 {
            let device = SimDevice::new(0, 1);
            let region = self::region(&device);
            let keeper = Keeper::new(terms(&region), 2 * MIB);
            (0..5).for_each(|block| write(&region, block, 7));
            keeper
                .meet(&region, Demand::Clean, Most::default(), &Late(&region, late.into()))
                .unwrap();
            // The power goes, and nobody flushes.
            let device = device.power_cycle(late.into());
            drop(region);
            let region = self::region(&device);
            let lane = region.lock(LaneId(0));
            for block in 0..5 {
                let byte = if (1..=u64::from(late)).contains(&block) { 9 } else { 7 };
                assert_eq!(lane.bytes(block * BLOCK_BYTES, 4096), [byte; 4096], "block {block}");
            }
        }
    }
}
