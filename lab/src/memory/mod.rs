//! `perdura-lab memory`: the bare region under stores of one size, for each way of tracking and
//! victim policy, beside the least that any policy could write.
//!
//! Skewed stores go to records of 1 KiB (or of the store's size, if that is larger) drawn by the
//! distribution, and uniformly within a record. Everything has been written once and is clean at
//! the beginning of each cell; the flush at the end is not counted.

mod bounds;

pub use bounds::{exact_lru, perfect_knowledge};

use std::path::PathBuf;
use std::time::{Duration, Instant};

use perdura_media::file::{Direct, Engine};
use perdura_region::{
    BLOCK_BYTES, BUDGET_MIN_BYTES, Config, LaneId, PolicyKind, Region, TrackingKind,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use serde::{Deserialize, Serialize};

use perdura_bench::dist::{Chooser, Distribution};
use perdura_bench::machine::Machine;
use perdura_bench::target::{StoreOptions, TargetError, new_region};

/// Length of the records that skewed stores go to, bytes.
const RECORD_BYTES: u64 = 1024;
/// Largest store, bytes.
pub const STORE_BYTES_MAX: u64 = 4096;

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct MemorySettings {
    /// Folder for images.
    pub dir: PathBuf,
    /// Size of the memory, bytes.
    pub memory_bytes: u64,
    /// Stores in a cell.
    pub stores: u64,
    /// Lengths of a store, bytes: powers of two from 8 to 4,096.
    pub store_bytes: Vec<u64>,
    /// Distributions of the stores' places.
    pub distributions: Vec<Distribution>,
    /// Ways to track stores.
    pub trackings: Vec<TrackingKind>,
    /// Victim policies.
    pub policies: Vec<PolicyKind>,
    /// Dirty budgets, percent of the memory.
    pub budgets: Vec<f64>,
    /// Rounds in which each cell is measured, in turn with the others; medians are reported.
    pub rounds: usize,
    /// Seed of all random streams.
    pub seed: u64,
    /// Time between checkpoints; the computed bounds assume none.
    pub checkpoint_every: Option<Duration>,
    /// Engine that writes the image.
    pub engine: Engine,
    /// Whether writes bypass the page cache.
    pub direct: Direct,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryResult {
    /// Always `memory`.
    pub kind: String,
    /// The machine that measured.
    pub machine: Machine,
    /// Size of the memory, bytes.
    pub memory_bytes: u64,
    /// Stores in a cell.
    pub stores: u64,
    /// Rounds in which each cell was measured.
    pub rounds: usize,
    /// Seed of all random streams.
    pub seed: u64,
    /// Time between checkpoints, nanoseconds.
    pub checkpoint_ns: Option<u64>,
    /// The cells: every combination of tracking, policy, distribution, store and budget.
    pub cells: Vec<Cell>,
}

/// One combination of settings and its figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Way of tracking stores.
    pub tracking: String,
    /// Victim policy.
    pub policy: String,
    /// Distribution of the stores' places.
    pub distribution: String,
    /// Length of a store, bytes.
    pub store_bytes: u64,
    /// Dirty budget, percent of the memory.
    pub budget_percent: f64,
    /// Dirty budget in force, bytes.
    pub budget_bytes: u64,
    /// Most bytes that were dirty at a time.
    pub dirty_bytes_max: u64,
    /// Time of a store, nanoseconds: median over the rounds.
    pub ns_per_store: f64,
    /// Bytes written to the SSD for each byte stored: median over the rounds.
    pub ssd_bytes_per_user_byte: f64,
    /// Bytes written for each byte stored by the exact order of last stores, simulated; grains
    /// without headers.
    pub exact_lru_bytes_per_user_byte: f64,
    /// Bytes written for each byte stored by a policy that knows the future, simulated: the bound.
    pub perfect_bytes_per_user_byte: f64,
    /// Bytes written over those of the exact order; none if the exact order writes nothing.
    pub over_exact_lru: Option<f64>,
    /// Bytes written over the bound; none if the bound is nothing.
    pub over_perfect: Option<f64>,
    /// Traps a store.
    pub traps_per_store: f64,
}

/// Measures all cells.
///
/// # Errors
/// A region cannot be opened, or its device fails.
pub fn run(
    settings: &MemorySettings,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<MemoryResult, TargetError> {
    let machine = Machine::here();
    let mut cells: Vec<Found> = Vec::new();
    let columns = settings.distributions.len() * settings.store_bytes.len();
    let rows = settings.trackings.len() * settings.policies.len();
    let whole = (settings.rounds * columns * rows * settings.budgets.len()) as u64;
    let mut done = 0;
    for round in 0..settings.rounds {
        let mut index = 0;
        for tracking in &settings.trackings {
            for policy in &settings.policies {
                let bench = Bench::open(settings, *tracking, *policy)?;
                for distribution in &settings.distributions {
                    for store_bytes in &settings.store_bytes {
                        let places = places(settings, *distribution, *store_bytes);
                        for budget in &settings.budgets {
                            let reading = bench.measure(&places, *store_bytes, *budget)?;
                            if round == 0 {
                                let what = (*tracking, *policy, *distribution, *store_bytes);
                                let bounds = bounds(settings, &bench, &places, what, *budget);
                                cells.push(Found::new(what, *budget, bounds));
                            }
                            cells[index].readings.push(reading);
                            (index, done) = (index + 1, done + 1);
                            progress(done, whole);
                        }
                    }
                }
            }
        }
    }
    Ok(MemoryResult {
        kind: "memory".into(),
        machine,
        memory_bytes: settings.memory_bytes,
        stores: settings.stores,
        rounds: settings.rounds,
        seed: settings.seed,
        checkpoint_ns: settings.checkpoint_every.map(|every| every.as_nanos() as u64),
        cells: cells.into_iter().map(|found| found.cell(settings.stores)).collect(),
    })
}

type What = (TrackingKind, PolicyKind, Distribution, u64);

/// Offsets of the stores: multiples of their length.
fn places(settings: &MemorySettings, distribution: Distribution, store_bytes: u64) -> Vec<u64> {
    let record_bytes = RECORD_BYTES.max(store_bytes);
    let records = settings.memory_bytes / record_bytes;
    let mut random = Random::seed_from_u64(settings.seed);
    let mut chooser = Chooser::new(distribution, records, 0);
    let within = record_bytes / store_bytes;
    (0..settings.stores)
        .map(|_| {
            let record = chooser.draw(records, &mut random);
            record * record_bytes + random.random_range(0..within) * store_bytes
        })
        .collect()
}

/// Bytes that the exact order and perfect knowledge would write. A unit is a grain, or a store that
/// covers whole grains.
fn bounds(
    settings: &MemorySettings,
    bench: &Bench,
    places: &[u64],
    (tracking, _, _, store_bytes): What,
    budget: f64,
) -> (u64, u64) {
    let unit_bytes = store_bytes.max(1 << tracking.grain_shift());
    let stream: Vec<u32> = places.iter().map(|place| (place / unit_bytes) as u32).collect();
    let units = (settings.memory_bytes / unit_bytes) as u32;
    let capacity = (bench.budget_bytes(budget) / unit_bytes) as usize;
    (
        exact_lru(stream.iter().copied(), units, capacity) * unit_bytes,
        perfect_knowledge(&stream, units, capacity) * unit_bytes,
    )
}

/// A region on which cells are measured one after the other.
struct Bench {
    region: Region,
    memory_bytes: u64,
    _dir: tempfile::TempDir,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    ns: f64,
    device_bytes: u64,
    faults: u64,
    dirty_bytes_max: u64,
    budget_bytes: u64,
}

impl Bench {
    fn open(
        settings: &MemorySettings,
        tracking: TrackingKind,
        policy: PolicyKind,
    ) -> Result<Self, TargetError> {
        let memory_bytes = settings.memory_bytes;
        let config = Config {
            reserved_bytes: Some(memory_bytes),
            checkpoint_every: settings.checkpoint_every,
            lanes: Some(1),
            tracking,
            policy,
            seed: settings.seed,
            ..Config::new(memory_bytes, memory_bytes)
        };
        let options = StoreOptions {
            dir: settings.dir.clone(),
            config,
            engine: settings.engine,
            direct: settings.direct,
            flush_threads: 1,
            commit_each: false,
        };
        let (region, dir) = new_region(&options)?;
        if region.trapped().is_none() {
            let blocks = region.len_bytes() / BLOCK_BYTES;
            (0..blocks).for_each(|block| region.assign_block(block, LaneId(0)));
        }
        let bench = Self { region, memory_bytes, _dir: dir };
        let all: Vec<u64> = (0..memory_bytes).step_by(STORE_BYTES_MAX as usize).collect();
        bench.store(&all, STORE_BYTES_MAX)?;
        Ok(bench)
    }

    fn budget_bytes(&self, percent: f64) -> u64 {
        ((self.memory_bytes as f64 * percent / 100.0) as u64).max(BUDGET_MIN_BYTES)
    }

    fn measure(
        &self,
        places: &[u64],
        store_bytes: u64,
        percent: f64,
    ) -> Result<Reading, TargetError> {
        self.region.checkpoint()?;
        self.region.set_budget(self.budget_bytes(percent))?;
        let before = self.region.stats();
        let began = Instant::now();
        self.store(places, store_bytes)?;
        let ns = began.elapsed().as_nanos() as f64 / places.len().max(1) as f64;
        let after = self.region.stats();
        Ok(Reading {
            ns,
            device_bytes: after.device_bytes - before.device_bytes,
            faults: after.faults - before.faults,
            dirty_bytes_max: self.region.used_bytes_max(),
            budget_bytes: self.region.budget_bytes(),
        })
    }

    fn store(&self, places: &[u64], store_bytes: u64) -> Result<(), TargetError> {
        let mut bytes = [0u8; STORE_BYTES_MAX as usize];
        let trapped = self.region.trapped();
        for (value, place) in places.iter().enumerate() {
            let bytes = &mut bytes[..store_bytes as usize];
            bytes[..8].copy_from_slice(&(value as u64 | 1).to_le_bytes());
            match &trapped {
                Some(memory) => memory.write(*place, bytes),
                None => self.announce(*place, bytes)?,
            }
        }
        Ok(())
    }

    fn announce(&self, place: u64, bytes: &[u8]) -> Result<(), TargetError> {
        let mut credit = 0;
        loop {
            let mut lane = self.region.lock_with(LaneId(0), credit);
            let need = match lane.write(place, bytes) {
                Ok(()) => return Ok(()),
                Err(need) => need,
            };
            drop(lane);
            credit = self.region.satisfy(need)?;
        }
    }
}

/// Figures of a cell, collected over the rounds.
struct Found {
    what: What,
    budget: f64,
    bounds: (u64, u64),
    readings: Vec<Reading>,
}

impl Found {
    fn new(what: What, budget: f64, bounds: (u64, u64)) -> Self {
        Self { what, budget, bounds, readings: Vec::new() }
    }

    fn cell(self, stores: u64) -> Cell {
        let (tracking, policy, distribution, store_bytes) = self.what;
        let user_bytes = (stores * store_bytes) as f64;
        let median = |of: fn(&Reading) -> f64| median(self.readings.iter().map(of).collect());
        let written = median(|reading| reading.device_bytes as f64);
        let over = |bound: u64| (bound > 0).then(|| written / bound as f64);
        let (lru, perfect) = self.bounds;
        let most = |of: fn(&Reading) -> u64| self.readings.iter().map(of).max().unwrap_or(0);
        Cell {
            tracking: tracking_name(tracking).into(),
            policy: policy.name().into(),
            distribution: distribution.name().into(),
            store_bytes,
            budget_percent: self.budget,
            budget_bytes: most(|reading| reading.budget_bytes),
            dirty_bytes_max: most(|reading| reading.dirty_bytes_max),
            ns_per_store: median(|reading| reading.ns),
            ssd_bytes_per_user_byte: written / user_bytes,
            exact_lru_bytes_per_user_byte: lru as f64 / user_bytes,
            perfect_bytes_per_user_byte: perfect as f64 / user_bytes,
            over_exact_lru: over(lru),
            over_perfect: over(perfect),
            traps_per_store: median(|reading| reading.faults as f64) / stores.max(1) as f64,
        }
    }
}

/// Name of a way of tracking in settings and results.
pub fn tracking_name(tracking: TrackingKind) -> &'static str {
    use perdura_region::TrapKind::*;
    match tracking {
        TrackingKind::Barrier => "barrier",
        TrackingKind::Trap(Auto) => "trap",
        TrackingKind::Trap(UffdSigbus) => "uffd-sigbus",
        TrackingKind::Trap(UffdThread) => "uffd-thread",
        TrackingKind::Trap(Mprotect) => "mprotect",
        TrackingKind::Trap(Guests) => "guests",
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
