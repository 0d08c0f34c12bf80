//! The paper's four configurations, and one of our own, under its six workloads (Sprint-AEP,
//! section IV).

use perdura_media::Watts;
use perdura_media::profile::{ProfileError, System};
use perdura_tier::{Capacity, DramCapacity, Prefetch, Settings as Shape};
use serde::{Deserialize, Serialize};

use super::outcome::Outcome;
use super::simulate::{Load, Pace, Run, Systems};
use crate::dist::Distribution;

/// Modules (Sprint-AEP, table III).
pub const DEVICES: u16 = 4;
/// Bytes of a record.
pub const RECORD_BYTES: u32 = 1024;
/// Time between requests of the workloads of low density, microseconds.
pub const PAUSE_US: u64 = 50;
/// The paper's two readings of the power of a primary under requests with time in between: the
/// constant that its section IV-B reckons with, and what its figure 2 shows.
pub const READINGS: [Watts; 2] = [Watts(2.8), Watts(3.3)];

/// The profile of the DRAM's module.
pub const DRAM_PROFILE: &str = "battery-dram";

impl Systems {
    /// Memory modules of a profile, and one module of [`DRAM_PROFILE`].
    ///
    /// # Errors
    /// As [`System::find`].
    pub fn find(profile: &str) -> Result<Self, ProfileError> {
        let dram = System { modules: 1, ..System::find(DRAM_PROFILE)? };
        Ok(Self { modules: System::find(profile)?, dram })
    }
}

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
    /// A battery-backed DRAM before Sprint with one primary, which sleeps between bursts, too. Not
    /// in the paper.
    Dram,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Standard, Self::Sprint, Self::WithoutPrefetch, Self::WithoutParallel, Self::Dram];

    /// The scheme's name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Sprint => "Sprint",
            Self::WithoutPrefetch => "without prefetch",
            Self::WithoutParallel => "without parallel",
            Self::Dram => "DRAM",
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

    /// The one of the paper's figures 18 and 19.
    pub const SIZED: Self = Self::ALL[3];

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
    /// A part of this scale: everything in proportion.
    pub(super) fn part(&self, part: u64, of: u64) -> Self {
        Self {
            records: self.records * part / of,
            warm_requests: self.warm_requests * part / of,
            requests: self.requests * part / of,
            cache_bytes: self.cache_bytes * part / of,
            buffer_bytes: self.buffer_bytes * part / of,
        }
    }

    /// A DRAM that has room for this part of the data.
    fn dram(&self, percent: u64) -> DramCapacity {
        let bytes = self.records * u64::from(RECORD_BYTES) * percent / 100;
        // The battery backs all of it.
        DramCapacity { bytes, dirty_max_bytes: bytes }
    }

    /// A scale of this name.
    pub fn parse(name: &str) -> Option<Self> {
        let eighths = match name {
            "tiny" => 1,
            "small" => 8,
            "large" => 64,
            _ => return None,
        };
        // The cache has room for all of the idle modules' data, as the paper's has: 128 GB beside
        // 20 GB. The paper does not say how large its buffer is. This one has room for the data and
        // some more; with many updates several syncs fall into a run all the same.
        let small = Self {
            records: 50_000,
            warm_requests: 500_000,
            requests: 2_000_000,
            cache_bytes: 40 << 20,
            buffer_bytes: 64 << 20,
        };
        Some(small.part(eighths, 8))
    }
}

/// What all runs of a comparison have in common.
#[derive(Clone, Copy)]
pub struct Setup<'s> {
    /// The modules.
    pub systems: &'s Systems,
    /// Sizes.
    pub scale: Scale,
    /// Whether all clients together keep the time between requests.
    pub is_global: bool,
    /// Which records the requests are for.
    pub distribution: Distribution,
    /// Part of the data that the DRAM has room for, percent.
    pub dram_percent: u64,
    /// The clock.
    pub pace: Pace<'s>,
}

/// Runs a configuration with so many primaries under a workload.
pub fn run(scheme: Scheme, workload: Workload, primaries: u16, setup: &Setup<'_>) -> Outcome {
    let (scale, systems) = (&setup.scale, setup.systems);
    let dram = (scheme == Scheme::Dram).then(|| scale.dram(setup.dram_percent));
    let primaries = match scheme {
        Scheme::Standard => DEVICES,
        _ => primaries,
    };
    let pause_ps = if workload.is_disperse { PAUSE_US * 1_000_000 } else { 0 };
    let run = Run {
        shape: Shape {
            devices: DEVICES,
            primaries,
            behind_max: 3,
            capacity: Capacity { cache_bytes: scale.cache_bytes, buffer_bytes: scale.buffer_bytes },
            prefetch: match scheme {
                Scheme::WithoutPrefetch => Prefetch::Off,
                Scheme::Dram => Prefetch::All,
                _ => Prefetch::Used,
            },
        },
        is_parallel: scheme != Scheme::WithoutParallel,
        records: scale.records,
        record_bytes: RECORD_BYTES,
        load: Load {
            update_share: f64::from(workload.updates_percent) / 100.0,
            pause_ps,
            is_global: setup.is_global,
            distribution: setup.distribution,
            warm_requests: scale.warm_requests,
            requests: scale.requests,
        },
        dram,
        seed: 1,
    };
    let happened = run.run(systems, &setup.pace);
    Outcome::of(scheme, workload, primaries, &happened, &run, &systems.modules)
}
