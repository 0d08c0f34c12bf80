//! The paper's four configurations under its six workloads (Sprint-AEP, section IV).

use perdura_media::Watts;
use perdura_media::profile::System;
use perdura_tier::{Capacity, Prefetch, Settings as Shape};
use serde::{Deserialize, Serialize};

use super::meter::Powers;
use super::simulate::{Happened, Load, Run};

/// Modules (Sprint-AEP, table III).
pub const DEVICES: u16 = 4;
/// Bytes of a record.
pub const RECORD_BYTES: u32 = 1024;
/// Time between requests of the workloads of low density, microseconds.
pub const PAUSE_US: u64 = 50;
/// The paper's two readings of the power of a primary under requests with time in between: the
/// constant that its section IV-B reckons with, and what its figure 2 shows.
pub const READINGS: [Watts; 2] = [Watts(2.8), Watts(3.3)];

/// A configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// All modules are primaries.
    Standard,
    /// As few as are enough.
    Sprint,
    /// The same without prefetching.
    WithoutPrefetch,
    /// The same with one thread for syncs and prefetches.
    WithoutParallel,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Standard, Self::Sprint, Self::WithoutPrefetch, Self::WithoutParallel];

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Sprint => "Sprint",
            Self::WithoutPrefetch => "without prefetch",
            Self::WithoutParallel => "without parallel",
        }
    }
}

/// A workload: its share of updates, and whether there is time between requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Share of updates, percent.
    pub updates_percent: u32,
    /// Whether there is time between requests: the T of its name.
    pub is_disperse: bool,
}

impl Workload {
    /// The paper's table IV.
    pub const ALL: [Self; 6] = [
        Self { updates_percent: 50, is_disperse: false },
        Self { updates_percent: 5, is_disperse: false },
        Self { updates_percent: 67, is_disperse: false },
        Self { updates_percent: 50, is_disperse: true },
        Self { updates_percent: 5, is_disperse: true },
        Self { updates_percent: 67, is_disperse: true },
    ];

    /// Its name in the paper.
    pub fn name(self) -> String {
        let letter = match self.updates_percent {
            50 => "A",
            5 => "B",
            _ => "3",
        };
        format!("{letter}{}", if self.is_disperse { "-T" } else { "" })
    }
}

/// Sizes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    /// Number of records.
    pub records: u64,
    /// Number of requests before those that count.
    pub warm_requests: u64,
    /// Number of requests that count.
    pub requests: u64,
    /// Bytes of each primary's cache.
    pub cache_bytes: u64,
    /// Bytes of each primary's buffer.
    pub buffer_bytes: u64,
}

impl Scale {
    /// A scale of this name.
    pub fn parse(name: &str) -> Option<Self> {
        let factor = match name {
            "small" => 1,
            "large" => 8,
            _ => return None,
        };
        // The cache has room for all that is touched of the idle modules, as the paper's has: 128
        // GB beside 20 GB of data.
        Some(Self {
            records: factor * 50_000,
            warm_requests: factor * 300_000,
            requests: factor * 100_000,
            cache_bytes: factor * (40 << 20),
            buffer_bytes: factor * (4 << 20),
        })
    }
}

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
    /// Energy of the run, joules, by the model of the modules: figure 2's power for each interval.
    pub model_joules: f64,
}

impl Outcome {
    fn of(
        scheme: Scheme,
        workload: Workload,
        primaries: u16,
        happened: &Happened,
        system: &System,
    ) -> Self {
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
            model_joules: happened.model_joules,
        };
        for (joules, primary) in outcome.joules.iter_mut().zip(READINGS) {
            let power = &system.power;
            // Without time in between, requests are compact.
            let primary = if workload.is_disperse { primary } else { power.peak };
            let powers = Powers { idle: power.idle, primary, peak: power.peak };
            let used = happened.meters.joules(&powers, usize::from(primaries), happened.elapsed_ps);
            *joules = used;
        }
        outcome
    }

    /// Energy of the run times the sum of the mean times (the paper's energy-delay product).
    pub fn product(&self, reading: usize) -> f64 {
        self.joules[reading] * (self.read_us + self.write_us)
    }
}

/// Runs a configuration with so many primaries under a workload.
pub fn run(
    scheme: Scheme,
    workload: Workload,
    primaries: u16,
    scale: &Scale,
    is_global: bool,
    system: &System,
) -> Outcome {
    let primaries = if scheme == Scheme::Standard { DEVICES } else { primaries };
    let pause_ps = if workload.is_disperse { PAUSE_US * 1_000_000 } else { 0 };
    let run = Run {
        shape: Shape {
            devices: DEVICES,
            primaries,
            behind_max: 3,
            capacity: Capacity { cache_bytes: scale.cache_bytes, buffer_bytes: scale.buffer_bytes },
            prefetch: match scheme {
                Scheme::WithoutPrefetch => Prefetch::Off,
                _ => Prefetch::Used,
            },
        },
        is_parallel: scheme != Scheme::WithoutParallel,
        records: scale.records,
        record_bytes: RECORD_BYTES,
        load: Load {
            update_share: f64::from(workload.updates_percent) / 100.0,
            pause_ps,
            is_global,
            warm_requests: scale.warm_requests,
            requests: scale.requests,
        },
        seed: 1,
    };
    Outcome::of(scheme, workload, primaries, &run.run(system), system)
}
