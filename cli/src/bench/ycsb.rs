//! `perdura bench ycsb`: checks the options, measures, prints.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use perdura_bench::dist::Distribution;
use perdura_bench::drive::Quota;
use perdura_bench::pairs::PAIRS_MIN;
use perdura_bench::report::{SweepResult, page};
use perdura_bench::settings::{BudgetShare, Place, Setup, SideSettings, YcsbSettings};
use perdura_bench::sweep::{BUDGETS, SweepSettings, sweep};
use perdura_bench::workload::{Layout, RecordKind, Workload};
use perdura_bench::ycsb::run as measure;
use perdura_media::{Bytes, Percent};

use super::args::{SetupArgs, YcsbArgs};
use super::show;
use crate::password::password;
use perdura_terminal::{
    LateBar, Outputs, at_least_one, named, one_of, optional, percent, region, say, time,
};

const DIR: &str = "perdura-bench";
const RECORDS: u64 = 100_000;
const FIELDS: usize = 10;
const FIELD_BYTES: u64 = 100;
const SCAN_MAX: usize = 100;

pub fn run(args: &YcsbArgs) -> Result<ExitCode> {
    if let Some(path) = &args.html {
        return run_sweep(args, path);
    }
    let settings = resolve(args, args.workload.as_deref().unwrap_or("a"))?;
    let outputs = Outputs::of(args.json.as_deref(), None, &[])?;
    let bar = LateBar::new("bench");
    let result = measure(&settings, &|what, done, of| bar.step(what, done, of));
    bar.finish();
    let result = result?;
    outputs.write(&result, String::new)?;
    say(show::Shown(&result));
    Ok(judge(result.failures()))
}

fn run_sweep(args: &YcsbArgs, path: &Path) -> Result<ExitCode> {
    let settings = if args.from.is_none() { Some(resolve_sweep(args)?) } else { None };
    let result: SweepResult = match (&args.from, settings) {
        (Some(from), _) => {
            let text = std::fs::read(from).with_context(|| format!("--from {}", from.display()))?;
            serde_json::from_slice(&text).with_context(|| {
                format!(
                    "--from {}: expected what `bench ycsb --html` wrote with --json",
                    from.display()
                )
            })?
        }
        (None, Some(settings)) => {
            let outputs = Outputs::of(args.json.as_deref(), None, &[])?;
            let bar = LateBar::new("sweep");
            let result = sweep(&settings, &|what, done, of| bar.step(what, done, of));
            bar.finish();
            let result = result?;
            outputs.write(&result, String::new)?;
            result
        }
        (None, None) => bail!("--html: nothing to draw"),
    };
    std::fs::write(path, page(&result)).with_context(|| format!("--html {}", path.display()))?;
    for point in result.points.iter().chain(&result.larger).chain(&result.causes) {
        say(show::Line(point));
    }
    say(format_args!("{}", path.display()));
    Ok(judge(result.failures()))
}

/// Exits 1 if an operation failed, because figures that leave failures out mean nothing.
fn judge(failures: u64) -> ExitCode {
    if failures == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!("perdura: {failures} operations failed or did not find their record");
    ExitCode::FAILURE
}

fn resolve_sweep(args: &YcsbArgs) -> Result<SweepSettings> {
    let letters = args.workload.as_deref().unwrap_or("a,b,c,d,f");
    let mut workloads = Vec::new();
    for letter in letters.split(',') {
        workloads.push(resolve(args, letter.trim())?.workload);
    }
    let mut base = resolve(args, "a")?;
    base.pairs = args.pairs.unwrap_or(PAIRS_MIN);
    if base.pairs < PAIRS_MIN {
        bail!("--pairs {}: expected at least {PAIRS_MIN}", base.pairs);
    }
    let budgets = match &args.budgets {
        None => BUDGETS.to_vec(),
        Some(list) => list.split(',').map(|word| percent(list, word)).collect::<Result<_>>()?,
    };
    Ok(SweepSettings { base, workloads, budgets, larger_records: args.larger_records })
}

