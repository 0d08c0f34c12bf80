//! Perdura against each rival: both open at once, the same streams, slices in turn, the order
//! swapped from pair to pair, as `bench ycsb` does with two budgets.
//!
//! One rival at a time: ten engines open at once would compact behind each other's backs.
//!
//! Bytes written to the SSD: Perdura counts its own; the rival's are the rest, once of what the
//! device counts, which holds all that other programs write, and once of what the system counts for
//! this process, which takes a page of the page cache when it gets dirty. Both sides are charged
//! until all is on the SSD: the page cache is written back before the first slice and after the
//! last, and what is dirty in Perdura then is added.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use perdura_bench::dist::Chooser;
use perdura_bench::drive::{Crew, Plan, Quota, Slice, load};
use perdura_bench::pairs::Ratio;
use perdura_bench::tally::{Summary, Tally, summaries};
use perdura_bench::target::{StoreOptions, StoreTarget, Target, TargetError};
use perdura_bench::workload::{KeySpace, Pool};
use perdura_bench::ycsb::{Setup, YcsbSettings};
use serde::Serialize;

use crate::engine::EngineTarget;
use crate::engines::Rival;

/// What to measure.
#[derive(Debug, Clone)]
pub struct ContestSettings {
    /// Workload, records, budget; its place is the embedded store.
    pub ycsb: YcsbSettings,
    /// How Perdura's store is set up, and where the rivals' files go.
    pub setup: Setup,
    /// Perdura's writes are on the SSD when they are done.
    pub commit_each: bool,
}

/// Perdura beside one rival.
#[derive(Debug, Clone, Serialize)]
pub struct Duel {
    /// The engine.
    pub engine: &'static str,
    /// Its mode.
    pub mode: &'static str,
    /// What the rival's acknowledged writes survive.
    pub survives: String,
    /// Perdura's throughput over the rival's, geometric mean over pairs of slices.
    pub ratio: Option<f64>,
    /// Its 95 % interval.
    pub ratio_ci95: Option<[f64; 2]>,
    /// Each pair's ratio.
    pub ratio_per_pair: Vec<f64>,
    /// Perdura.
    pub perdura: Side,
    /// The rival.
    pub rival: Side,
}

impl Duel {
    /// Operations that failed or did not find their record.
    pub fn failures(&self) -> u64 {
        [&self.perdura, &self.rival].iter().map(|side| side.errors + side.missing).sum()
    }
}

/// One side of it.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// How it was set up.
    pub target: String,
    /// Operations done.
    pub operations: u64,
    /// Time of the slices, nanoseconds.
    pub elapsed_ns: u64,
    /// Operations over time.
    pub throughput_ops_per_s: f64,
    /// By kind of operation.
    pub latency_ns: BTreeMap<String, Summary>,
    /// Processor time of this process in its slices, nanoseconds an operation.
    pub cpu_ns_per_operation: Option<f64>,
    /// Operations refused.
    pub errors: u64,
    /// Operations that did not find their record.
    pub missing: u64,
    /// The first refusal.
    pub first_error: Option<String>,
    /// Keys and values written.
    pub user_bytes_written: u64,
    /// Written to the SSD from the first slice on, until all is there: Perdura's own count and what
    /// is dirty at the end; the rival's: what the device counts less Perdura's.
    pub ssd_bytes_written: Option<u64>,
    /// The rival's: write_bytes of /proc/self/io less Perdura's own count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_bytes_written: Option<u64>,
}

