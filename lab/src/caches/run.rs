//! The runs: each step at each count of operations, modelled and on the machine; the capacity work
//! alone; kinds of logs; sizes of a bucket.
//!
//! A modelled run is one thread that does both kinds of work in turn, so that it can be repeated
//! exactly. On the machine each kind has a thread, and is timed until the first of them is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;

use super::access::Recorder;
use super::estimate::{MemoryTimes, estimates};
use super::frames::{Contiguity, FrameError, FrameReader, FrameSource};
use super::ground::{Watch, WorkError};
use super::heap::{HeapGround, HeapSetup};
use super::model::{CacheShape, CountsByOwner, FlushKind, Owner, ShapeError};
use super::placement::{PlacementError, PlacementSettings, fewer_percent, place};
use super::result::{
    AloneResult, BucketResult, CachesResult, Configuration, LogKind, LogResult, Native, Step,
    StepResult,
};
use super::sys::{CounterError, Counters, PAGE_BYTES};
use super::work::{CapacityWork, HASH_OPERATIONS, HashWork, MIXED};
use perdura_bench::machine::Machine;

/// Bytes that the heap gives to a kind at a time.
const SPAN_BYTES: u64 = 64 << 10;

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct CachesSettings {
    /// Counts of hash operations, in ascending order.
    pub operations: Vec<u64>,
    /// The modelled cache.
    pub cache: CacheShape,
    /// Effect of a flush on a line in the cache.
    pub flush: FlushKind,
    /// Records in the log of the base step.
    pub base_log: LogKind,
    /// Assumed times of the memory.
    pub times: MemoryTimes,
    /// Size of a bucket from the second step on.
    pub bucket_bytes: u64,
    /// Sizes of a bucket to compare.
    pub buckets_bytes: Vec<u64>,
    /// Size of the heap.
    pub heap_bytes: u64,
    /// Size of the capacity work's table.
    pub hot_bytes: u64,
    /// Size of the records that the capacity work keeps.
    pub kept_bytes: u64,
    /// Steps of capacity work for each hash operation.
    pub capacity_steps_per_operation: u64,
    /// Bytes of each kind in the runs that only place pages.
    pub placement_bytes: usize,
    /// Whether the work is also timed on the machine.
    pub is_timed: bool,
    /// Whether page frames are read where the kernel shows them.
    pub uses_frames: bool,
    /// Seed of all random streams.
    pub seed: u64,
}

impl Default for CachesSettings {
    fn default() -> Self {
        Self {
            operations: vec![600_000, 800_000, 1_000_000, 1_500_000],
            cache: CacheShape::default(),
            flush: FlushKind::default(),
            base_log: LogKind::Words,
            times: MemoryTimes::default(),
            bucket_bytes: 2 << 20,
            buckets_bytes: [64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20, 16 << 20].into(),
            heap_bytes: 1 << 30,
            hot_bytes: 512 << 10,
            kept_bytes: 32 << 20,
            capacity_steps_per_operation: 1,
            placement_bytes: 64 << 20,
            is_timed: true,
            uses_frames: true,
            seed: 1,
        }
    }
}

