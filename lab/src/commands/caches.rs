//! `perdura-lab caches`: words to settings, results to the terminal.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Result, bail};
use clap::Args;
use perdura_lab::caches::estimate::MemoryTimes;
use perdura_lab::caches::model::{CacheShape, FlushKind, Owner};
use perdura_lab::caches::page::page;
use perdura_lab::caches::placement::Placement;
use perdura_lab::caches::result::{CachesResult, LogKind, Step, StepResult};
use perdura_lab::caches::run::{CachesSettings, run as measure};
use perdura_media::Bytes;

use perdura_terminal::LateBar;
use perdura_terminal::Outputs;
use perdura_terminal::say;
use perdura_terminal::{named, optional};

#[derive(Debug, Args)]
pub struct CachesArgs {
    /// Counts of hash operations [default: 600000,800000,1000000,1500000].
    #[arg(long, value_name = "N,...")]
    pub operations: Option<String>,
    /// Size of the modelled cache [default: 1MiB].
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<String>,
    /// Ways of the modelled cache [default: 8].
    #[arg(long, value_name = "N")]
    pub ways: Option<u64>,
    /// Line size of the modelled cache [default: 64].
    #[arg(long, value_name = "SIZE")]
    pub line: Option<String>,
    /// Effect of a flush on a cached line: drops (clflush) or keeps (clwb) [default: drops].
    #[arg(long, value_name = "WHAT")]
    pub flush: Option<String>,
    /// Records in the log of the base step: words or objects [default: words].
    #[arg(long, value_name = "KIND")]
    pub base_log: Option<String>,
    /// Size of a bucket in the steps that have buckets [default: 2MiB].
    #[arg(long, value_name = "SIZE")]
    pub bucket: Option<String>,
    /// Bucket sizes to compare [default: 64KiB,256KiB,1MiB,2MiB,4MiB,16MiB].
    #[arg(long, value_name = "SIZE,...")]
    pub buckets: Option<String>,
    /// Size of the heap's memory [default: 1GiB].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Size of the table that the capacity work uses all the time [default: 512KiB].
    #[arg(long, value_name = "SIZE")]
    pub hot: Option<String>,
    /// Size of the records that the capacity work keeps [default: 32MiB].
    #[arg(long, value_name = "SIZE")]
    pub kept: Option<String>,
    /// Steps of capacity work for each hash operation [default: 1].
    #[arg(long, value_name = "N")]
    pub capacity_steps: Option<u64>,
    /// For modelled run times: nanoseconds of an access that hits [default: 5].
    #[arg(long, value_name = "NS")]
    pub hit_ns: Option<f64>,
    /// For modelled run times: nanoseconds of a miss that reads [default: 80].
    #[arg(long, value_name = "NS")]
    pub read_ns: Option<f64>,
    /// For modelled run times: factors by which a miss that writes takes longer [default: 4,10].
    #[arg(long, value_name = "N,...")]
    pub write_factors: Option<String>,
    /// Do not measure run times on this machine.
    #[arg(long)]
    pub modelled_only: bool,
    /// Do not read page frames from the kernel: assume frames in the order of the first touch.
    #[arg(long)]
    pub assume_frames: bool,
    /// Seed of all random streams [default: 1].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Also write all results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also draw the results: one page, without scripts.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Sizes of buckets and of the heap are multiples of this.
const SPAN_BYTES: u64 = 64 << 10;

pub fn run(args: &CachesArgs) -> Result<ExitCode> {
    let settings = resolve(args)?;
    let outputs = Outputs::of(args.json.as_deref(), args.html.as_deref(), &[])?;
    let bar = LateBar::new("runs");
    let result = measure(&settings, &|done, of| bar.count(done, of));
    bar.finish();
    let result = result?;
    outputs.write(&result, || page(&result))?;
    if !outputs.take_stdout() {
        show(&result);
    }
    Ok(ExitCode::SUCCESS)
}

fn resolve(args: &CachesArgs) -> Result<CachesSettings> {
    let usual = CachesSettings::default();
    let size = |name: &str, value: &Option<String>, usual: u64| {
        Ok::<_, anyhow::Error>(optional(name, value)?.map_or(usual, |Bytes(bytes)| bytes))
    };
    let cache = CacheShape {
        size_bytes: size("cache", &args.cache, usual.cache.size_bytes)?,
        ways: args.ways.unwrap_or(usual.cache.ways),
        line_bytes: size("line", &args.line, usual.cache.line_bytes)?,
    };
    named("cache", &format!("{}", Bytes(cache.size_bytes)), cache.sets())?;
    let mut operations = list("operations", &args.operations, usual.operations)?;
    operations.sort_unstable();
    if operations.first() == Some(&0) {
        bail!("--operations 0: expected at least 1");
    }
    let bucket_bytes = size("bucket", &args.bucket, usual.bucket_bytes)?;
    let buckets =
        list("buckets", &args.buckets, usual.buckets_bytes.into_iter().map(Bytes).collect())?;
    let buckets_bytes: Vec<u64> = buckets.into_iter().map(|Bytes(bytes)| bytes).collect();
    for bytes in buckets_bytes.iter().chain([&bucket_bytes]) {
        if !bytes.is_power_of_two() || *bytes < SPAN_BYTES || *bytes > 64 << 20 {
            bail!("a bucket of {}: expected powers of two from 64 KiB to 64 MiB", Bytes(*bytes));
        }
    }
    let hot_bytes = size("hot", &args.hot, usual.hot_bytes)?;
    if hot_bytes < 8 {
        bail!("--hot {}: expected 8 B at least", Bytes(hot_bytes));
    }
    Ok(CachesSettings {
        operations,
        cache,
        flush: args.flush.as_deref().map(flush).transpose()?.unwrap_or(usual.flush),
        base_log: args.base_log.as_deref().map(base_log).transpose()?.unwrap_or(usual.base_log),
        times: MemoryTimes {
            hit_ns: args.hit_ns.unwrap_or(usual.times.hit_ns),
            read_ns: args.read_ns.unwrap_or(usual.times.read_ns),
            write_factors: list("write-factors", &args.write_factors, usual.times.write_factors)?,
        },
        bucket_bytes,
        buckets_bytes,
        heap_bytes: size("memory", &args.memory, usual.heap_bytes)?.next_multiple_of(SPAN_BYTES),
        hot_bytes,
        kept_bytes: size("kept", &args.kept, usual.kept_bytes)?,
        capacity_steps_per_operation: args
            .capacity_steps
            .unwrap_or(usual.capacity_steps_per_operation),
        placement_bytes: usual.placement_bytes,
        is_timed: !args.modelled_only,
        uses_frames: !args.assume_frames,
        seed: args.seed.unwrap_or(usual.seed),
    })
}

fn list<T: FromStr>(name: &str, words: &Option<String>, usual: Vec<T>) -> Result<Vec<T>>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    let Some(words) = words else { return Ok(usual) };
    words.split(',').map(|word| named(name, word, word.trim().parse())).collect()
}

