//! Perdura against each rival: both open at once, with the same streams, slices in turn, and the
//! order swapped from pair to pair, as `bench ycsb` does with two budgets.
//!
//! One rival runs at a time: ten engines open at once would compact during each other's slices.
//!
//! Bytes written to the SSD: Perdura counts its own, and the rival's are the rest of two counts.
//! One is the device's count, which includes the writes of all other programs. The other is the
//! system's count for this process, which counts a page of the page cache when it becomes dirty.
//! Both sides are charged until all is on the SSD: the page cache is written back before the first
//! slice and after the last, and Perdura's dirty bytes at the end are added.

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
use perdura_bench::settings::{Setup, YcsbSettings};
use serde::Serialize;

use crate::engine::EngineTarget;
use crate::engines::Rival;

/// Settings of a contest.
#[derive(Debug, Clone)]
pub struct ContestSettings {
    /// Workload, records and budget for the embedded store.
    pub ycsb: YcsbSettings,
    /// Setup of Perdura's store, and the folder of the rivals' files.
    pub setup: Setup,
    /// Whether Perdura's writes are on the SSD when they are acknowledged.
    pub commit_each: bool,
}

/// Results of Perdura beside one rival.
#[derive(Debug, Clone, Serialize)]
pub struct Duel {
    /// The engine's name.
    pub engine: &'static str,
    /// The engine's mode.
    pub mode: &'static str,
    /// The losses that the rival's acknowledged writes survive.
    pub survives: String,
    /// Perdura's throughput over the rival's, geometric mean over pairs of slices.
    pub ratio: Option<f64>,
    /// The 95 % confidence interval of the ratio.
    pub ratio_ci95: Option<[f64; 2]>,
    /// The ratio of each pair.
    pub ratio_per_pair: Vec<f64>,
    /// Perdura's results.
    pub perdura: Side,
    /// The rival's results.
    pub rival: Side,
}

impl Duel {
    /// Operations that failed or did not find their record.
    pub fn failures(&self) -> u64 {
        [&self.perdura, &self.rival].iter().map(|side| side.errors + side.missing).sum()
    }
}

/// Results of one side.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// Setup of the side.
    pub target: String,
    /// Operations done.
    pub operations: u64,
    /// Time of the slices, nanoseconds.
    pub elapsed_ns: u64,
    /// Operations a second.
    pub throughput_ops_per_s: f64,
    /// Latencies by kind of operation.
    pub latency_ns: BTreeMap<String, Summary>,
    /// Processor time of this process in the side's slices, nanoseconds an operation.
    pub cpu_ns_per_operation: Option<f64>,
    /// Operations that were refused.
    pub errors: u64,
    /// Operations that did not find their record.
    pub missing: u64,
    /// The first error.
    pub first_error: Option<String>,
    /// Bytes of keys and values written.
    pub user_bytes_written: u64,
    /// Bytes written to the SSD from the first slice until all is there. For Perdura its own count
    /// and the dirty bytes at the end; for the rival the device's count less Perdura's.
    pub ssd_bytes_written: Option<u64>,
    /// For the rival: write_bytes of /proc/self/io less Perdura's own count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_bytes_written: Option<u64>,
}

/// Measures one rival, with both sides loaded anew.
///
/// # Errors
/// A side cannot be opened or fails. Operations that are refused are counted instead.
pub fn duel(settings: &ContestSettings, rival: &Rival) -> Result<Duel, TargetError> {
    let ContestSettings { ycsb, setup, commit_each } = settings;
    let pool = Pool::new(ycsb.seed, &ycsb.layout);
    let options = ycsb.store_options(setup, &ycsb.side);
    let options = StoreOptions { commit_each: *commit_each, ..options };
    let perdura = StoreTarget::create(&options, ycsb.layout.clone())?;
    let at = |source| TargetError::File { path: setup.dir.clone(), source };
    // Before the engine, so that the folder is removed after the engine is closed.
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
    /// Bytes that Perdura wrote to the device.
    ours: Option<u64>,
    /// Perdura's dirty bytes.
    dirty: Option<u64>,
    /// Bytes that the device wrote for all programs.
    device: Option<u64>,
    /// Bytes that this process caused to be written.
    process: Option<u64>,
}

impl Written {
    /// Reads the counts, after the page cache of the file system of `dir` was written back.
    fn now(perdura: &dyn Target, dir: &Path) -> Result<Self, TargetError> {
        let at = |source| TargetError::File { path: dir.to_owned(), source };
        rest();
        let folder = File::open(dir).map_err(at)?;
        rustix::fs::syncfs(&folder).map_err(|errno| at(errno.into()))?;
        let device = folder.metadata().map_err(at)?.dev();
        let figures = perdura.figures()?;
        Ok(Self {
            // Perdura's count includes bytes of prezeroed segments.
            ours: figures
                .get("device_bytes")
                .map(|bytes| bytes + figures.get("prezeroed_bytes").unwrap_or(0)),
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
        // Bytes that were dirty after the loading may be among those written.
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

/// Waits until this process writes nothing, at most a second. Compaction that lasts longer runs
/// during the measurement.
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

/// The system's count of bytes that this process caused to be written: direct writes, and pages of
/// the page cache when they become dirty.
fn process_written_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.parse().ok()
}

/// A block device's own count of written bytes; `None` if the files are on no block device.
fn device_written_bytes(device: u64) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let sectors: u64 = text.split_whitespace().nth(SECTORS_WRITTEN)?.parse().ok()?;
    Some(sectors * SECTOR_BYTES)
}

/// Field of `stat` with the sectors written: Documentation/block/stat.rst.
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
