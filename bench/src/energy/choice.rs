//! The number of primaries: what an exhaustive sweep finds best, and what trials find (Sprint-AEP,
//! section III-A).
//!
//! The sweep knows the runs with every number and takes the one with the least product of
//! equal-time energy and delay, the paper's measure of energy efficiency. Trials know only the
//! rates of the numbers that they try.

use perdura_tier::{ALPHA, Activation, PRESSED_ABOVE, Rates};
use serde::{Deserialize, Serialize};

use super::outcome::Outcome;
use super::result::EnergyResult;
use super::schemes::{DEVICES, Workload};

/// Periods in which trials come to an end.
const PERIODS: u32 = 12;

/// The number of primaries for a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Name of the workload.
    pub workload: String,
    /// The product of equal-time energy and delay with 1, 2, ... primaries, as a part of that with
    /// all.
    pub products: Vec<f64>,
    /// The number with the least product.
    pub best: u16,
    /// The number that trials find from one primary upwards.
    pub found: u16,
    /// The number of trials until then.
    pub trials: u32,
    /// Most trials after a change to this workload from any other one.
    pub trials_after_change_max: u32,
    /// The numbers that were found after such a change, each once.
    pub found_after_change: Vec<u16>,
    /// Gain of one more primary, for each number of primaries from 1 on: reads a second and writes
    /// a second, each as a part of those before (the paper's figure 22).
    pub gains: Vec<(f64, f64)>,
}

impl Choice {
    /// The choices for all workloads of which there are all runs.
    pub(super) fn all(result: &EnergyResult) -> Vec<Self> {
        let names = Workload::ALL.map(|workload| workload.name());
        let sweeps: Vec<_> = names.iter().filter_map(|name| Sweep::of(result, name)).collect();
        sweeps.iter().map(|sweep| sweep.choice(result, &sweeps)).collect()
    }
}

/// The runs of a workload with 1, 2, ... primaries.
struct Sweep<'r> {
    workload: &'r str,
    runs: Vec<&'r Outcome>,
}

impl<'r> Sweep<'r> {
    fn of(result: &'r EnergyResult, workload: &'r str) -> Option<Self> {
        let runs: Option<Vec<_>> = (1..=DEVICES).map(|it| result.sprint(workload, it)).collect();
        Some(Self { workload, runs: runs? })
    }

    fn choice(&self, result: &EnergyResult, all: &[Self]) -> Choice {
        let products = self.products(result);
        let best = 1 + least(&products) as u16;
        let mut activation = Activation::new(1, DEVICES, ALPHA);
        let (found, trials) = settle(&mut activation, 1, self);
        let mut trials_after_change_max = 0;
        let mut found_after_change = Vec::new();
        for other in all.iter().filter(|other| other.workload != self.workload) {
            let mut activation = Activation::new(1, DEVICES, ALPHA);
            let (before, _) = settle(&mut activation, 1, other);
            let (found, trials) = settle(&mut activation, before, self);
            trials_after_change_max = trials_after_change_max.max(trials);
            found_after_change.push(found);
        }
        found_after_change.sort_unstable();
        found_after_change.dedup();
        let gain = |pair: &[&Outcome]| {
            let of = |rate: fn(&Outcome) -> f64| rate(pair[1]) / rate(pair[0]) - 1.0;
            (of(|it| it.reads_per_s), of(|it| it.writes_per_s))
        };
        Choice {
            workload: self.workload.to_owned(),
            products,
            best,
            found,
            trials,
            trials_after_change_max,
            found_after_change,
            gains: self.runs.windows(2).map(gain).collect(),
        }
    }

    /// Energy until the slowest run ends, times delay, as parts of that of the last run.
    fn products(&self, result: &EnergyResult) -> Vec<f64> {
        let end_s = self.runs.iter().map(|it| it.elapsed_s).fold(0.0, f64::max);
        let product = |it: &&Outcome| result.joules_until(it, end_s) * it.delay_us();
        let all: Vec<_> = self.runs.iter().map(product).collect();
        let last = all.last().copied().unwrap_or(1.0);
        all.into_iter().map(|one| one / last).collect()
    }

    fn rates(&self, primaries: u16) -> Rates {
        let run = self.runs[usize::from(primaries - 1)];
        Rates {
            reads_per_s: run.reads_per_s,
            writes_per_s: run.writes_per_s,
            is_pressed: run.primary_busy > PRESSED_ABOVE,
        }
    }
}

/// Runs the trials to their end: each period has the rates of the run with that number. Returns the
/// number of primaries, and of trials.
fn settle(activation: &mut Activation, mut primaries: u16, sweep: &Sweep<'_>) -> (u16, u32) {
    let mut trials = 0;
    for _ in 0..PERIODS {
        let decision = activation.decide(sweep.rates(primaries));
        trials += u32::from(decision.is_trial);
        primaries = decision.primaries;
    }
    (primaries, trials)
}

