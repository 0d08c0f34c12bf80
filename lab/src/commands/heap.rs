//! `perdura-lab heap`: words to settings, results to the terminal.

use std::collections::BTreeMap;
use std::io::{stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use perdura_lab::heap::churn::{Sizes, Touch};
use perdura_lab::heap::result::{HeapResult, MemoryFigures, OfThreads, Spread, Wanted};
use perdura_lab::heap::{HeapSettings, WorkerCommand, library, run as measure, work as serve};
use perdura_media::{Bytes, format_duration};

use perdura_terminal::LateBar;
use perdura_terminal::Outputs;
use perdura_terminal::at_least_one;
use perdura_terminal::say;

#[derive(Debug, Args)]
pub struct HeapArgs {
    /// Live objects of all threads together [default: 1000000].
    #[arg(long, value_name = "N")]
    pub objects: Option<u64>,
    /// Sizes of the smallest and the largest object; sizes are evenly distributed [default:
    /// 16-1024].
    #[arg(long, value_name = "MIN-MAX")]
    pub sizes: Option<String>,
    /// Bytes written into a new object: `first` eight, or `all` [default: first].
    #[arg(long, value_name = "PART")]
    pub touch: Option<String>,
    /// Numbers of threads to run, one after the other [default: 1,2].
    #[arg(long, value_name = "N,...")]
    pub threads: Option<String>,
    /// Rounds of each contestant, in turn with the others; medians are reported [default: 25].
    #[arg(long, value_name = "N")]
    pub rounds: Option<u64>,
    /// Duration of a round [default: 100ms].
    #[arg(long, value_name = "TIME")]
    pub round: Option<String>,
    /// Objects that each contestant replaces before the first round [default: as many as are live].
    #[arg(long, value_name = "N")]
    pub warm: Option<u64>,
    /// Seed of all random streams [default: 1].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Folder for the heaps' files, in memory or on persistent memory [default: /dev/shm].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Folders in which rivals' libraries are looked for [default: the dynamic linker's].
    #[arg(long, value_name = "DIR,...")]
    pub library_path: Option<String>,
    /// Also write all results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

const OBJECTS: u64 = 1_000_000;
const SIZES: &str = "16-1024";
const ROUNDS: u64 = 25;
const ROUND: Duration = Duration::from_millis(100);
const DIR: &str = "/dev/shm";
/// Largest object, bytes: the table of live objects has 16 bits for a size.
const SIZE_MAX: u16 = u16::MAX;
/// Bytes of an object that a transaction writes.
const WRITE_BYTES: u16 = 64;
const TOUCHES: [(&str, Touch); 2] = [("first", Touch::First), ("all", Touch::All)];
const THREADS_MAX: usize = 1024;

pub fn run(args: &HeapArgs) -> Result<ExitCode> {
    let settings = resolve(args)?;
    let outputs = Outputs::of(args.json.as_deref(), None, &[])?;
    let bar = LateBar::new("heap");
    let result = measure(&settings, &|step, done, of| bar.step(step, done, of));
    bar.finish();
    let result = result?;
    outputs.write(&result, String::new)?;
    if !outputs.take_stdout() {
        show(&result);
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs as a worker process of `run`.
pub fn work() -> Result<ExitCode> {
    serve(stdin().lock(), stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}

fn resolve(args: &HeapArgs) -> Result<HeapSettings> {
    let objects = at_least_one("objects", args.objects, OBJECTS)?;
    if objects > u64::from(u32::MAX) {
        bail!("--objects {objects}: expected fewer than 2^32");
    }
    let folders = match args.library_path.as_deref() {
        None => library::folders(),
        Some(list) => list.split(',').map(PathBuf::from).collect(),
    };
    Ok(HeapSettings {
        worker: WorkerCommand {
            program: std::env::current_exe().context("this program's own file")?,
            words: vec!["heap-worker".into()],
        },
        objects: objects as usize,
        sizes: sizes(args.sizes.as_deref().unwrap_or(SIZES))?,
        touch: perdura_terminal::one_of("touch", &args.touch, &TOUCHES)?,
        threads: threads(args.threads.as_deref().unwrap_or("1,2"), objects)?,
        rounds: at_least_one("rounds", args.rounds, ROUNDS)? as usize,
        round: perdura_terminal::time("round", &args.round)?.unwrap_or(ROUND),
        warm_pairs: args.warm.unwrap_or(objects),
        seed: args.seed.unwrap_or(1),
        dir: args.dir.clone().unwrap_or_else(|| PathBuf::from(DIR)),
        folders,
    })
}

fn sizes(text: &str) -> Result<Sizes> {
    let parsed = text.split_once('-').map(|(min, max)| (min.trim().parse(), max.trim().parse()));
    match parsed {
        Some((Ok(min_bytes), Ok(max_bytes)))
            if min_bytes > 0 && min_bytes <= max_bytes && max_bytes >= WRITE_BYTES =>
        {
            Ok(Sizes { min_bytes, max_bytes })
        }
        _ => bail!(
            "--sizes {text}: expected MIN-MAX in bytes, from 1 to {SIZE_MAX}, and MAX at least \
             {WRITE_BYTES}, which transactions write"
        ),
    }
}

fn threads(list: &str, objects: u64) -> Result<Vec<usize>> {
    let one = |word: &str| match word.trim().parse::<usize>() {
        Ok(threads) if (1..=THREADS_MAX).contains(&threads) && threads as u64 <= objects => {
            Ok(threads)
        }
        _ => bail!(
            "--threads {list}: {word:?}: expected numbers from 1 to {THREADS_MAX}, no more than \
             objects, with commas"
        ),
    };
    list.split(',').map(one).collect()
}

fn show(result: &HeapResult) {
    let (machine, setup) = (&result.machine, &result.configuration);
    say(format_args!(
        "{} live objects of {} to {} B, {} rounds of {}, seed {}, heaps in {}; {}\n\
         Times are a thread's, in ns: medians of the rounds, in brackets the quartiles",
        setup.objects,
        setup.sizes.min_bytes,
        setup.sizes.max_bytes,
        setup.rounds,
        format_duration(Duration::from_nanos(setup.round_ns)),
        setup.seed,
        setup.dir,
        machine,
    ));
    for (threads, found) in &result.threads {
        say(format_args!("\n{threads} {}", if *threads == 1 { "thread" } else { "threads" }));
        show_threads(found);
    }
}

fn show_threads(found: &OfThreads) {
    show_figures("perdura", &found.figures, &found.spread);
    found.memory.iter().for_each(|(name, memory)| show_memory(name, memory));
    for recovery in &found.recovery {
        say(format_args!(
            "    opened again: {} objects, {} records, in {}: {:.2} million objects a second, \
             {:.2} a thread",
            recovery.objects,
            recovery.records,
            format_duration(Duration::from_nanos(recovery.ns.median as u64)),
            recovery.objects_per_s / 1e6,
            recovery.objects_per_s_per_thread / 1e6,
        ));
    }
    for (name, rival) in &found.rivals {
        match (&rival.missing, &rival.allocator) {
            (Some(missing), _) => say(format_args!("  {name}: MISSING: {missing}")),
            (None, allocator) => {
                show_figures(allocator.as_deref().unwrap_or(name), &rival.figures, &rival.spread);
                rival.memory.iter().for_each(|memory| show_memory(name, memory));
            }
        }
    }
    for compared in found.ratios.values() {
        let cpu = compared.of_cpu_medians.unwrap_or(f64::NAN);
        let [low, high] = compared.of_pairs.as_ref().map_or([f64::NAN; 2], |pairs| pairs.ci95);
        let verdict = match (compared.wanted, compared.is_met) {
            (Some(wanted), Some(is_met)) => verdict(wanted, is_met),
            _ => String::new(),
        };
        say(format_args!(
            "  {}: {:.2} (processor time {cpu:.2}; of pairs {:.2}, {low:.2} to {high:.2}){verdict}",
            compared.about, compared.of_medians, compared.median_of_pairs,
        ));
    }
    for (name, bound) in &found.bounds {
        say(format_args!("  {name}: {:.2}{}", bound.found, verdict(bound.wanted, bound.is_met)));
    }
}

fn verdict(wanted: Wanted, is_met: bool) -> String {
    let (side, bound) = match wanted {
        Wanted::AtLeast(bound) => ("at least", bound),
        Wanted::AtMost(bound) => ("at most", bound),
    };
    format!("; wanted {side} {bound}: {}", if is_met { "met" } else { "NOT met" })
}

fn show_figures(who: &str, figures: &BTreeMap<String, f64>, spread: &BTreeMap<String, Spread>) {
    say(format_args!("  {who}"));
    for (name, value) in figures {
        match spread.get(name) {
            Some(spread) => say(format_args!(
                "    {name:<46}{value:>9.1}  ({:.1} to {:.1})",
                spread.q1, spread.q3
            )),
            None => say(format_args!("    {name:<46}{value:>9.2}")),
        }
    }
}

fn show_memory(name: &str, memory: &MemoryFigures) {
    say(format_args!(
        "    memory of {name}: {} asked for, {} resident, {:.2} a byte ({} when populated)",
        Bytes(memory.churned.asked_bytes),
        Bytes(memory.churned.resident_bytes),
        memory.resident_per_asked,
        Bytes(memory.populated.resident_bytes),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_threads_are_checked() {
        assert_eq!(sizes("16-1024").unwrap(), Sizes { min_bytes: 16, max_bytes: 1024 });
        for wrong in ["", "16", "0-64", "100-64", "16-63", "16-65536", "a-b"] {
            let said = sizes(wrong).unwrap_err().to_string();
            assert!(said.starts_with(&format!("--sizes {wrong}: expected")), "{said}");
        }
        assert_eq!(threads("1, 2", 2).unwrap(), [1, 2]);
        for wrong in ["0", "3", "1,,2", "x"] {
            assert!(threads(wrong, 2).unwrap_err().to_string().contains("--threads"), "{wrong}");
        }
    }
}