fn flush(word: &str) -> Result<FlushKind> {
    match word {
        "drops" => Ok(FlushKind::Drops),
        "keeps" => Ok(FlushKind::Keeps),
        _ => bail!("--flush {word}: expected drops (clflush) or keeps (clwb)"),
    }
}

fn base_log(word: &str) -> Result<LogKind> {
    match word {
        "words" => Ok(LogKind::Words),
        "objects" => Ok(LogKind::Objects),
        _ => bail!("--base-log {word}: expected words or objects"),
    }
}

fn show(result: &CachesResult) {
    let (machine, setup) = (&result.machine, &result.configuration);
    say(format_args!(
        "{}\n{}\nmodelled: a last-level cache of {}, {} ways, lines of {} B; a flush {}",
        machine,
        result.frames.words(),
        Bytes(setup.cache.size_bytes),
        setup.cache.ways,
        setup.cache.line_bytes,
        match setup.flush {
            FlushKind::Drops => "drops the line (clflush)",
            FlushKind::Keeps => "keeps the line (clwb)",
        },
    ));
    match result.counters_missing.as_slice() {
        [] => {}
        missing => {
            say(format_args!("hardware counters not available here: {}", missing.join("; ")))
        }
    }
    say(format_args!(
        "\npages of two kinds, {} of each: breaks per 1,000 pages",
        Bytes(CachesSettings::default().placement_bytes as u64)
    ));
    result.placement.iter().for_each(|placed| say(placement_line(placed)));
    say(format_args!(
        "\n{:>10} {:<8}| modelled misses, thousands                              \
         |{:>8}{:>10}{:>10}{:>9}{:>10}",
        "operations", "step", "flushes", "breaks", "fewer,", "op,", "capacity"
    ));
    say(format_args!(
        "{:>19}|{:>9}{:>8}{:>9}{:>9}{:>10}{:>10} |{:>8}{:>10}{:>10}{:>9}{:>10}",
        "",
        "all",
        "fewer",
        "persist.",
        "capacity",
        "metadata",
        "log",
        "an op",
        "per 1,000",
        "%",
        "ns",
        "step, ns"
    ));
    for step in &result.steps {
        if step.step == Step::Base {
            alone_line(result, step.operations);
        }
        say(step_line(step));
    }
    show_rest(result);
}

