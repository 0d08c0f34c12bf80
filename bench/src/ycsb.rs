//! A run of `bench ycsb`: opens and loads the sides, runs slices in turn, and collects each side's
//! results.
//!
//! Two sides are open at the same time, and do the same streams of operations in their own slices.
//! While one is measured, the other may still be cleaning after its slice; so before each slice the
//! other side gets time to come to rest (bounded: a store that goes on writing does so during the
//! measurement).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use perdura_media::file::{Direct, Engine};
use perdura_region::{
    BUDGET_MIN_BYTES, Compression, Config, PolicyKind, REGION_MIN_BYTES, TrackingKind,
};

use crate::causes::{Causes, trap_ns};
use crate::dist::{Chooser, Distribution};
use crate::drive::{Crew, Plan, Quota, Slice, load};
use crate::machine::Machine;
use crate::pairs::Ratio;
use crate::report::{Configuration, SideResult, YcsbResult};
use crate::tally::summaries;
use crate::target::{
    ArrayTarget, Figures, RedisTarget, SpawnOptions, SpawnedTarget, StoreOptions, StoreTarget,
    Target, TargetError,
};
use crate::workload::{KeySpace, Layout, Pool, Workload};

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
    /// The first side.
    pub side: SideSettings,
    /// The second side.
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
    /// The way to notice writes.
    pub tracking: TrackingKind,
    /// Victim policy.
    pub policy: PolicyKind,
    /// The way to write the image.
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
    /// Time between checkpoints.
    pub checkpoint_every: Option<Duration>,
}

/// A budget.
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

