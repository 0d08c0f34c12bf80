//! `perdura-lab plan`: the predictions of a plan beside a region that is fed the same writes.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use perdura_lab::plan_check::{Kind, PlanCheck, PlanCheckSettings, generated};
use perdura_media::{Bytes, BytesPerSecond};
use perdura_plan::sizing::ReplayConfig;
use perdura_plan::trace::{Op, PAGE_BYTES, ReadOptions, Record, TraceReader};
use perdura_region::PolicyKind;

use perdura_terminal::Outputs;
use perdura_terminal::say;
use perdura_terminal::{named, optional, region};

/// Options of `perdura-lab plan`.
#[derive(Debug, Args)]
pub struct PlanCheckArgs {
    /// Trace whose writes are fed; without it, writes are generated.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Play the trace this many times as fast: quiet traces need no cleaning.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "trace")]
    speed_up: u64,
    /// Distribution of generated writes: zipf, hot-cold, uniform.
    #[arg(long, value_name = "KIND", default_value = "zipf")]
    kind: String,
    /// Pages that generated writes go to.
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    pages: u64,
    /// Generated writes a second.
    #[arg(long, value_name = "N", default_value_t = 60_000.0)]
    rate: f64,
    /// Number of generated writes.
    #[arg(long, value_name = "N", default_value_t = 240_000)]
    writes: u64,
    /// Seed of the generated writes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Dirty budgets, separated by commas.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "2MiB,8MiB")]
    budgets: Vec<String>,
    /// Victim policies, separated by commas [default: clock-pro].
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    policies: Vec<String>,
    /// Time between checkpoints, or `off` [default: 1s].
    #[arg(long, value_name = "TIME")]
    checkpoint: Option<String>,
    /// Folder whose device is also run in real time [default: only a modelled device].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Rate of the modelled device [default: 1GB/s]; measured if --dir is given.
    #[arg(long, value_name = "RATE", conflicts_with = "dir")]
    device_rate: Option<String>,
    /// Also write all results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Most writes of a trace that are fed: all of them are held in memory.
const WRITES_MAX: usize = 50_000_000;

pub fn run(args: &PlanCheckArgs) -> Result<ExitCode> {
    let records = records(args)?;
    let settings = resolve(args, &records)?;
    let outputs = Outputs::of(args.json.as_deref(), None, &[])?;
    let check = PlanCheck::run(&settings, &records)?;
    outputs.write(&check, String::new)?;
    if !outputs.take_stdout() {
        say(check.text());
    }
    Ok(ExitCode::SUCCESS)
}

fn records(args: &PlanCheckArgs) -> Result<Vec<Record>> {
    let Some(path) = &args.trace else {
        let kind = Kind::parse(&args.kind).with_context(|| {
            let names = Kind::ALL.map(Kind::name).join(", ");
            format!("--kind {}: expected one of {names}", args.kind)
        })?;
        if args.pages == 0 || args.pages > 1 << 24 || args.rate.is_nan() || args.rate <= 0.0 {
            bail!(
                "--pages {} --rate {}: expected 1 to 16777216 pages, and a rate above 0",
                args.pages,
                args.rate
            );
        }
        return Ok(generated(kind, args.seed, args.pages, args.writes, args.rate));
    };
    if args.speed_up == 0 {
        bail!("--speed-up 0: expected at least 1");
    }
    let mut reader = TraceReader::open(path, &ReadOptions::default())?;
    let (mut batch, mut records, mut first_ns) = (Vec::new(), Vec::new(), None);
    while reader.next_batch(&mut batch)? {
        let first_ns = *first_ns.get_or_insert(batch[0].time_ns);
        records.extend(batch.iter().filter(|record| record.op == Op::Write).map(|record| Record {
            time_ns: (record.time_ns - first_ns) / args.speed_up,
            ..*record
        }));
        if records.len() > WRITES_MAX {
            bail!(
                "--trace {}: more than {WRITES_MAX} writes; give a shorter \
                   trace",
                path.display()
            );
        }
    }
    if records.is_empty() {
        bail!("--trace {}: the trace has no writes", path.display());
    }
    Ok(records)
}

fn resolve(args: &PlanCheckArgs, records: &[Record]) -> Result<PlanCheckSettings> {
    let mut pages: Vec<_> = records
        .iter()
        .flat_map(|record| {
            let (first, count) = record.pages();
            (first..first + count).map(|page| (record.volume, page))
        })
        .collect();
    pages.sort_unstable();
    pages.dedup();
    let mut config = ReplayConfig::new(pages.len() as u64 * PAGE_BYTES, 0);
    config.checkpoint_every = region::checkpoint("checkpoint", &args.checkpoint)?;
    if let Some(rate) = optional::<BytesPerSecond>("device-rate", &args.device_rate)? {
        config.device.bandwidth = rate;
    }
    let budget = |text: &String| named::<Bytes, _>("budgets", text, text.parse()).map(|Bytes(b)| b);
    let policy = |name: &String| region::policy(&Some(name.clone()));
    Ok(PlanCheckSettings {
        folder: args.dir.clone(),
        budgets_bytes: args.budgets.iter().map(budget).collect::<Result<_>>()?,
        policies: match args.policies.as_slice() {
            [] => vec![PolicyKind::default()],
            names => names.iter().map(policy).collect::<Result<_>>()?,
        },
        config,
    })
}
