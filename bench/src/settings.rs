//! The settings of a run of `bench ycsb`, and the figures that follow from them: the memory and
//! the lanes of a store, the options to open it, and the configuration that a result reports.

use std::path::PathBuf;
use std::time::Duration;

use perdura_media::file::{Direct, Engine};
use perdura_region::{
    BUDGET_MIN_BYTES, Compression, Config, Key, PolicyKind, REGION_MIN_BYTES, TrackingKind,
};

use crate::dist::Distribution;
use crate::drive::Quota;
use crate::report::Configuration;
use crate::target::{ArrayTarget, StoreOptions};
use crate::workload::{Layout, Workload};

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct YcsbSettings {
    /// The mix of operations.
    pub workload: Workload,
    /// A distribution in the place of the workload's own.
    pub distribution: Option<Distribution>,
    /// Number of records to load.
    pub records: u64,
    /// Amount of work of each side, all slices together.
    pub quota: Quota,
    /// Form of a record.
    pub layout: Layout,
    /// Number of threads.
    pub threads: usize,
    /// Operations that each thread has under way at a time.
    pub pipeline: usize,
    /// Operations a second, if the rate is fixed.
    pub rate: Option<f64>,
    /// Time of other work for each operation.
    pub think: Duration,
    /// Records of the longest scan.
    pub scan_max: usize,
    /// Slices of each side.
    pub pairs: usize,
    /// Seed of all streams.
    pub seed: u64,
    /// Whether to load the records first.
    pub load: bool,
    /// The target.
    pub place: Place,
    /// The settings of the first side, or of the only one.
    pub side: SideSettings,
    /// The settings of the side that is measured in turn with the first; `None` for one side.
    pub compare: Option<SideSettings>,
    /// Whether to measure the first side also without the upkeep of recency.
    pub ablate_recency: bool,
    /// Number of runs whose inserts the memory must hold.
    pub runs: u64,
}

/// The target of a run.
#[derive(Debug, Clone)]
pub enum Place {
    /// The embedded store.
    Embedded(Setup),
    /// Records in an array in bare memory.
    Array(Setup),
    /// Servers that the run starts.
    Spawned {
        /// Setup of the servers.
        setup: Setup,
        /// Path of the program, without `serve`.
        program: PathBuf,
    },
    /// A running server.
    Server {
        /// Host and port.
        address: String,
        /// Password of the server.
        password: Option<String>,
    },
}

/// The setup of a store.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Folder for the images.
    pub dir: PathBuf,
    /// Memory of each side; `None` for the memory that the records need.
    pub memory_bytes: Option<u64>,
    /// How the region notices writes.
    pub tracking: TrackingKind,
    /// Victim policy.
    pub policy: PolicyKind,
    /// How the image is written.
    pub engine: Engine,
    /// Whether to bypass the page cache.
    pub direct: Direct,
    /// Threads of the final flush.
    pub flush_threads: usize,
}

/// The settings in which two sides may differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SideSettings {
    /// Most bytes that may be dirty.
    pub budget: BudgetShare,
    /// Whether the store tracks which dirty data are written again.
    pub recency: bool,
    /// Compression of data written to the SSD.
    pub compression: Compression,
    /// Whether what is written to the SSD is encrypted, by a key that everybody knows.
    pub is_encrypted: bool,
    /// Time between checkpoints.
    pub checkpoint_every: Option<Duration>,
}

/// The budget of a side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BudgetShare {
    /// A share of the data's bytes, percent.
    Percent(f64),
    /// A number of bytes.
    Bytes(u64),
}

impl BudgetShare {
    /// The budget in bytes, never less than a region needs to proceed.
    pub fn bytes_of(self, data_bytes: u64) -> u64 {
        let bytes = match self {
            Self::Percent(percent) => (data_bytes as f64 * percent / 100.0) as u64,
            Self::Bytes(bytes) => bytes,
        };
        bytes.max(BUDGET_MIN_BYTES)
    }
}

impl YcsbSettings {
    /// The user's bytes of the records to load.
    pub fn data_bytes(&self) -> u64 {
        self.records * self.layout.record_bytes()
    }

    /// The distribution that was asked for, or the workload's own.
    pub fn distribution(&self) -> Distribution {
        self.distribution.unwrap_or(self.workload.distribution)
    }

    /// Number of inserts that need memory.
    pub fn expected_new(&self) -> u64 {
        match self.quota {
            Quota::Operations(operations) => self.workload.expected_new(operations),
            // As many inserts as a fast store could do in that time.
            Quota::Time(time) => {
                self.workload.expected_new((time.as_secs_f64() * RATE_GUESS) as u64)
            }
        }
    }