/// Measures one rival. Loads both sides anew.
///
/// # Errors
/// A side cannot be had or is lost; operations that are refused are counted instead.
pub fn duel(settings: &ContestSettings, rival: &Rival) -> Result<Duel, TargetError> {
    let ContestSettings { ycsb, setup, commit_each } = settings;
    let pool = Pool::new(ycsb.seed, &ycsb.layout);
    let options = ycsb.store_options(setup, &ycsb.side);
    let options = StoreOptions { commit_each: *commit_each, ..options };
    let perdura = StoreTarget::create(&options, ycsb.layout.clone())?;
    let at = |source| TargetError::File { path: setup.dir.clone(), source };
    // Before the engine, so that it is removed after it is closed.
    let dir = tempfile::tempdir_in(&setup.dir).map_err(at)?;
    let engine = (rival.open)(dir.path(), ycsb.data_bytes())?;
    let about = format!("{}: {}", rival.name(), rival.about);
    let engine = EngineTarget::new(engine, about, ycsb.layout.clone());
    let targets: [&dyn Target; 2] = [&perdura, &engine];
    let spaces = [(); 2].map(|()| KeySpace::new(ycsb.records));
    let [ours, theirs] = &spaces;
    let plans = [ours, theirs].map(|keys| plan(ycsb, keys, &pool));
    for (target, plan) in targets.iter().zip(&plans) {
        load(*target, plan, ycsb.threads, ycsb.seed, &|_| ())?;
    }
    let [perdura, other] = measure(ycsb, targets, &plans, dir.path())?;
    let ratio = Ratio::of(&perdura.throughputs(), &other.throughputs());
    Ok(Duel {
        engine: rival.engine,
        mode: rival.mode,
        survives: rival.survives.to_string(),
        ratio: ratio.as_ref().map(|ratio| ratio.ratio),
        ratio_ci95: ratio.as_ref().map(|ratio| ratio.ci95),
        ratio_per_pair: ratio.map(|ratio| ratio.per_pair).unwrap_or_default(),
        perdura: perdura.side(targets[0]),
        rival: other.side(targets[1]),
    })
}

fn plan<'p>(ycsb: &'p YcsbSettings, keys: &'p KeySpace, pool: &'p Pool) -> Plan<'p> {
    Plan {
        workload: ycsb.workload,
        keys,
        layout: &ycsb.layout,
        pool,
        scan_max: ycsb.scan_max,
        rate: ycsb.rate,
        pipeline: 1,
        think: ycsb.think,
    }
}

/// A side's slices.
struct Measured {
    slices: Vec<Slice>,
    tally: Tally,
    ssd_bytes: Option<u64>,
    process_bytes: Option<u64>,
}

/// Counts of bytes written.
#[derive(Debug, Clone, Copy)]
struct Written {
    /// Perdura's, to the device.
    ours: Option<u64>,
    /// What is dirty in Perdura.
    dirty: Option<u64>,
    /// All that went to the device.
    device: Option<u64>,
    /// All that this process caused.
    process: Option<u64>,
}

impl Written {
    /// Once the page cache holds nothing new of the file system of `dir`.
    fn now(perdura: &dyn Target, dir: &Path) -> Result<Self, TargetError> {
        let at = |source| TargetError::File { path: dir.to_owned(), source };
        rest();
        let folder = File::open(dir).map_err(at)?;
        rustix::fs::syncfs(&folder).map_err(|errno| at(errno.into()))?;
        let device = folder.metadata().map_err(at)?.dev();
        let figures = perdura.figures()?;
        Ok(Self {
            // Zeros written ahead are ours, too.
            ours: figures
                .get("device_bytes")
                .map(|bytes| bytes + figures.get("written_ahead_bytes").unwrap_or(0)),
            dirty: figures.get("dirty_bytes"),
            device: device_written_bytes(device),
            process: process_written_bytes(),
        })
    }
}

