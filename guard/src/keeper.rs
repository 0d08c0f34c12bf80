//! Acting on demands: the budget, the writers, and saving everything.

use std::cmp::Reverse;
use std::time::Duration;

use perdura_region::{
    BUDGET_MIN_BYTES, BudgetWish, Region, RegionError, Terms, default_reserve, promise,
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

    /// Returns when no write that was let in before is under way, or after a moment if one takes
    /// long. Returns whether all have ended.
    fn have_ended(&self) -> bool;
}

/// Keeps one region's dirty data within what is demanded.
#[derive(Debug)]
pub struct Keeper {
    terms: Terms,
    /// The budget of the promise.
    budget_bytes: u64,
}

impl Keeper {
    /// Keeps a region whose budget is that of `terms`.
    pub fn new(region: &Region, terms: Terms) -> Self {
        Self { terms, budget_bytes: region.budget_bytes() }
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

    /// Meets a demand. Returns when it holds.
    ///
    /// # Errors
    /// The device has failed, or the region is closed.
    pub fn meet(
        &self,
        region: &Region,
        demand: Demand,
        writers: &dyn Writers,
    ) -> Result<(), RegionError> {
        match demand {
            Demand::Promise => region.set_budget(self.budget_bytes),
            Demand::Within(Reverse(time)) => region.set_budget(self.budget_within(region, time)),
            Demand::Clean => save_all(region, writers),
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
