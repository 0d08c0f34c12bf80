//! The smallest budget that meets a target, found by replaying a trace for several budgets in one
//! pass after another.
//!
//! A larger budget is not always better, because a checkpoint writes more of it at once and frames
//! grow with it. So the search looks for a budget that meets the target together with all larger
//! budgets that were tried. Smaller budgets that met the target by luck are named.

use perdura_dirty::geometry::BUDGET_MIN_BYTES;

use super::config::ReplayConfig;
use super::outcome::Outcome;
use super::{Replay, SizingError};
use crate::trace::{PAGE_BYTES, Record};

/// How many budgets are replayed in one pass.
const BUDGETS_A_PASS: u64 = 8;
/// The most passes of one search.
const PASSES_MAX: usize = 5;
/// The bytes of which every budget is a whole multiple.
const STEP_BYTES: u64 = 64 << 10;

/// The target for the waits of writers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// The most of the run's time that may be spent waiting, 0 to 1.
    pub stalled_share_max: f64,
    /// The most page writes that may have to wait, 0 to 1; `None` allows any.
    pub stalls_per_write_max: Option<f64>,
    /// This share of all page writes, 0 to 1, must be through within so many nanoseconds, if that
    /// matters.
    pub write_ns_max: Option<(f64, u64)>,
}

impl Default for Target {
    /// The usual target: at most a thousandth of the time.
    fn default() -> Self {
        Self { stalled_share_max: 0.001, stalls_per_write_max: None, write_ns_max: None }
    }
}

impl Target {
    /// Whether a run kept to it.
    #[must_use]
    pub fn is_met(&self, outcome: &Outcome) -> bool {
        outcome.stalled_share() <= self.stalled_share_max
            && self.stalls_per_write_max.is_none_or(|most| outcome.stalls_per_write() <= most)
            && self.write_ns_max.is_none_or(|(share, most)| outcome.write_ns_at(share) <= most)
    }
}

/// The result of a search for the smallest budget.
#[derive(Debug, Clone)]
pub struct Search {
    /// The smallest budget that met the target, as did all larger ones tried; `None`: not even one
    /// of all pages written did.
    pub smallest: Option<Outcome>,
    /// All budgets that were replayed, the smallest first.
    pub tried: Vec<Outcome>,
    /// The budgets below the answer that kept to the target, though a larger one did not, bytes.
    pub lucky_bytes: Vec<u64>,
    /// Bytes of all pages the trace writes: with so much budget nothing need ever be cleaned.
    pub footprint_bytes: u64,
    /// How many passes over the trace the search took.
    pub passes: usize,
}

impl Search {
    /// The answer as a part of all that is written; more than 1 where there is none.
    #[must_use]
    pub fn share_of_written(&self) -> f64 {
        let written = self.footprint_bytes.max(1) as f64;
        self.smallest.as_ref().map_or(f64::INFINITY, |found| found.budget_bytes as f64 / written)
    }

    /// Whether it is more than four fifths of it: a battery for a part of what is written will not
    /// do.
    #[must_use]
    pub fn needs_all(&self) -> bool {
        self.share_of_written() > 0.8
    }
}

/// Searches, with `config` for everything but the budget, between the smallest budget of a region
/// and `footprint_bytes`. `trace` hands all records of the trace, in order, to what it is given,
/// each time it is called; `threads` replay.
///
/// # Errors
/// The errors of `trace`, and [`SizingError`].
pub fn smallest_budget<E: From<SizingError>>(
    config: &ReplayConfig,
    target: &Target,
    footprint_bytes: u64,
    threads: usize,
    mut trace: impl FnMut(&mut dyn FnMut(&[Record]) -> Result<(), SizingError>) -> Result<(), E>,
) -> Result<Search, E> {
    let whole = |bytes: u64| bytes.div_ceil(STEP_BYTES).max(BUDGET_MIN_BYTES / STEP_BYTES);
    // What is on its way counts, too: a page more than there are never waits.
    let most = whole(footprint_bytes.max(PAGE_BYTES));
    let (mut below, mut above) = (whole(BUDGET_MIN_BYTES) - 1, most);
    let mut tried: Vec<Outcome> = Vec::new();
    let mut passes = 0;
    while passes < PASSES_MAX {
        let budgets = between(below, above, passes == 0);
        if budgets.is_empty() {
            break;
        }
        let configs: Vec<ReplayConfig> = budgets
            .iter()
            .map(|steps| ReplayConfig { budget_bytes: steps * STEP_BYTES, ..config.clone() })
            .collect();
        let mut replay = Replay::of(&configs)?.with_threads(threads);
        trace(&mut |records| replay.add(records))?;
        tried.extend(replay.finish_all());
        tried.sort_by_key(|outcome| outcome.budget_bytes);
        passes += 1;
        let Some(first) = first_of_the_met(&tried, target) else { break };
        above = tried[first].budget_bytes / STEP_BYTES;
        below = match first.checked_sub(1) {
            Some(before) => tried[before].budget_bytes / STEP_BYTES,
            None => above,
        };
        // Two parts in a hundred are as good as a model is.
        if (above - below) * 50 <= above {
            break;
        }
    }
    let first = first_of_the_met(&tried, target);
    let beyond = first.unwrap_or(tried.len());
    let lucky = tried[..beyond].iter().filter(|outcome| target.is_met(outcome));
    Ok(Search {
        smallest: first.map(|first| tried[first].clone()),
        lucky_bytes: lucky.map(|outcome| outcome.budget_bytes).collect(),
        footprint_bytes,
        passes,
        tried,
    })
}

