//! The effect of the observed rate on the budget. While the device is slower than the promise
//! needs, fewer bytes may be dirty, so that the flush still fits the warning. When it has
//! recovered, the whole budget is allowed again, and never more.

use std::sync::atomic::Ordering::*;

use crate::geometry::BUDGET_MIN_BYTES;
use crate::memory::Memory;
use crate::observed::{Judgement, Observed};
use crate::promise::{Terms, largest_within};

/// The limit never falls below this, or an eighth of the budget if that is smaller, so that a
/// single operation can proceed however slow the device is.
const OPERATION_BYTES: u64 = 1 << 20;

/// Compares the observed rate of the device with the terms of the promise.
pub struct RateWatch {
    /// The samples of the device's rate.
    pub observed: Observed,
    /// The terms of the promise; `None` if nothing is promised.
    terms: Option<Terms>,
    /// The limit that was last logged, bytes; `u64::MAX` if none is in force.
    limit_told_bytes: u64,
}

impl Default for RateWatch {
    /// Nothing is promised, so nothing is watched.
    fn default() -> Self {
        Self { observed: Observed::default(), terms: None, limit_told_bytes: u64::MAX }
    }
}

impl RateWatch {
    /// Sets the terms of the promise, with which the observed rate is compared from now on.
    pub fn watch(&mut self, memory: &Memory, terms: &Terms) {
        self.terms = Some(*terms);
        let budget_bytes = memory.ledger.budget_limit().load(Acquire);
        self.observed.watch(terms.rate_bytes_per_s, budget_bytes, memory.clock.now_ns());
        memory.budget.limit_by_rate(u64::MAX);
    }

    /// Limits the dirty bytes by the observed rate, of which there is a new sample.
    pub fn heed(&mut self, memory: &Memory) {
        let Some(terms) = self.terms else { return };
        let geometry = memory.ledger.geometry();
        let budget_bytes = memory.ledger.budget_limit().load(Relaxed);
        let time = terms.flush_time_max();
        let needed = geometry.warned_bytes(budget_bytes) as f64 / time.as_secs_f64().max(1e-9);
        memory.stats.observed_rate_bytes_per_s.store(self.observed.rate(), Relaxed);
        memory.stats.rate_samples.store(self.observed.samples(), Relaxed);
        let limit_bytes = match self.observed.judge(memory.clock.now_ns(), needed as u64) {
            Judgement::Kept => u64::MAX,
            Judgement::Slow(rate) => {
                let floor_bytes = BUDGET_MIN_BYTES.max((budget_bytes / 8).min(OPERATION_BYTES));
                // The size of frames follows from the budget in force, not from this limit.
                let redo_bytes = geometry.redo_bytes(budget_bytes);
                let cost = |bytes| geometry.flush_bytes(bytes) + redo_bytes;
                largest_within(rate, time, cost).max(floor_bytes)
            }
        };
        self.observed.size_for(limit_bytes.min(budget_bytes));
        let before_bytes = memory.budget.limit_by_rate(limit_bytes);
        let observed_bytes_per_s = self.observed.rate();
        let proven_bytes_per_s = terms.rate_bytes_per_s;
        // Logged when a limit begins and ends, and when it has fallen by another quarter.
        if limit_bytes == u64::MAX && before_bytes != u64::MAX {
            tracing::info!(budget_bytes, "the device is as fast as was proven again: full budget");
            self.limit_told_bytes = u64::MAX;
        } else if limit_bytes / 3 < self.limit_told_bytes / 4 && limit_bytes != u64::MAX {
            tracing::warn!(
                observed_bytes_per_s,
                proven_bytes_per_s,
                limit_bytes,
                budget_bytes,
                "the device is slower than was proven: less may be dirty, so that the promise holds"
            );
            self.limit_told_bytes = limit_bytes;
        }
    }
}