fn resolve(args: &YcsbArgs, letter: &str) -> Result<YcsbSettings> {
    let workload = Workload::parse(letter)
        .with_context(|| format!("--workload {letter}: expected a, b, c, d, e or f"))?;
    let records = at_least_one("records", args.records, RECORDS)?;
    let quota = match time("duration", &args.duration)? {
        Some(Duration::ZERO) => bail!("--duration 0s: expected more"),
        Some(time) => Quota::Time(time),
        None => Quota::Operations(at_least_one("operations", args.operations, records)?),
    };
    let budget = budget("budget", &args.budget)?.unwrap_or(BudgetShare::Percent(100.0));
    let compression = region::compression("compress", &args.setup.compress)?;
    let checkpoint_every = region::checkpoint("checkpoint", &args.setup.checkpoint)?;
    let side =
        SideSettings { budget, recency: true, compression, is_encrypted: false, checkpoint_every };
    let compare_budget = self::budget("compare-budget", &args.compare_budget)?;
    let is_compared = compare_budget.is_some()
        || args.compare_compress.is_some()
        || args.compare_encrypted
        || args.compare_checkpoint.is_some();
    let compare = is_compared.then_some(SideSettings {
        budget: compare_budget.unwrap_or(budget),
        compression: match &args.compare_compress {
            None => compression,
            name => region::compression("compare-compress", name)?,
        },
        is_encrypted: args.compare_encrypted,
        checkpoint_every: match &args.compare_checkpoint {
            None => checkpoint_every,
            time => region::checkpoint("compare-checkpoint", time)?,
        },
        ..side
    });
    let pairs = match (args.pairs, compare) {
        (Some(pairs), Some(_)) if pairs < PAIRS_MIN => {
            bail!(
                "--pairs {pairs}: expected at least {PAIRS_MIN}: fewer say little about the ratio"
            )
        }
        (Some(pairs), None) if args.html.is_none() => {
            bail!(
                "--pairs {pairs}: there is nothing to compare; give --compare-budget, \
                 --compare-compress, --compare-encrypted or --compare-checkpoint too"
            )
        }
        (pairs, Some(_)) => pairs.unwrap_or(PAIRS_MIN),
        _ => 1,
    };
    if let Some(rate) = args.rate.filter(|rate| rate.is_nan() || *rate <= 0.0) {
        bail!("--rate {rate}: expected operations a second, such as 50000");
    }
    let layout = layout(args)?;
    let place = place(args)?;
    if workload.scans() && matches!(place, Place::Array(_)) {
        bail!("--workload e: an array has no order of keys; measure a store or a server");
    }
    if workload.scans() && matches!(place, Place::Embedded(_)) && layout.kind == RecordKind::Hash {
        bail!(
            "--workload e: the embedded store scans strings in key order, not hashes; \
             add --record string, or measure a server"
        );
    }
    Ok(YcsbSettings {
        workload,
        distribution: args.distribution.as_deref().map(distribution).transpose()?,
        records,
        quota,
        layout,
        threads: at_least_one("threads", args.threads.map(|n| n as u64), 1)? as usize,
        pipeline: at_least_one("pipeline", args.pipeline.map(|n| n as u64), 1)? as usize,
        rate: args.rate,
        think: time("think", &args.think)?.unwrap_or_default(),
        scan_max: at_least_one("scan-max", args.scan_max.map(|n| n as u64), SCAN_MAX as u64)?
            as usize,
        pairs,
        seed: args.seed.unwrap_or(1),
        load: !args.skip_load,
        place,
        side,
        compare,
        ablate_recency: args.ablate_recency,
        runs: 1,
    })
}

fn place(args: &YcsbArgs) -> Result<Place> {
    if let Some(address) = &args.server {
        if !address.contains(':') || address.contains("://") {
            bail!("--server {address}: expected host:port, such as 127.0.0.1:6379, without TLS");
        }
        let password = password(&args.password_file)?;
        return Ok(Place::Server { address: address.clone(), password });
    }
    let setup = setup(&args.setup)?;
    if args.spawn {
        let program = std::env::current_exe().context("this program's own file")?;
        return Ok(Place::Spawned { setup, program });
    }
    if args.pipeline.is_some_and(|pipeline| pipeline > 1) {
        bail!("--pipeline: the embedded store has none; add --server or --spawn");
    }
    Ok(if args.array { Place::Array(setup) } else { Place::Embedded(setup) })
}

fn setup(args: &SetupArgs) -> Result<Setup> {
    Ok(Setup {
        dir: args.dir.clone().unwrap_or_else(|| PathBuf::from(DIR)),
        memory_bytes: optional("memory", &args.memory)?.map(|Bytes(bytes)| bytes),
        tracking: region::tracking(&args.tracking)?,
        policy: region::policy(&args.policy)?,
        engine: region::engine(&args.io)?,
        direct: region::direct(&args.direct)?,
        flush_threads: region::flush_threads("flush-threads", args.flush_threads)?,
    })
}

fn layout(args: &YcsbArgs) -> Result<Layout> {
    let kind = one_of(
        "record",
        &args.record,
        &[("hash", RecordKind::Hash), ("string", RecordKind::String)],
    )?;
    let fields = at_least_one("fields", args.fields.map(|n| n as u64), FIELDS as u64)? as usize;
    let field_bytes = optional("field-length", &args.field_length)?;
    let Bytes(field_bytes) = field_bytes.unwrap_or(Bytes(FIELD_BYTES));
    if fields as u64 * field_bytes > RECORD_BYTES_MAX {
        bail!(
            "--fields {fields} --field-length {}: records are at most 64 MiB",
            Bytes(field_bytes)
        );
    }
    let repeating = match &args.repeating {
        None => 0,
        Some(value) => repeating(value)?,
    };
    let layout = Layout::new(kind, fields, field_bytes as usize, args.write_all_fields);
    Ok(layout.with_repeating(repeating))
}

fn repeating(value: &str) -> Result<u32> {
    let Percent(percent) = named("repeating", value, value.parse())?;
    if !(0.0..=100.0).contains(&percent) {
        bail!("--repeating {value}: expected a share from 0% to 100%");
    }
    Ok(percent as u32)
}

const RECORD_BYTES_MAX: u64 = 64 << 20;

fn distribution(name: &str) -> Result<Distribution> {
    Distribution::parse(name).with_context(|| {
        let names: Vec<_> = Distribution::ALL.iter().map(|one| one.name()).collect();
        format!("--distribution {name}: expected one of {}", names.join(", "))
    })
}

fn budget(name: &str, value: &Option<String>) -> Result<Option<BudgetShare>> {
    let Some(value) = value else { return Ok(None) };
    if value.trim_end().ends_with('%') {
        let Percent(percent) = named(name, value, value.parse())?;
        return Ok(Some(BudgetShare::Percent(percent)));
    }
    let Bytes(bytes) = named(name, value, value.parse())?;
    Ok(Some(BudgetShare::Bytes(bytes)))
}