/// The smallest budget that keeps to the target with all larger ones.
fn first_of_the_met(tried: &[Outcome], target: &Target) -> Option<usize> {
    let missed = tried.iter().rposition(|outcome| !target.is_met(outcome));
    let first = missed.map_or(0, |missed| missed + 1);
    (first < tried.len()).then_some(first)
}

/// Budgets above `below`, up to `above` (itself only the first time), each as much larger than the
/// one before.
fn between(below: u64, above: u64, is_first: bool) -> Vec<u64> {
    let ratio = above as f64 / below.max(1) as f64;
    let parts = if is_first { BUDGETS_A_PASS } else { BUDGETS_A_PASS + 1 };
    let at = |part: u64| below.max(1) as f64 * ratio.powf(part as f64 / parts as f64);
    let mut budgets: Vec<u64> = (1..=BUDGETS_A_PASS).map(|part| at(part).round() as u64).collect();
    if is_first {
        budgets.push(above);
    }
    budgets.retain(|steps| *steps > below && (*steps < above || is_first && *steps == above));
    budgets.sort_unstable();
    budgets.dedup();
    budgets
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::sizing::Numbering;
    use crate::trace::Op;

    const PAGES: u64 = 8 << 10;

    fn trace(skew: f64, gap_ns: u64) -> Vec<Record> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        (0..60_000u64)
            .map(|number| {
                let page = (random.random::<f64>().powf(skew) * PAGES as f64) as u64;
                let (time_ns, offset_bytes) = (number * gap_ns, page * 4096);
                Record { time_ns, offset_bytes, len_bytes: 4096, volume: 0, op: Op::Write }
            })
            .collect()
    }

    fn searched(records: &[Record], target: &Target) -> Search {
        let mut numbering = Numbering::default();
        numbering.number(records, &mut Vec::new()).unwrap();
        let footprint_bytes = u64::from(numbering.pages()) * 4096;
        let mut config = ReplayConfig::new(PAGES * 4096, 0);
        config.checkpoint_every = None;
        config.device.bandwidth.0 = 100_000_000;
        let found = smallest_budget::<SizingError>(&config, target, footprint_bytes, 2, |feed| {
            records.chunks(5_000).try_for_each(feed)
        });
        found.unwrap()
    }

    #[test]
    fn skewed_writes_need_a_part_of_what_they_touch_and_a_little_less_does_not_do() {
        let records = trace(12.0, 30_000);
        let target = Target::default();
        let search = searched(&records, &target);
        let smallest = search.smallest.as_ref().unwrap();
        assert!(!search.needs_all(), "{} of {}", smallest.budget_bytes, search.footprint_bytes);
        assert!(smallest.budget_bytes * 3 < search.footprint_bytes * 2);
        let (missed, met): (Vec<_>, Vec<_>) =
            search.tried.iter().partition(|tried| tried.budget_bytes < smallest.budget_bytes);
        assert!(met.iter().all(|outcome| target.is_met(outcome)));
        let next = missed.last().unwrap();
        assert!(!target.is_met(next));
        assert!(smallest.budget_bytes - next.budget_bytes <= smallest.budget_bytes / 20);
    }

    #[test]
    fn uniform_writes_faster_than_the_device_need_all_of_what_they_touch() {
        let search =
            searched(&trace(1.0, 5_000), &Target { stalled_share_max: 0.0, ..Target::default() });
        assert!(search.needs_all(), "{:?}", search.smallest.map(|found| found.budget_bytes));
    }

    #[test]
    fn budgets_are_tried_closer_and_closer_and_never_twice() {
        assert_eq!(between(1, 2, true), [2]);
        assert!(between(5, 6, false).is_empty());
        let first = between(1, 4096, true);
        assert_eq!((first.len(), first.last()), (8, Some(&4096)));
        let second = between(first[3], first[4], false);
        assert!(second.len() == 8 && second[0] > first[3] && second[7] < first[4]);
    }
}