fn measure<'p>(
    ycsb: &'p YcsbSettings,
    targets: [&'p dyn Target; 2],
    plans: &'p [Plan<'p>; 2],
    dir: &Path,
) -> Result<[Measured; 2], TargetError> {
    let chooser = Chooser::new(ycsb.distribution(), ycsb.records, ycsb.expected_new());
    let crew =
        |side: usize| Crew::new(&plans[side], targets[side], ycsb.threads, &chooser, ycsb.seed);
    let mut crews = [crew(0)?, crew(1)?];
    let mut slices = [Vec::new(), Vec::new()];
    let before = Written::now(targets[0], dir)?;
    for pair in 0..ycsb.pairs {
        let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            rest();
            let quota = part(ycsb.quota, pair as u64, ycsb.pairs as u64);
            slices[side].push(crews[side].slice(quota, &|_| ())?);
        }
    }
    let after = Written::now(targets[0], dir)?;
    let since = |count: fn(&Written) -> Option<u64>| {
        let counts = count(&after).zip(count(&before));
        counts.map(|(after, before)| after.saturating_sub(before))
    };
    let ours = since(|written| written.ours);
    let less_ours = |all: Option<u64>| all.zip(ours).map(|(all, ours)| all.saturating_sub(ours));
    let ours_with_dirty = ours.zip(after.dirty).zip(before.dirty).map(|((ours, now), then)| {
        // What was dirty from the loading may be among what was written.
        (ours + now).saturating_sub(then)
    });
    let [our_slices, their_slices] = slices;
    let [our_crew, their_crew] = &crews;
    Ok([
        Measured {
            slices: our_slices,
            tally: our_crew.tally(),
            ssd_bytes: ours_with_dirty,
            process_bytes: None,
        },
        Measured {
            slices: their_slices,
            tally: their_crew.tally(),
            ssd_bytes: less_ours(since(|written| written.device)),
            process_bytes: less_ours(since(|written| written.process)),
        },
    ])
}

fn part(quota: Quota, index: u64, of: u64) -> Quota {
    match quota {
        Quota::Operations(all) => {
            Quota::Operations((all / of + u64::from(index < all % of)).max(1))
        }
        Quota::Time(time) => Quota::Time(time / of as u32),
    }
}

const REST_LOOK_EVERY: Duration = Duration::from_millis(20);
const REST_WITHIN: Duration = Duration::from_secs(1);

/// Waits until this process writes nothing, for a second at most: compaction that lasts longer is
/// measured beside.
fn rest() {
    let began = Instant::now();
    let mut written = process_written_bytes();
    while written.is_some() && began.elapsed() < REST_WITHIN {
        std::thread::sleep(REST_LOOK_EVERY);
        let now = process_written_bytes();
        if now == written {
            return;
        }
        written = now;
    }
}

/// What this process has caused to be written, as the system counts: direct writes, and pages of
/// the page cache when they become dirty.
fn process_written_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.parse().ok()
}

/// What a block device has written, by its own count; `None`: the files lie on none.
fn device_written_bytes(device: u64) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let sectors: u64 = text.split_whitespace().nth(SECTORS_WRITTEN)?.parse().ok()?;
    Some(sectors * SECTOR_BYTES)
}

/// Documentation/block/stat.rst.
const SECTORS_WRITTEN: usize = 6;
const SECTOR_BYTES: u64 = 512;

impl Measured {
    fn throughputs(&self) -> Vec<f64> {
        let of = |slice: &Slice| slice.operations as f64 / (slice.elapsed_ns.max(1) as f64 / 1e9);
        self.slices.iter().map(of).collect()
    }

    fn side(self, target: &dyn Target) -> Side {
        let elapsed_ns = self.slices.iter().map(|slice| slice.elapsed_ns).sum::<u64>().max(1);
        let cpu_ns: Option<u64> = self.slices.iter().map(|slice| slice.cpu_ns).sum();
        let operations = self.tally.operations;
        Side {
            target: target.describe(),
            operations,
            elapsed_ns,
            throughput_ops_per_s: operations as f64 / (elapsed_ns as f64 / 1e9),
            latency_ns: summaries(&self.tally.latency),
            cpu_ns_per_operation: cpu_ns.map(|ns| ns as f64 / operations.max(1) as f64),
            errors: self.tally.errors,
            missing: self.tally.missing,
            first_error: self.tally.first_error,
            user_bytes_written: self.tally.user_bytes,
            ssd_bytes_written: self.ssd_bytes,
            process_bytes_written: self.process_bytes,
        }
    }
}