    /// Number of inserts that get memory: those expected and a fifth. A run by time may do more
    /// than can be guessed, and gets memory for at most as many as were loaded. Inserts without
    /// memory are refused, and counted.
    fn new_records(&self) -> u64 {
        let new = self.expected_new() / 2 * 6 / 5 * self.runs;
        match self.quota {
            Quota::Operations(_) => new,
            Quota::Time(_) => new.min(self.records),
        }
    }

    /// Number of lanes of an embedded store. Threads wait for each other when they meet on a lane,
    /// and the hash map it is compared with has 256 mutexes. A given memory limits the lanes.
    fn lanes(&self, setup: &Setup) -> u64 {
        let lanes = LANES_PER_THREAD * self.threads.clamp(1, LANES_THREADS_MAX) as u64;
        let most = setup.memory_bytes.map_or(u64::MAX, |bytes| bytes / LANE_BYTES);
        lanes.min(most.max(1)) + 1
    }

    /// Memory of a side: records with their slack, an index, and a part of a span for each shard
    /// and size.
    pub(crate) fn memory_bytes(&self, setup: &Setup) -> u64 {
        let records = self.records + self.new_records();
        if let (Place::Array(_), None) = (&self.place, setup.memory_bytes) {
            return ArrayTarget::memory_bytes(&self.layout, records).max(REGION_MIN_BYTES);
        }
        let needed = records * (self.layout.record_bytes() + RECORD_OVERHEAD_BYTES) * 3 / 2;
        let needed = needed + MEMORY_FLOOR_BYTES + self.lanes(setup) * LANE_BYTES;
        setup.memory_bytes.unwrap_or(needed.next_multiple_of(1 << 20))
    }

    /// The settings that a result reports.
    pub fn configuration(&self) -> Configuration {
        let setup = self.place.setup();
        let (operations, duration_ns) = match self.quota {
            Quota::Operations(operations) => (Some(operations), None),
            Quota::Time(time) => (None, Some(time.as_nanos() as u64)),
        };
        Configuration {
            about: self.workload.about.into(),
            distribution: self.distribution().name().into(),
            records: self.records,
            data_bytes: self.data_bytes(),
            record: self.layout.kind,
            fields: self.layout.fields,
            field_bytes: self.layout.field_bytes,
            write_all_fields: self.layout.write_all,
            values_repeating_percent: self.layout.repeating_percent,
            operations,
            duration_ns,
            threads: self.threads,
            pipeline: self.pipeline,
            target_rate_ops_per_s: self.rate,
            think_ns: self.think.as_nanos() as u64,
            scan_max: self.scan_max,
            pairs: self.pairs,
            seed: self.seed,
            policy: setup.map(|setup| setup.policy.name().into()),
            trap_mode: setup.is_some_and(|setup| setup.tracking != TrackingKind::Barrier),
        }
    }

    /// The sides, in the order of their results.
    pub(crate) fn sides(&self) -> Vec<SideSettings> {
        let without = SideSettings { recency: false, ..self.side };
        let without = self.ablate_recency.then_some(without);
        std::iter::once(self.side).chain(self.compare).chain(without).collect()
    }

    /// The options of an embedded store for this run.
    pub fn store_options(&self, setup: &Setup, side: &SideSettings) -> StoreOptions {
        let memory_bytes = self.memory_bytes(setup);
        let budget_bytes = side.budget.bytes_of(self.data_bytes());
        let config = Config {
            reserved_bytes: Some(memory_bytes),
            checkpoint_every: side.checkpoint_every,
            tracking: setup.tracking,
            policy: setup.policy,
            recency: side.recency,
            compression: side.compression,
            key: side.is_encrypted.then(|| Key::new([0; 32])),
            seed: self.seed,
            lanes: Some(self.lanes(setup) as u16),
            ..Config::new(memory_bytes, budget_bytes)
        };
        StoreOptions {
            dir: setup.dir.clone(),
            config,
            engine: setup.engine,
            direct: setup.direct,
            flush_threads: setup.flush_threads,
            commit_each: false,
        }
    }
}

impl Place {
    /// The setup of the stores under test; `None` for a server that runs already.
    pub fn setup(&self) -> Option<&Setup> {
        match self {
            Self::Embedded(setup) | Self::Array(setup) | Self::Spawned { setup, .. } => Some(setup),
            Self::Server { .. } => None,
        }
    }
}

const RATE_GUESS: f64 = 500_000.0;
const RECORD_OVERHEAD_BYTES: u64 = 96;
const LANES_PER_THREAD: u64 = 128;
/// Threads up to which more lanes are made.
const LANES_THREADS_MAX: usize = 7;
/// Memory of a lane: its own block, and begun spans of a few sizes.
const LANE_BYTES: u64 = 6 * 64 * 1024;
const MEMORY_FLOOR_BYTES: u64 = 64 << 20;