/// The place of the least value.
fn least(values: &[f64]) -> usize {
    let by_value = |a: &(usize, &f64), b: &(usize, &f64)| a.1.total_cmp(b.1);
    values.iter().enumerate().min_by(by_value).map_or(0, |(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::energy::schemes::{Scale, Scheme};

    /// A run of so many requests, of half of them reads.
    fn outcome(primaries: u16, joules: f64, elapsed_s: f64, delay_us: f64) -> Outcome {
        let scheme = if primaries == DEVICES { Scheme::Standard } else { Scheme::Sprint };
        Outcome {
            scheme,
            workload: "A".into(),
            primaries,
            elapsed_s,
            reads_per_s: 100.0 / elapsed_s,
            writes_per_s: 100.0 / elapsed_s,
            read_us: delay_us / 4.0,
            write_us: delay_us * 3.0 / 4.0,
            reads_of_last: 0,
            last_accessed_s: 0.0,
            primary_busy: 0.9,
            copied_s: 0.0,
            joules: [joules, 2.0 * joules],
            awake_joules: [0.0; 2],
            model_joules: 3.0 * joules,
            dram: None,
            records: 7,
            late_us: 0.0,
        }
    }

    fn result(outcomes: Vec<Outcome>) -> EnergyResult {
        let (warm_requests, requests, cache_bytes, buffer_bytes) = (0, 0, 0, 0);
        EnergyResult {
            kind: String::new(),
            profile: String::new(),
            scale: Scale { records: 7, warm_requests, requests, cache_bytes, buffer_bytes },
            is_global: false,
            distribution: String::new(),
            is_real_clock: false,
            idle_watts: 2.0,
            outcomes,
            choices: Vec::new(),
            sizes: Vec::new(),
        }
    }

    fn close(found: f64, expected: f64) -> bool {
        (found - expected).abs() < 1e-9
    }

    #[test]
    fn what_is_done_first_sleeps_until_the_other_is_done() {
        let all = result(vec![outcome(4, 100.0, 5.0, 8.0), outcome(2, 90.0, 7.0, 4.0)]);
        let (standard, sprint) = (&all.outcomes[0], &all.outcomes[1]);
        assert!(close(all.saved(sprint, 0).unwrap(), 0.1));
        assert!(close(all.saved(sprint, 1).unwrap(), 0.1));
        assert!(close(all.saved_by_interval(sprint).unwrap(), 0.1));
        // Four modules at 2 W for 2 s are 16 J.
        let energy = 90.0 / 116.0;
        assert!(close(all.saved_equal_time(sprint).unwrap(), 1.0 - energy));
        assert!(close(all.product(sprint).unwrap(), energy * 4.0 / 8.0));
        assert!(close(all.product(standard).unwrap(), 1.0));
        // The other way round.
        let all = result(vec![outcome(4, 100.0, 5.0, 8.0), outcome(2, 50.0, 4.0, 8.0)]);
        assert!(close(all.saved_equal_time(&all.outcomes[1]).unwrap(), 1.0 - 58.0 / 100.0));
    }

    /// With 1 to 4 primaries: the second gains most, the third something, the fourth nothing.
    fn swept() -> EnergyResult {
        result(vec![
            outcome(4, 100.0, 5.0, 8.0),
            outcome(3, 80.0, 5.0, 9.0),
            outcome(2, 60.0, 5.2, 10.0),
            outcome(1, 50.0, 10.0, 30.0),
        ])
    }

    #[test]
    fn the_sweep_finds_the_least_product_and_trials_see_what_each_primary_gains() {
        let all = swept();
        let choices = Choice::all(&all);
        let [choice] = &choices[..] else { panic!("only A has all runs: {choices:?}") };
        // Until 10 s, and four modules at 2 W behind each: 50, 60 + 38.4, 80 + 40, 100 + 40 J.
        let expected = [50.0 * 30.0, 98.4 * 10.0, 120.0 * 9.0, 140.0 * 8.0];
        for (found, expected) in choice.products.iter().zip(expected) {
            assert!(close(*found, expected / (140.0 * 8.0)), "{choice:?}");
        }
        assert_eq!(choice.best, 2);
        // The third gains 4 % of reads and of writes, which is less than 10 %.
        assert_eq!((choice.found, choice.trials), (2, 2));
        assert!(close(choice.gains[1].0, 5.2 / 5.0 - 1.0), "{choice:?}");
        assert!(close(choice.gains[0].1, 10.0 / 5.2 - 1.0), "{choice:?}");
        assert_eq!((choice.gains.len(), choice.trials_after_change_max), (3, 0));
    }

    #[test]
    fn a_change_of_load_is_followed_from_what_was_found_before() {
        let all = swept();
        let runs = |busy: [f64; 4]| -> Vec<Outcome> {
            let of = |(primaries, primary_busy): (u16, f64)| {
                let run = all.sprint("A", primaries).unwrap().clone();
                Outcome { primary_busy, ..run }
            };
            (1..).zip(busy).map(of).collect()
        };
        // One is enough where none is pressed.
        let [heavy, calm] = [[0.9, 0.9, 0.7, 0.7], [0.79; 4]].map(runs);
        let sweep =
            |workload, runs: &'static [Outcome]| Sweep { workload, runs: runs.iter().collect() };
        let both = [sweep("heavy", heavy.leak()), sweep("calm", calm.leak())];
        let [heavy, calm] = [&both[0], &both[1]].map(|it| it.choice(&all, &both));
        assert_eq!((calm.found, calm.trials), (1, 0));
        assert_eq!((heavy.found, heavy.found_after_change), (2, vec![2]));
        assert_eq!(heavy.trials_after_change_max, 2, "to two, and to three in vain");
        // The rates are the same, so what was learnt of one holds still.
        assert_eq!((calm.found_after_change, calm.trials_after_change_max), (vec![2], 0));
    }
}
