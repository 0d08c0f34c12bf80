//! A run of `bench ycsb`: opens and loads the sides, runs slices in turn, and collects each side's
//! results.
//!
//! Two sides are open at the same time, and do the same streams of operations in their own slices.
//! While one is measured, the other may still be cleaning after its slice; so before each slice the
//! other side gets time to come to rest (bounded: a store that goes on writing does so during the
//! measurement).

use std::time::{Duration, Instant};

use perdura_region::TrackingKind;

use crate::causes::{causes_of, trap_ns};
use crate::dist::Chooser;
use crate::drive::{Crew, Plan, Quota, Slice, load};
use crate::machine::Machine;
use crate::pairs::Ratio;
use crate::report::{SideResult, YcsbResult};
use crate::settings::{BudgetShare, Place, SideSettings, YcsbSettings};
use crate::tally::{Tally, summaries};
use crate::target::{
    ArrayTarget, Figures, RedisTarget, SpawnOptions, SpawnedTarget, StoreTarget, Target,
    TargetError,
};
use crate::workload::{KeySpace, Pool};

/// Called with the text of the present work, its progress, and its total.
pub type Progress<'p> = &'p (dyn Fn(&str, u64, u64) + Sync);

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
            result.causes = causes_of(&result, self.trap_ns);
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
                .into_iter()
                .chain(side.is_encrypted.then_some(["--key-command", "printf '%064d' 0"]))
                .flatten()
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
    tally: Tally,
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
            is_encrypted: settings.place.setup().is_some() && self.side.is_encrypted,
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