fn placement_line(placed: &Placement) -> String {
    let breaks = |kind: Option<perdura_lab::caches::frames::Contiguity>| {
        kind.map_or("-".into(), |kind| format!("{:.1}", kind.breaks_per_1000))
    };
    format!(
        "  {:<8}{:<11}{:<17}{:>9}  persistent {:>6}  capacity {:>6}  fewer {:>6} %  {:>6.0} \
         ns/page{}",
        if placed.is_memory_file { "memfd" } else { "private" },
        if placed.threads == 1 { "1 thread" } else { "2 threads" },
        placed.filling.name(),
        placed.bucket_bytes.map_or(String::new(), |bytes| Bytes(bytes as u64).to_string()),
        breaks(placed.persistent),
        breaks(placed.capacity),
        placed.breaks_fewer_percent.map_or("-".into(), |fewer| format!("{fewer:.1}")),
        placed.page_ns,
        match placed.gather_failures {
            0 => String::new(),
            failures => format!(", {failures} buckets could not be gathered"),
        },
    )
}

fn thousands(count: u64) -> String {
    format!("{:.0}", count as f64 / 1e3)
}

fn percent(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.1}"))
}

fn ns(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.0}"))
}

fn alone_line(result: &CachesResult, operations: u64) {
    let Some(alone) = result.alone.iter().find(|alone| alone.operations == operations) else {
        return;
    };
    say(format_args!(
        "{operations:>10} {:<8}|{:>9}{:>8}{:>9}{:>9}{:>10}{:>10} |{:>8}{:>10}{:>10}{:>9}{:>10}",
        "alone",
        thousands(alone.modelled.total().misses),
        "",
        "",
        thousands(alone.modelled.capacity_data.misses),
        "",
        "",
        "",
        "",
        "",
        "",
        ns(alone.native.as_ref().map(|native| native.capacity_step_ns)),
    ));
}

fn step_line(step: &StepResult) -> String {
    let misses = |owner| thousands(step.modelled.of(owner).misses);
    let breaks = step
        .persistent
        .zip(step.capacity)
        .map(|(a, b)| 1000.0 * (a.breaks + b.breaks) as f64 / (a.pages + b.pages).max(1) as f64);
    format!(
        "{:>10} {:<8}|{:>9}{:>8}{:>9}{:>9}{:>10}{:>10} |{:>8.2}{:>10}{:>10}{:>9}{:>10}",
        step.operations,
        step.step.name(),
        thousands(step.modelled.total().misses),
        percent(step.modelled_misses_fewer_percent),
        misses(Owner::PersistentData),
        misses(Owner::CapacityData),
        misses(Owner::Metadata),
        misses(Owner::Log),
        step.lines_flushed_per_operation,
        percent(breaks),
        percent(step.breaks_fewer_percent),
        ns(step.native.as_ref().and_then(|native| native.operation_ns)),
        ns(step.native.as_ref().map(|native| native.capacity_step_ns)),
    )
}

fn show_rest(result: &CachesResult) {
    say(format_args!("\nkinds of log, mixed transactions"));
    for log in &result.logs {
        say(format_args!(
            "  {:<12}{:>6.2} log bytes per changed byte, {:.2} lines flushed and {:.2} fences a \
             transaction",
            log.log.name(),
            log.log_bytes_per_changed_byte,
            log.lines_flushed_per_transaction,
            log.fences_per_transaction,
        ));
    }
    say(format_args!(
        "\nmodelled: run time on non-volatile memory, all steps beside the base, shorter by"
    ));
    for step in result.steps.iter().filter(|step| step.step == Step::Hybrid) {
        let each = step.modelled_times.iter().map(|estimate| {
            let (writes, factor) = (estimate.writes.name(), estimate.write_factor);
            format!("{writes} x{factor}: {:.1} %", estimate.shorter_percent)
        });
        say(format_args!("  {:>9}  {}", step.operations, each.collect::<Vec<_>>().join(", ")));
    }
    say(format_args!("\nsizes of a bucket, all steps"));
    for bucket in &result.buckets {
        let breaks = bucket.persistent.zip(bucket.capacity).map(|(a, b)| {
            1000.0 * (a.breaks + b.breaks) as f64 / (a.pages + b.pages).max(1) as f64
        });
        say(format_args!(
            "  {:>9}  modelled misses {} k, breaks {} per 1,000, {:.0} ns an operation, slowest \
             {:.0} us, {} resident bytes per byte of objects",
            Bytes(bucket.bucket_bytes).to_string(),
            thousands(bucket.modelled.total().misses),
            percent(breaks),
            bucket.operation_ns,
            bucket.operation_ns_max as f64 / 1e3,
            bucket.resident_per_live.map_or("-".into(), |ratio| format!("{ratio:.2}")),
        ));
    }
}
