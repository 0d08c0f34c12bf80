//! The arithmetic of the promise: how many bytes may be dirty so that the flush fits the warning.
//!
//! `warned_bytes(budget) <= proven rate x (warning - reserve)` (Viyojit, section 5.1). The bytes
//! are those of the whole budget as a flush writes it, and those of frames that a killed process
//! left half written ([`Geometry::warned_bytes`]). The reserve is time for everything else:
//! stopping writers, commit slots, the last device flush.

use std::time::Duration;

use crate::geometry::{BUDGET_MIN_BYTES, Geometry};

/// The budget that a user asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BudgetWish {
    /// The largest budget that the warning allows.
    Derived,
    /// This many bytes.
    Bytes(u64),
    /// A share of the region, percent.
    Percent(f64),
}

/// The terms of a promise: times, rate and size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// Time between the warning and the cut.
    pub warning: Duration,
    /// Part of the warning that is kept for work which does not grow with the budget.
    pub reserve: Duration,
    /// Proven flush rate, bytes per second.
    pub rate_bytes_per_s: u64,
    /// Region size, bytes.
    pub region_bytes: u64,
}

impl Terms {
    /// Time that a flush of the whole budget may take.
    pub(crate) fn flush_time_max(&self) -> Duration {
        self.warning.saturating_sub(self.reserve)
    }
}

/// A budget, and the time that its flush takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// Dirty bytes allowed.
    pub budget_bytes: u64,
    /// Time that a flush of the whole budget takes at the proven rate, reserve included.
    pub flush_time: Duration,
    /// Whether the budget is at least as large as the region.
    pub covers_whole_region: bool,
}

/// Why a budget cannot be promised.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PromiseError {
    /// The reserve is as long as the warning, or longer.
    #[error("a warning of {warning:?} leaves nothing after the reserve of {reserve:?}")]
    NoTime {
        /// The warning that was given.
        warning: Duration,
        /// The reserve that was given.
        reserve: Duration,
    },
    /// The budget asked for is larger than the warning allows.
    #[error(
        "a budget of {budget_bytes} bytes takes {needed:?} to flush at the proven \
         {rate_bytes_per_s} bytes/s, the warning is {warning:?}; the largest budget it allows is \
         {largest_bytes} bytes"
    )]
    TooLarge {
        /// Asked for.
        budget_bytes: u64,
        /// Time that its flush would take, reserve included.
        needed: Duration,
        /// The warning that was given.
        warning: Duration,
        /// Proven rate, bytes per second.
        rate_bytes_per_s: u64,
        /// The largest budget that fits the warning, bytes.
        largest_bytes: u64,
    },
    /// The budget is below the smallest one.
    #[error("a budget of {budget_bytes} bytes is below the smallest, {smallest_bytes} bytes")]
    TooSmall {
        /// The budget asked for or derived, bytes.
        budget_bytes: u64,
        /// The smallest budget with which one operation can proceed, bytes.
        smallest_bytes: u64,
    },
    /// The share of the region is not a percentage.
    #[error("{percent} % is not a share of the region: expected more than 0 and at most 100")]
    NotAShare {
        /// Asked for.
        percent: f64,
    },
}

/// The default reserve: a tenth of the warning, but at least 50 ms and at most 2 s.
pub fn default_reserve(warning: Duration) -> Duration {
    (warning / 10).clamp(Duration::from_millis(50), Duration::from_secs(2))
}

/// Turns a wish into a promise that can be kept, or says why not.
pub fn promise(
    geometry: &Geometry,
    terms: &Terms,
    wish: BudgetWish,
) -> Result<Promise, PromiseError> {
    let (warning, reserve) = (terms.warning, terms.reserve);
    let Some(time) = warning.checked_sub(reserve).filter(|time| !time.is_zero()) else {
        return Err(PromiseError::NoTime { warning, reserve });
    };
    let largest_bytes = largest_budget(geometry, terms.rate_bytes_per_s, time);
    let budget_bytes = match wish {
        BudgetWish::Derived => largest_bytes.min(terms.region_bytes),
        BudgetWish::Bytes(bytes) => bytes,
        BudgetWish::Percent(percent) if percent > 0.0 && percent <= 100.0 => {
            (terms.region_bytes as f64 * percent / 100.0) as u64
        }
        BudgetWish::Percent(percent) => return Err(PromiseError::NotAShare { percent }),
    };
    if budget_bytes < BUDGET_MIN_BYTES {
        return Err(PromiseError::TooSmall { budget_bytes, smallest_bytes: BUDGET_MIN_BYTES });
    }
    let flush_time = flush_time(geometry, terms.rate_bytes_per_s, budget_bytes) + reserve;
    if flush_time > warning {
        return Err(PromiseError::TooLarge {
            budget_bytes,
            needed: flush_time,
            warning,
            rate_bytes_per_s: terms.rate_bytes_per_s,
            largest_bytes,
        });
    }
    let covers_whole_region = budget_bytes >= terms.region_bytes;
    Ok(Promise { budget_bytes, flush_time, covers_whole_region })
}

