//! The outcome of a modelled run: rates, times, and energy by each reading of the power.

use perdura_media::profile::System;
use serde::{Deserialize, Serialize};

use super::meter::Powers;
use super::schemes::{DEVICES, READINGS, Scheme, Workload};
use super::simulate::{Happened, Run};

/// The outcome of a configuration under a workload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The configuration.
    pub scheme: Scheme,
    /// Name of the workload.
    pub workload: String,
    /// Number of primaries.
    pub primaries: u16,
    /// Time of the run, seconds.
    pub elapsed_s: f64,
    /// Reads a second.
    pub reads_per_s: f64,
    /// Updates a second.
    pub writes_per_s: f64,
    /// Mean time of a read, microseconds.
    pub read_us: f64,
    /// Mean time of an update, microseconds.
    pub write_us: f64,
    /// Reads of clients that the last module served.
    pub reads_of_last: u64,
    /// Time in which the last module was accessed, seconds.
    pub last_accessed_s: f64,
    /// Share of the time in which the first primary was accessed.
    pub primary_busy: f64,
    /// Time in which values were synced or fetched, seconds.
    pub copied_s: f64,
    /// Energy of the run, joules, by each of [`READINGS`].
    pub joules: [f64; 2],
    /// Energy of the run, joules, by each of [`READINGS`], if primaries never sleep.
    /// [`Outcome::joules`] lets them sleep with a DRAM and time between requests.
    pub awake_joules: [f64; 2],
    /// Energy of the run, joules, by the model of the modules: figure 2's power for each interval.
    pub model_joules: f64,
    /// The work of the DRAM before all modules; `None` for the schemes without one.
    pub dram: Option<DramOutcome>,
    /// Number of records.
    pub records: u64,
    /// Mean time by which the machine was behind the model's clock, microseconds: 0 on the virtual
    /// clock.
    pub late_us: f64,
}

/// The work of the DRAM before all modules.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DramOutcome {
    /// Bytes of values that it has room for.
    pub bytes: u64,
    /// Share of the reads that it served.
    pub read_share: f64,
    /// Writes to modules for each update of a client.
    pub writes_per_update: f64,
    /// Energy of one whole module of [`super::schemes::DRAM_PROFILE`], joules, which
    /// [`Outcome::joules`] leaves out.
    pub module_joules: f64,
}

impl Outcome {
    pub(super) fn of(
        scheme: Scheme,
        workload: Workload,
        primaries: u16,
        happened: &Happened,
        run: &Run,
        system: &System,
    ) -> Self {
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let seconds = |ps: u64| ps as f64 / 1e12;
        let mean_us = |ps: u64, count: u64| ps as f64 / 1e6 / count.max(1) as f64;
        let elapsed_s = seconds(happened.elapsed_ps);
        let last = usize::from(DEVICES - 1);
        let mut outcome = Self {
            scheme,
            workload: workload.name(),
            primaries,
            elapsed_s,
            reads_per_s: happened.reads as f64 / elapsed_s,
            writes_per_s: happened.updates as f64 / elapsed_s,
            read_us: mean_us(happened.read_ps, happened.reads),
            write_us: mean_us(happened.update_ps, happened.updates),
            reads_of_last: happened.reads_of[last],
            last_accessed_s: seconds(happened.meters.accessed_ps(last)),
            primary_busy: seconds(happened.meters.accessed_ps(0)) / elapsed_s,
            copied_s: seconds(happened.meters.copied_ps()),
            joules: [0.0; 2],
            awake_joules: [0.0; 2],
            model_joules: happened.model_joules,
            records: run.records,
            late_us: happened.late_ps as f64 / 1e6,
            dram: run.dram.map(|capacity| DramOutcome {
                bytes: capacity.bytes,
                read_share: share(happened.dram_reads, happened.reads),
                writes_per_update: share(happened.destaged, happened.updates),
                module_joules: happened.dram_joules,
            }),
        };
        let awake = usize::from(primaries);
        // Behind a DRAM a primary sleeps between accesses, if there is time between requests.
        let always_awake = if scheme == Scheme::Dram && workload.is_disperse { 0 } else { awake };
        for (reading, primary) in READINGS.into_iter().enumerate() {
            let power = &system.power;
            // Without time in between, requests are compact.
            let primary = if workload.is_disperse { primary } else { power.peak };
            let powers = Powers { idle: power.idle, primary, peak: power.peak };
            let of = |awake| happened.meters.joules(&powers, awake, happened.elapsed_ps);
            outcome.joules[reading] = of(always_awake);
            outcome.awake_joules[reading] = of(awake);
        }
        outcome
    }

    /// The sum of the mean times of a read and an update, microseconds (the paper's delay).
    pub fn delay_us(&self) -> f64 {
        self.read_us + self.write_us
    }
}
