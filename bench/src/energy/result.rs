//! All runs of a comparison, and what follows from one beside another.

use serde::{Deserialize, Serialize};

use super::choice::Choice;
use super::outcome::Outcome;
use super::schemes::{DEVICES, Scale, Scheme, Setup, Workload, run};
use super::simulate::Pace;

/// A comparison.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EnergyResult {
    /// The kind of this result: `modelled-energy`.
    pub kind: String,
    /// Name of the modelled module's profile.
    pub profile: String,
    /// Sizes of the runs.
    pub scale: Scale,
    /// Whether all clients together keep the time between requests.
    pub is_global: bool,
    /// Name of the distribution of requests over records.
    pub distribution: String,
    /// Whether the runs waited for the machine's clock, so that its own time is in them.
    pub is_real_clock: bool,
    /// Power of a module that sleeps, watts.
    pub idle_watts: f64,
    /// Every run.
    pub outcomes: Vec<Outcome>,
    /// The number of primaries that is best for each workload, and the one that trials find.
    pub choices: Vec<Choice>,
    /// Runs of [`Workload::SIZED`] with other numbers of records.
    pub sizes: Vec<Outcome>,
}

/// The runs of each workload: all primaries, then each smaller number with and without each idea.
const RUNS: [(Scheme, u16); 11] = [
    (Scheme::Standard, DEVICES),
    (Scheme::Sprint, 3),
    (Scheme::Sprint, 2),
    (Scheme::Sprint, 1),
    (Scheme::WithoutPrefetch, 3),
    (Scheme::WithoutPrefetch, 2),
    (Scheme::WithoutPrefetch, 1),
    (Scheme::WithoutParallel, 3),
    (Scheme::WithoutParallel, 2),
    (Scheme::WithoutParallel, 1),
    (Scheme::Dram, 1),
];

/// The runs of each size.
const SIZED_RUNS: [(Scheme, u16); 4] = [
    (Scheme::Standard, DEVICES),
    (Scheme::Sprint, 1),
    (Scheme::WithoutPrefetch, 1),
    (Scheme::Dram, 1),
];

/// Eighths of the records in each of the sizes.
const SIZE_EIGHTHS: [u64; 4] = [1, 2, 4, 8];

impl EnergyResult {
    /// Runs every configuration under every workload. `progress` is told what is done of what;
    /// `is_over` ends early, with the runs that were made.
    pub fn of(
        profile: &str,
        setup: &Setup<'_>,
        progress: &dyn Fn(&str, u64, u64),
        is_over: &dyn Fn() -> bool,
    ) -> Self {
        let all = Workload::ALL.iter().flat_map(|workload| {
            RUNS.map(|(scheme, primaries)| (*workload, scheme, primaries, setup.scale))
        });
        let sized = SIZE_EIGHTHS.into_iter().flat_map(|eighths| {
            let scale = setup.scale.part(eighths, 8);
            SIZED_RUNS.map(|(scheme, primaries)| (Workload::SIZED, scheme, primaries, scale))
        });
        let jobs: Vec<_> = all.chain(sized).collect();
        let mut outcomes = Vec::new();
        for (workload, scheme, primaries, scale) in &jobs {
            if is_over() {
                break;
            }
            progress(&workload.name(), outcomes.len() as u64, jobs.len() as u64);
            outcomes.push(run(*scheme, *workload, *primaries, &Setup { scale: *scale, ..*setup }));
        }
        progress("done", outcomes.len() as u64, jobs.len() as u64);
        let sizes = outcomes.split_off(outcomes.len().min(RUNS.len() * Workload::ALL.len()));
        let mut result = Self {
            kind: "modelled-energy".into(),
            profile: profile.into(),
            scale: setup.scale,
            is_global: setup.is_global,
            distribution: setup.distribution.name().into(),
            is_real_clock: matches!(setup.pace, Pace::Real(_)),
            idle_watts: setup.systems.modules.power.idle.0,
            outcomes,
            choices: Vec::new(),
            sizes,
        };
        result.choices = Choice::all(&result);
        result
    }

    /// The run of a configuration with so many primaries under a workload.
    pub fn find(&self, scheme: Scheme, workload: &str, primaries: u16) -> Option<&Outcome> {
        let is_it = |it: &&Outcome| {
            it.scheme == scheme && it.workload == workload && it.primaries == primaries
        };
        self.outcomes.iter().find(is_it)
    }

    /// The run of Sprint with so many primaries; with all, that is the standard.
    pub fn sprint(&self, workload: &str, primaries: u16) -> Option<&Outcome> {
        let scheme = if primaries == DEVICES { Scheme::Standard } else { Scheme::Sprint };
        self.find(scheme, workload, primaries)
    }

    /// The run of all primaries with the same requests and records.
    pub fn standard_of(&self, outcome: &Outcome) -> Option<&Outcome> {
        let is_it = |it: &&Outcome| {
            it.scheme == Scheme::Standard
                && it.workload == outcome.workload
                && it.records == outcome.records
        };
        self.outcomes.iter().chain(&self.sizes).find(is_it)
    }

    /// The share of the standard's energy for the same requests that a run saves, by a reading of
    /// the power: each run until its own end (the paper's execution-time energy).
    pub fn saved(&self, outcome: &Outcome, reading: usize) -> Option<f64> {
        let standard = self.standard_of(outcome)?;
        Some(1.0 - outcome.joules[reading] / standard.joules[reading])
    }

    /// The same until a common end, by the first reading: what was done first sleeps until the
    /// other is done (the paper's equal-time energy).
    pub fn saved_equal_time(&self, outcome: &Outcome) -> Option<f64> {
        let standard = self.standard_of(outcome)?;
        let end_s = outcome.elapsed_s.max(standard.elapsed_s);
        Some(1.0 - self.joules_until(outcome, end_s) / self.joules_until(standard, end_s))
    }

    /// The share of the standard's energy that a run saves by the model of the modules: figure 2's
    /// power for each interval between two requests.
    pub fn saved_by_interval(&self, outcome: &Outcome) -> Option<f64> {
        Some(1.0 - outcome.model_joules / self.standard_of(outcome)?.model_joules)
    }

    /// The product of equal-time energy and delay beside the standard's (the paper's energy-delay
    /// product).
    pub fn product(&self, outcome: &Outcome) -> Option<f64> {
        let standard = self.standard_of(outcome)?;
        let energy = 1.0 - self.saved_equal_time(outcome)?;
        Some(energy * outcome.delay_us() / standard.delay_us())
    }

    /// Energy by the first reading of a run whose modules then sleep until `end_s`, joules.
    pub(super) fn joules_until(&self, outcome: &Outcome, end_s: f64) -> f64 {
        let asleep_s = end_s - outcome.elapsed_s;
        outcome.joules[0] + f64::from(DEVICES) * self.idle_watts * asleep_s
    }
}