/// Time to flush `budget_bytes` at the proven rate, without the reserve.
pub fn flush_time(geometry: &Geometry, rate_bytes_per_s: u64, budget_bytes: u64) -> Duration {
    let seconds = geometry.warned_bytes(budget_bytes) as f64 / rate_bytes_per_s.max(1) as f64;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

fn largest_budget(geometry: &Geometry, rate_bytes_per_s: u64, time: Duration) -> u64 {
    largest_within(rate_bytes_per_s, time, |bytes| geometry.warned_bytes(bytes))
}

/// The most dirty bytes whose `cost`, in bytes to write, can be written within `time`, exact to 4
/// KiB.
pub fn largest_within(rate_bytes_per_s: u64, time: Duration, cost: impl Fn(u64) -> u64) -> u64 {
    let affordable = (rate_bytes_per_s as f64 * time.as_secs_f64()).min(1e18) as u64;
    let (mut fits, mut beyond) = (0u64, affordable + 1);
    while beyond - fits > 4096 {
        let middle = fits + (beyond - fits) / 2;
        if cost(middle) <= affordable { fits = middle } else { beyond = middle }
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry::new(4 << 30, 6, None, 20).unwrap()
    }

    fn terms() -> Terms {
        Terms {
            warning: Duration::from_secs(10),
            reserve: Duration::from_secs(1),
            rate_bytes_per_s: 100_000_000,
            region_bytes: 1 << 30,
        }
    }

    #[test]
    fn the_smallest_budget_can_be_promised_and_none_below_it() {
        let least = |bytes| promise(&geometry(), &terms(), BudgetWish::Bytes(bytes));
        assert_eq!(least(BUDGET_MIN_BYTES).unwrap().budget_bytes, BUDGET_MIN_BYTES);
        assert!(matches!(least(BUDGET_MIN_BYTES - 1), Err(PromiseError::TooSmall { .. })));
    }

    #[test]
    fn a_derived_budget_fits_its_own_promise() {
        let found = promise(&geometry(), &terms(), BudgetWish::Derived).unwrap();
        assert!(geometry().warned_bytes(found.budget_bytes) <= 900_000_000);
        assert!(found.flush_time <= Duration::from_secs(10));
        assert!(!found.covers_whole_region);
        let rich = Terms { rate_bytes_per_s: 10_000_000_000, ..terms() };
        let found = promise(&geometry(), &rich, BudgetWish::Derived).unwrap();
        assert_eq!(found.budget_bytes, 1 << 30);
        assert!(found.covers_whole_region);
    }

    #[test]
    fn frames_left_half_done_are_paid_for() {
        let geometry = geometry();
        let budget_bytes = 64 << 20;
        let redo_bytes = geometry.redo_bytes(budget_bytes);
        assert!(redo_bytes > 5 * geometry.frame_limit());
        assert!(geometry.redo_bytes(128 << 10) < 128 << 10);
        // The time of the flush alone is too short, by just the time of those frames.
        let seconds = |bytes: u64| Duration::from_secs_f64(bytes as f64 / 100e6);
        let flush_bytes = geometry.flush_bytes(budget_bytes);
        let given = |bytes| Terms {
            warning: terms().reserve + seconds(bytes) + Duration::from_millis(1),
            ..terms()
        };
        let wish = BudgetWish::Bytes(budget_bytes);
        let error = promise(&geometry, &given(flush_bytes), wish).unwrap_err();
        assert!(matches!(error, PromiseError::TooLarge { .. }), "{error}");
        promise(&geometry, &given(flush_bytes + redo_bytes), wish).unwrap();
    }

    #[test]
    fn an_explicit_budget_beyond_the_warning_is_refused_with_what_would_fit() {
        let error = promise(&geometry(), &terms(), BudgetWish::Bytes(1 << 30)).unwrap_err();
        let PromiseError::TooLarge { largest_bytes, .. } = error else { panic!("{error}") };
        promise(&geometry(), &terms(), BudgetWish::Bytes(largest_bytes)).unwrap();
    }

    #[test]
    fn a_share_of_the_region_is_a_number_of_bytes_and_the_whole_is_one() {
        let rich = Terms { rate_bytes_per_s: 10_000_000_000, ..terms() };
        let of = |percent| promise(&geometry(), &rich, BudgetWish::Percent(percent)).unwrap();
        assert_eq!(of(12.5).budget_bytes, 1 << 27);
        assert!(!of(12.5).covers_whole_region);
        assert_eq!(of(100.0).budget_bytes, 1 << 30);
        assert!(of(100.0).covers_whole_region);
    }

    #[test]
    fn nonsense_is_refused() {
        let wishes = [
            BudgetWish::Bytes(1),
            BudgetWish::Percent(0.0),
            BudgetWish::Percent(101.0),
            BudgetWish::Percent(f64::NAN),
        ];
        for wish in wishes {
            promise(&geometry(), &terms(), wish).unwrap_err();
        }
        let late = Terms { reserve: Duration::from_secs(10), ..terms() };
        promise(&geometry(), &late, BudgetWish::Derived).unwrap_err();
    }
}
