//! All runs of a comparison, and its table.

use perdura_media::profile::System;
use perdura_tier::{Activation, Rates};
use serde::{Deserialize, Serialize};

use super::schemes::{DEVICES, Outcome, Scale, Scheme, Workload, run};

/// The columns of [`EnergyResult::table`].
pub const COLUMNS: [&str; 10] = [
    "workload",
    "configuration",
    "primaries",
    "reads/s",
    "updates/s",
    "idle reads",
    "idle time",
    "saved at 2.8 W",
    "saved at 3.3 W",
    "energy x delay",
];

/// The gain that keeps one more primary awake (the paper's alpha).
const ALPHA: f64 = 0.1;
/// A primary that is accessed for more of the time is pressed.
const PRESSED_ABOVE: f64 = 0.5;
/// Periods in which trials come to an end.
const PERIODS: u32 = 12;

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
    /// Every run.
    pub outcomes: Vec<Outcome>,
}

/// The runs of each workload: all primaries, then fewer, then one without each idea.
const RUNS: [(Scheme, u16); 6] = [
    (Scheme::Standard, DEVICES),
    (Scheme::Sprint, 3),
    (Scheme::Sprint, 2),
    (Scheme::Sprint, 1),
    (Scheme::WithoutPrefetch, 1),
    (Scheme::WithoutParallel, 1),
];

impl EnergyResult {
    /// Runs every configuration under every workload. `progress` is told what is done of what;
    /// `is_over` ends early, with the runs that were made.
    pub fn of(
        profile: &str,
        system: &System,
        scale: Scale,
        is_global: bool,
        progress: &dyn Fn(&str, u64, u64),
        is_over: &dyn Fn() -> bool,
    ) -> Self {
        let mut outcomes = Vec::new();
        let all = Workload::ALL.iter().flat_map(|workload| RUNS.map(|run| (*workload, run)));
        let total = (Workload::ALL.len() * RUNS.len()) as u64;
        for (workload, (scheme, primaries)) in all {
            if is_over() {
                break;
            }
            progress(&workload.name(), outcomes.len() as u64, total);
            outcomes.push(run(scheme, workload, primaries, &scale, is_global, system));
        }
        progress("done", outcomes.len() as u64, total);
        Self { kind: "modelled-energy".into(), profile: profile.into(), scale, is_global, outcomes }
    }

    /// The run of all primaries under the same workload.
    pub fn standard_of(&self, outcome: &Outcome) -> Option<&Outcome> {
        let is_it =
            |it: &&Outcome| it.scheme == Scheme::Standard && it.workload == outcome.workload;
        self.outcomes.iter().find(is_it)
    }

    /// The share of the standard's energy for the same requests that a run saves, by a reading of
    /// the power.
    pub fn saved(&self, outcome: &Outcome, reading: usize) -> Option<f64> {
        let standard = self.standard_of(outcome)?;
        Some(1.0 - outcome.joules[reading] / standard.joules[reading])
    }

    /// The number of primaries that trials find for a workload, and the number of trials
    /// (Sprint-AEP, section III-A). Each period has the rates of the run with that number.
    pub fn found_by_trials(&self, workload: &str) -> Option<(u16, u32)> {
        let of = |primaries: u16| {
            let is_it = |it: &&Outcome| {
                it.workload == workload
                    && it.primaries == primaries
                    && matches!(it.scheme, Scheme::Sprint | Scheme::Standard)
            };
            let found = self.outcomes.iter().find(is_it)?;
            let is_pressed = found.primary_busy > PRESSED_ABOVE;
            Some(Rates {
                reads_per_s: found.reads_per_s,
                writes_per_s: found.writes_per_s,
                is_pressed,
            })
        };
        let mut activation = Activation::new(1, DEVICES, ALPHA);
        let (mut primaries, mut trials) = (1, 0);
        for _ in 0..PERIODS {
            let decision = activation.decide(of(primaries)?);
            trials += u32::from(decision.is_trial);
            primaries = decision.primaries;
        }
        Some((primaries, trials))
    }

    /// A row for each run.
    pub fn table(&self) -> Vec<[String; 10]> {
        let row = |it: &Outcome| {
            let standard = self.standard_of(it).unwrap_or(it);
            let share = |now: f64, base: f64| format!("{:+.1} %", (now / base - 1.0) * 100.0);
            let saved = |reading| {
                self.saved(it, reading).map_or("-".into(), |part| format!("{:.1} %", part * 100.0))
            };
            [
                it.workload.clone(),
                it.scheme.name().to_owned(),
                it.primaries.to_string(),
                share(it.reads_per_s, standard.reads_per_s),
                share(it.writes_per_s, standard.writes_per_s),
                share(it.reads_of_last as f64, standard.reads_of_last as f64),
                share(it.last_accessed_s, standard.last_accessed_s),
                saved(0),
                saved(1),
                share(it.product(0), standard.product(0)),
            ]
        };
        self.outcomes.iter().map(row).collect()
    }
}