/// Why a run cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum CachesError {
    /// The modelled cache's shape is impossible.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The work failed.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// Pages cannot be placed.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// Frame numbers cannot be read.
    #[error(transparent)]
    Frames(#[from] FrameError),
    /// Hardware counters cannot be read.
    #[error(transparent)]
    Counters(#[from] CounterError),
}

/// Runs everything. `progress` is told the parts done and the number of parts.
///
/// # Errors
/// The cache's shape is impossible, memory is short, or the work finds its data changed.
pub fn run(
    settings: &CachesSettings,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<CachesResult, CachesError> {
    let bench = Bench { settings };
    let parts = 5 * settings.operations.len() + LogKind::ALL.len() + settings.buckets_bytes.len();
    let mut done = 0;
    let mut advance = || {
        done += 1;
        progress(done, parts as u64);
    };
    let machine = Machine::here();
    let reader = bench.reader();
    let placement = PlacementSettings {
        kind_bytes: settings.placement_bytes,
        buckets_bytes: settings.buckets_bytes.iter().map(|bytes| *bytes as usize).collect(),
        threads: vec![1, 2],
    };
    let placement = place(&placement, &reader)?;
    let (mut steps, mut alone) = (Vec::new(), Vec::new());
    for operations in &settings.operations {
        alone.push(bench.alone(*operations)?);
        advance();
        let mut base: Option<StepResult> = None;
        for step in Step::ALL {
            let mut found = bench.step(step, *operations)?;
            compare(settings, &mut found, base.as_ref());
            base.get_or_insert_with(|| found.clone());
            steps.push(found);
            advance();
        }
    }
    let mut logs = Vec::new();
    for log in LogKind::ALL {
        logs.push(bench.log(log)?);
        advance();
    }
    let mut buckets = Vec::new();
    for bucket_bytes in &settings.buckets_bytes {
        buckets.push(bench.bucket(*bucket_bytes)?);
        advance();
    }
    let (_, missing) = Counters::open();
    Ok(CachesResult {
        kind: "heap_caches".into(),
        machine,
        configuration: bench.configuration(),
        frames: reader.source(),
        counters_missing: missing.iter().map(CounterError::to_string).collect(),
        placement,
        steps,
        alone,
        logs,
        buckets,
    })
}

/// Notes how a step compares with the base; the base is compared with itself.
fn compare(settings: &CachesSettings, found: &mut StepResult, base: Option<&StepResult>) {
    let now = found.modelled.total();
    let before = base.map_or(now, |base| base.modelled.total());
    found.modelled_times = estimates(&settings.times, before, now);
    let Some(base) = base else { return };
    found.modelled_misses_fewer_percent = fewer_percent(Some(before.misses), Some(now.misses));
    // Steps may have different numbers of pages, so breaks are compared per page.
    let per_million = |step: &StepResult| {
        let (a, b) = (step.persistent?, step.capacity?);
        Some(1_000_000 * (a.breaks + b.breaks) / (a.pages + b.pages).max(1))
    };
    found.breaks_fewer_percent = fewer_percent(per_million(base), per_million(found));
}

struct Bench<'s> {
    settings: &'s CachesSettings,
}

/// The results of a modelled run.
struct Modelled {
    counts: CountsByOwner,
    persistent: Option<Contiguity>,
    capacity: Option<Contiguity>,
    pages_moved: u64,
    lines_flushed: u64,
    resident_per_live: Option<f64>,
}

impl Bench<'_> {
    fn reader(&self) -> FrameReader {
        if self.settings.uses_frames { FrameReader::open() } else { FrameReader::hidden() }
    }

    fn setup(&self, step: Step) -> HeapSetup {
        let is_at_least = |wanted: Step| step as usize >= wanted as usize;
        HeapSetup {
            heap_bytes: self.settings.heap_bytes,
            bucket_bytes: is_at_least(Step::Caa).then_some(self.settings.bucket_bytes),
            is_logged: is_at_least(Step::Nvma),
            log: if is_at_least(Step::Hybrid) { LogKind::Hybrid } else { self.settings.base_log },
        }
    }

    fn step(&self, step: Step, operations: u64) -> Result<StepResult, CachesError> {
        let setup = self.setup(step);
        let modelled = self.modelled(setup, operations, true)?;
        Ok(StepResult {
            step,
            operations,
            modelled: modelled.counts,
            modelled_misses_fewer_percent: None,
            modelled_times: Vec::new(),
            persistent: modelled.persistent,
            capacity: modelled.capacity,
            breaks_fewer_percent: None,
            pages_moved: modelled.pages_moved,
            lines_flushed_per_operation: modelled.lines_flushed as f64 / operations.max(1) as f64,
            native: self.native(setup, operations, true)?,
        })
    }

    /// Runs the capacity work as in the base, without the hash table.
    fn alone(&self, operations: u64) -> Result<AloneResult, CachesError> {
        let setup = self.setup(Step::Base);
        Ok(AloneResult {
            operations,
            modelled: self.modelled(setup, operations, false)?.counts,
            native: self.native(setup, operations, false)?,
        })
    }

    fn modelled(
        &self,
        setup: HeapSetup,
        operations: u64,
        has_table: bool,
    ) -> Result<Modelled, CachesError> {
        let settings = self.settings;
        let reader = self.reader();
        let recorder = Recorder::new(settings.cache, settings.flush, reader, setup.bucket_bytes)?;
        let recorder = Arc::new(Mutex::new(recorder));
        let ground = HeapGround::watched(setup, Some(Arc::clone(&recorder)))?;
        let watch = Watch(Some(&recorder));
        let mut hash = has_table
            .then(|| HashWork::new(&ground, watch, HASH_OPERATIONS, operations, settings.seed))
            .transpose()?;
        let mut capacity = self.capacity(&ground, watch)?;
        recorder.lock().forget_counts();
        let flushed = || ground.tally().map_or(0, |tally| tally.lines_flushed.load(Relaxed));
        let flushed_before = flushed();
        for _ in 0..operations {
            if let Some(hash) = &mut hash {
                hash.step()?;
            }
            for _ in 0..settings.capacity_steps_per_operation {
                capacity.step()?;
            }
        }
        let live_bytes = capacity.live_bytes() + hash.as_ref().map_or(0, HashWork::live_bytes);
        let lines_flushed = flushed() - flushed_before;
        let mut recorder = recorder.lock();
        let counts = recorder.counts();
        let pages_moved = recorder.pages_moved()?;
        let [persistent, capacity] = self.contiguity(&recorder, &ground)?;
        let pages = |kind: Option<Contiguity>| kind.map(|kind| kind.pages);
        let resident = pages(persistent).zip(pages(capacity));
        Ok(Modelled {
            counts,
            persistent,
            capacity,
            pages_moved,
            lines_flushed,
            resident_per_live: resident
                .map(|(a, b)| ((a + b) * PAGE_BYTES as u64) as f64 / live_bytes.max(1) as f64),
        })
    }

    fn capacity<'g>(
        &self,
        ground: &'g HeapGround,
        watch: Watch<'g>,
    ) -> Result<CapacityWork<'g, HeapGround>, WorkError> {
        let CachesSettings { hot_bytes, kept_bytes, seed, .. } = self.settings;
        CapacityWork::new(ground, watch, *hot_bytes as usize, *kept_bytes, *seed)
    }

    /// Contiguity by kind. A span has the kind whose access met its first page.
    fn contiguity(
        &self,
        recorder: &Recorder,
        ground: &HeapGround,
    ) -> Result<[Option<Contiguity>; 2], FrameError> {
        let reader = self.reader();
        if reader.source() == FrameSource::Hidden {
            return Ok([None, None]);
        }
        let mut spans = BTreeMap::new();
        let end = ground.base() + ground.heap_bytes();
        for (page, owner) in recorder.pages_between(ground.base(), end) {
            let offset = page * PAGE_BYTES as u64 - ground.base();
            spans.entry(offset / SPAN_BYTES).or_insert(owner == Owner::CapacityData);
        }
        let mut frames = [Vec::new(), Vec::new()];
        for (span, is_capacity) in spans {
            let address = ground.base() + span * SPAN_BYTES;
            let found = reader.frames(address, SPAN_BYTES as usize / PAGE_BYTES)?;
            frames[usize::from(is_capacity)].extend(found);
        }
        Ok(frames.map(|frames| Some(Contiguity::of(&frames))))
    }

    /// Runs the same work on the machine, a thread for each kind, until the first is done.
    fn native(
        &self,
        setup: HeapSetup,
        operations: u64,
        has_table: bool,
    ) -> Result<Option<Native>, CachesError> {
        if !self.settings.is_timed {
            return Ok(None);
        }
        let ground = HeapGround::bare(setup)?;
        let mut capacity = self.capacity(&ground, Watch(None))?;
        let seed = self.settings.seed;
        let mut hash = has_table
            .then(|| HashWork::new(&ground, Watch(None), HASH_OPERATIONS, operations, seed))
            .transpose()?;
        let capacity_steps = operations * self.settings.capacity_steps_per_operation;
        let (mut counters, _) = Counters::open();
        let before = counters.read()?;
        let is_over = AtomicBool::new(false);
        let timed = std::thread::scope(|scope| {
            let beside = hash.as_mut().map(|hash| {
                let is_over = &is_over;
                scope.spawn(move || until(is_over, operations, || hash.step()))
            });
            let capacity_ns = until(&is_over, capacity_steps, || capacity.step());
            let operation_ns = beside.map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            Ok::<_, WorkError>((operation_ns.transpose()?, capacity_ns?))
        });
        let (operation_ns, capacity_step_ns) = timed?;
        let after = counters.read()?;
        let counted = before.iter().zip(after);
        let counters = counted
            .map(|((counter, before), (_, after))| (counter.name().to_owned(), after - before))
            .collect();
        Ok(Some(Native { operation_ns, capacity_step_ns, counters }))
    }

    fn log(&self, log: LogKind) -> Result<LogResult, CachesError> {
        let transactions = self.settings.operations.first().copied().unwrap_or(0) / 4;
        let setup = HeapSetup { log, ..self.setup(Step::Hybrid) };
        let ground = HeapGround::watched(setup, None)?;
        let mut work =
            HashWork::new(&ground, Watch(None), MIXED, transactions / 4, self.settings.seed)?;
        let count = || {
            ground.tally().map_or([0; 3], |tally| {
                [&tally.log_bytes, &tally.lines_flushed, &tally.fences].map(|n| n.load(Relaxed))
            })
        };
        let before = count();
        for _ in 0..transactions {
            work.step()?;
        }
        let after = count();
        let [log_bytes, lines, fences] = [0, 1, 2].map(|which| after[which] - before[which]);
        let changed_bytes = work.changed_bytes();
        let per_transaction = |count: u64| count as f64 / transactions.max(1) as f64;
        Ok(LogResult {
            log,
            transactions,
            changed_bytes,
            log_bytes,
            log_bytes_per_changed_byte: log_bytes as f64 / changed_bytes.max(1) as f64,
            lines_flushed_per_transaction: per_transaction(lines),
            fences_per_transaction: per_transaction(fences),
        })
    }

    fn bucket(&self, bucket_bytes: u64) -> Result<BucketResult, CachesError> {
        let operations = self.settings.operations.first().copied().unwrap_or(0);
        let setup = HeapSetup { bucket_bytes: Some(bucket_bytes), ..self.setup(Step::Hybrid) };
        let modelled = self.modelled(setup, operations, true)?;
        let ground = HeapGround::bare(setup)?;
        let seed = self.settings.seed;
        let mut hash = HashWork::new(&ground, Watch(None), HASH_OPERATIONS, operations, seed)?;
        let mut capacity = self.capacity(&ground, Watch(None))?;
        let (began, mut operation_ns_max) = (Instant::now(), 0);
        let mut last = began;
        for _ in 0..operations {
            hash.step()?;
            for _ in 0..self.settings.capacity_steps_per_operation {
                capacity.step()?;
            }
            let now = Instant::now();
            operation_ns_max = operation_ns_max.max((now - last).as_nanos() as u64);
            last = now;
        }
        Ok(BucketResult {
            bucket_bytes,
            modelled: modelled.counts,
            persistent: modelled.persistent,
            capacity: modelled.capacity,
            resident_per_live: modelled.resident_per_live,
            operation_ns: (last - began).as_nanos() as f64 / operations.max(1) as f64,
            operation_ns_max,
        })
    }

    fn configuration(&self) -> Configuration {
        let settings = self.settings;
        Configuration {
            cache: settings.cache,
            flush: settings.flush,
            base_log: settings.base_log,
            times: settings.times.clone(),
            bucket_bytes: settings.bucket_bytes,
            heap_bytes: settings.heap_bytes,
            hot_bytes: settings.hot_bytes,
            kept_bytes: settings.kept_bytes,
            capacity_steps_per_operation: settings.capacity_steps_per_operation,
            seed: settings.seed,
        }
    }
}

/// Steps until all are done or another thread is done; returns nanoseconds a step.
fn until(
    is_over: &AtomicBool,
    steps: u64,
    mut step: impl FnMut() -> Result<(), WorkError>,
) -> Result<f64, WorkError> {
    let (began, mut done) = (Instant::now(), 0);
    while done < steps && !is_over.load(Relaxed) {
        if let Err(error) = step() {
            is_over.store(true, Relaxed);
            return Err(error);
        }
        done += 1;
    }
    is_over.store(true, Relaxed);
    Ok(began.elapsed().as_nanos() as f64 / done.max(1) as f64)
}