/// Called with the text of the present work, its progress, and its total.
pub type Progress<'p> = &'p (dyn Fn(&str, u64, u64) + Sync);

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
    fn memory_bytes(&self, setup: &Setup) -> u64 {
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
    fn sides(&self) -> Vec<SideSettings> {
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
    /// The setup of its stores; `None` if they run already.
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
const REST_LOOK_EVERY: Duration = Duration::from_millis(20);
const REST_WITHIN: Duration = Duration::from_secs(1);

/// Runs the workload.
///
/// # Errors
/// A target cannot be opened or fails. Operations that are refused are counted in the result
/// instead.
pub fn run(settings: &YcsbSettings, progress: Progress<'_>) -> Result<YcsbResult, TargetError> {
    let mut bed = Bed::prepare(settings, progress)?;
    bed.measure(settings, true, progress)
}

/// Targets that are open and loaded.
pub(crate) struct Bed {
    machine: Machine,
    pool: Pool,
    targets: Vec<Box<dyn Target>>,
    spaces: Vec<KeySpace>,
    trap_ns: Option<f64>,
}

impl Bed {
    pub fn prepare(settings: &YcsbSettings, progress: Progress<'_>) -> Result<Self, TargetError> {
        let machine = Machine::here();
        let pool = Pool::new(settings.seed, &settings.layout);
        let sides = settings.sides();
        let targets =
            sides.iter().map(|side| open(settings, side)).collect::<Result<Vec<_>, _>>()?;
        let spaces: Vec<_> = sides.iter().map(|_| KeySpace::new(settings.records)).collect();
        let trap_ns = price_of_a_trap(settings)?;
        if settings.load {
            for (target, keys) in targets.iter().zip(&spaces) {
                let told = |done| progress("loading", done, settings.records);
                let plan = plan(settings, keys, &pool);
                load(&**target, &plan, settings.threads, settings.seed, &told)?;
            }
        }
        Ok(Self { machine, pool, targets, spaces, trap_ns })
    }

    /// Measures with the budgets of `settings`, whose other values are those of the bed. At the
    /// last call all dirty bytes are flushed at the end; before, the dirty bytes are counted as a
    /// flush's.
    pub fn measure(
        &mut self,
        settings: &YcsbSettings,
        is_last: bool,
        progress: Progress<'_>,
    ) -> Result<YcsbResult, TargetError> {
        let sides = settings.sides();
        for (target, side) in self.targets.iter().zip(&sides) {
            // Begins the high-water mark anew, if the target has one.
            match target.set_budget(side.budget.bytes_of(settings.data_bytes())) {
                Ok(()) | Err(TargetError::Unsupported { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let plans: Vec<_> =
            self.spaces.iter().map(|keys| plan(settings, keys, &self.pool)).collect();
        let measured = measure(settings, &sides, &self.targets, &plans, progress)?;
        let throughputs: Vec<_> = measured.iter().map(Measured::throughputs).collect();
        let mut results = measured
            .into_iter()
            .zip(&mut self.targets)
            .map(|(side, target)| side.result(settings, &mut **target, is_last))
            .collect::<Result<Vec<_>, _>>()?
            .into_iter();
        let mut result = YcsbResult {
            kind: "ycsb".into(),
            workload: settings.workload.name.into(),
            machine: self.machine.clone(),
            configuration: settings.configuration(),
            ratio: None,
            ratio_ci95: None,
            ratio_per_pair: Vec::new(),
            side: results.next().unwrap_or_default(),
            compare: settings.compare.and_then(|_| results.next()),
            without_recency: results.next(),
            causes: None,
        };
        if settings.compare.is_some() {
            result.set_ratio(Ratio::of(&throughputs[0], &throughputs[1]));
            result.causes = Causes::of(&result, self.trap_ns);
        }
        if let (Some(causes), true) = (&mut result.causes, settings.ablate_recency) {
            let without = throughputs.last().and_then(|last| Ratio::of(last, &throughputs[0]));
            causes.without_recency_ratio = without.as_ref().map(|without| without.ratio);
            causes.without_recency_ci95 = without.map(|without| without.ci95);
        }
        Ok(result)
    }
}

fn price_of_a_trap(settings: &YcsbSettings) -> Result<Option<f64>, TargetError> {
    match &settings.place {
        Place::Embedded(setup) | Place::Array(setup)
            if setup.tracking != TrackingKind::Barrier && settings.compare.is_some() =>
        {
            trap_ns(&settings.store_options(setup, &settings.side))
        }
        _ => Ok(None),
    }
}

fn plan<'p>(settings: &'p YcsbSettings, keys: &'p KeySpace, pool: &'p Pool) -> Plan<'p> {
    Plan {
        workload: settings.workload,
        keys,
        layout: &settings.layout,
        pool,
        scan_max: settings.scan_max,
        rate: settings.rate,
        pipeline: settings.pipeline,
        think: settings.think,
    }
}

fn open(settings: &YcsbSettings, side: &SideSettings) -> Result<Box<dyn Target>, TargetError> {
    let budget_bytes = side.budget.bytes_of(settings.data_bytes());
    let layout = settings.layout.clone();
    let indexed = settings.workload.scans();
    Ok(match &settings.place {
        Place::Embedded(setup) => {
            Box::new(StoreTarget::create(&settings.store_options(setup, side), layout)?)
        }
        Place::Array(setup) => {
            Box::new(ArrayTarget::create(&settings.store_options(setup, side), layout)?)
        }
        Place::Spawned { setup, program } => {
            let every = side.checkpoint_every;
            let checkpoint = every.map_or("off".into(), |every| format!("{}ms", every.as_millis()));
            let options = SpawnOptions {
                program: program.clone(),
                dir: setup.dir.clone(),
                memory_bytes: settings.memory_bytes(setup),
                budget_bytes,
                extra: [
                    ["--checkpoint", &checkpoint],
                    ["--policy", setup.policy.name()],
                    ["--compress", side.compression.name()],
                ]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            };
            Box::new(SpawnedTarget::start(&options, &layout, indexed)?)
        }
        Place::Server { address, password } => {
            Box::new(RedisTarget::connect(address, password.clone(), layout, indexed)?)
        }
    })
}

/// A side during its measurement and after it.
struct Measured {
    slices: Vec<Slice>,
    tally: crate::tally::Tally,
    before: Figures,
    after: Figures,
    side: SideSettings,
}

fn measure(
    settings: &YcsbSettings,
    sides: &[SideSettings],
    opened: &[Box<dyn Target>],
    plans: &[Plan<'_>],
    progress: Progress<'_>,
) -> Result<Vec<Measured>, TargetError> {
    let chooser = Chooser::new(settings.distribution(), settings.records, settings.expected_new());
    let mut crews = opened
        .iter()
        .zip(plans)
        .map(|(target, plan)| Crew::new(plan, &**target, settings.threads, &chooser, settings.seed))
        .collect::<Result<Vec<_>, _>>()?;
    let before = figures(&crews)?;
    let mut slices = vec![Vec::new(); crews.len()];
    let whole = (settings.pairs * crews.len()) as u64;
    for pair in 0..settings.pairs {
        let quota = part(settings.quota, pair as u64, settings.pairs as u64);
        for turn in 0..crews.len() {
            // The side that was first in a round is last in the next.
            let index = if pair % 2 == 0 { turn } else { crews.len() - 1 - turn };
            rest(&crews, index)?;
            let sliced = (pair * crews.len() + turn) as u64;
            let told = |done: u64| match quota {
                Quota::Operations(of) => {
                    progress("measuring", sliced * of + done, whole * of);
                }
                Quota::Time(_) => progress("measuring", sliced, whole),
            };
            slices[index].push(crews[index].slice(quota, &told)?);
        }
    }
    let after = figures(&crews)?;
    let figures = before.into_iter().zip(after);
    Ok(crews
        .iter()
        .zip(slices)
        .zip(figures)
        .zip(sides)
        .map(|(((crew, slices), (before, after)), side)| Measured {
            slices,
            tally: crew.tally(),
            before,
            after,
            side: *side,
        })
        .collect())
}

fn figures(crews: &[Crew<'_>]) -> Result<Vec<Figures>, TargetError> {
    crews.iter().map(|crew| crew.target().figures()).collect()
}

/// A slice's part of a quota.
fn part(quota: Quota, index: u64, of: u64) -> Quota {
    match quota {
        Quota::Operations(all) => {
            Quota::Operations((all / of + u64::from(index < all % of)).max(1))
        }
        Quota::Time(time) => Quota::Time(time / of as u32),
    }
}

/// Waits until the sides other than `index` write nothing to their SSD, for a second at most.
fn rest(crews: &[Crew<'_>], index: usize) -> Result<(), TargetError> {
    let began = Instant::now();
    for (_, other) in crews.iter().enumerate().filter(|(other, _)| *other != index) {
        let mut written = other.target().figures()?.get("device_bytes");
        while written.is_some() && began.elapsed() < REST_WITHIN {
            std::thread::sleep(REST_LOOK_EVERY);
            let now = other.target().figures()?.get("device_bytes");
            if now == written {
                break;
            }
            written = now;
        }
    }
    Ok(())
}

impl Measured {
    fn throughputs(&self) -> Vec<f64> {
        let of = |slice: &Slice| slice.operations as f64 / (slice.elapsed_ns.max(1) as f64 / 1e9);
        self.slices.iter().map(of).collect()
    }

    fn result(
        self,
        settings: &YcsbSettings,
        target: &mut dyn Target,
        is_last: bool,
    ) -> Result<SideResult, TargetError> {
        let since = self.after.since(&self.before);
        let elapsed_ns = self.slices.iter().map(|slice| slice.elapsed_ns).sum::<u64>().max(1);
        let cpu_ns: Option<u64> = self.slices.iter().map(|slice| slice.cpu_ns).sum();
        let operations = self.tally.operations;
        let target_name = target.describe();
        let flush = if is_last { target.finish()? } else { None };
        let ssd_bytes = since.get("device_bytes");
        let to_flush = flush.map(|flush| flush.device_bytes).or(since.get("dirty_bytes"));
        let with_flush = ssd_bytes.zip(to_flush).map(|(bytes, flushed)| bytes + flushed);
        let per_s = |bytes: u64| bytes as f64 / (elapsed_ns as f64 / 1e9);
        let budget_bytes = since.get("budget_bytes");
        let data_bytes = settings.data_bytes() as f64;
        let has_compressed = since.get("compression_in_bytes").is_some_and(|bytes| bytes > 0);
        let compressed = |name| since.get(name).filter(|_| has_compressed);
        Ok(SideResult {
            target: target_name,
            budget_percent: budget_bytes.map(|_| match self.side.budget {
                BudgetShare::Percent(percent) => percent,
                BudgetShare::Bytes(bytes) => 100.0 * bytes as f64 / data_bytes,
            }),
            budget_bytes,
            dirty_bytes_max: since.get("dirty_bytes_max"),
            compression: settings.place.setup().map(|_| self.side.compression.name().into()),
            checkpoint_ns: settings
                .place
                .setup()
                .and(self.side.checkpoint_every)
                .map(|every| every.as_nanos() as u64),
            compression_in_bytes: compressed("compression_in_bytes"),
            compression_out_bytes: compressed("compression_out_bytes"),
            compression_cpu_ns: compressed("compression_cpu_ns"),
            operations,
            elapsed_ns,
            throughput_ops_per_s: operations as f64 / (elapsed_ns as f64 / 1e9),
            latency_ns: summaries(&self.tally.latency),
            service_ns: summaries(&self.tally.service),
            batch_ns: self.tally.batch.summary(),
            errors: self.tally.errors,
            missing: self.tally.missing,
            first_error: self.tally.first_error,
            cpu_ns_per_operation: cpu_ns.map(|ns| ns as f64 / operations.max(1) as f64),
            cpu_of: cpu_ns.map(|_| match settings.place {
                Place::Embedded(_) | Place::Array(_) => {
                    "this process: load generator, store and cleaner".into()
                }
                _ => "the server's process".into(),
            }),
            user_bytes_written: self.tally.user_bytes,
            ssd_bytes_written: ssd_bytes,
            ssd_bytes_written_with_flush: with_flush,
            flush_ns: flush.map(|flush| flush.elapsed_ns),
            write_rate_bytes_per_s: ssd_bytes.map(per_s),
            write_rate_with_flush_bytes_per_s: with_flush.map(per_s),
            stalls: since.get("stalls"),
            stall_ns: since.get("stall_ns"),
            stall_ns_max: since.get("stall_ns_max"),
            traps: since.get("faults"),
            reprotections: since.get("reprotections"),
            figures: since.into_map(),
        })
    }
}
