//! `perdura-lab memory`: words to settings, results to the terminal.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use perdura_bench::dist::Distribution;
use perdura_lab::memory::{Cell, MemoryResult, MemorySettings, STORE_BYTES_MAX, run as measure};
use perdura_media::Bytes;
use perdura_region::{PolicyKind, REGION_MIN_BYTES};

use super::DIR;
use perdura_terminal::LateBar;
use perdura_terminal::Outputs;
use perdura_terminal::say;
use perdura_terminal::{at_least_one, percent};
use perdura_terminal::{named, optional, region};

#[derive(Debug, Args)]
pub struct MemoryArgs {
    /// Size of the memory [default: 64MiB].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Stores in each combination [default: 200000].
    #[arg(long, value_name = "N")]
    pub stores: Option<u64>,
    /// Sizes of a store, powers of two from 8 to 4KiB [default: 8,64,1KiB,4KiB].
    #[arg(long, value_name = "SIZE,...")]
    pub sizes: Option<String>,
    /// Distributions of the stores' places, named as in `perdura bench ycsb` [default:
    /// uniform,plain-zipfian].
    #[arg(long, value_name = "NAME,...")]
    pub distributions: Option<String>,
    /// Ways to track stores: barrier, trap, uffd-sigbus, uffd-thread, mprotect [default:
    /// barrier,trap].
    #[arg(long, value_name = "MODE,...")]
    pub tracking: Option<String>,
    /// Victim policies [default: all].
    #[arg(long, value_name = "NAME,...")]
    pub policies: Option<String>,
    /// Dirty budgets, percent of the memory [default: 2,11,46].
    #[arg(long, value_name = "PERCENT,...")]
    pub budgets: Option<String>,
    /// Rounds in which each combination is measured, in turn with the others; medians are reported
    /// [default: 3].
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Seed of all random streams [default: 1].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Folder for images, which are removed at the end [default: ./perdura-bench].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Time between checkpoints, or `off`; the computed bounds assume none [default: off].
    #[arg(long, value_name = "TIME")]
    pub checkpoint: Option<String>,
    /// Engine that writes the image: auto, uring or pwrite [default: auto].
    #[arg(long, value_name = "ENGINE")]
    pub io: Option<String>,
    /// Whether writes bypass the page cache: auto, on or off [default: auto].
    #[arg(long, value_name = "MODE")]
    pub direct: Option<String>,
    /// Also write all results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

const MEMORY_BYTES: u64 = 64 << 20;
const STORES: u64 = 200_000;
const ROUNDS: usize = 3;
const STORE_BYTES: &str = "8,64,1KiB,4KiB";
const BUDGETS: &str = "2,11,46";
const TRACKINGS: &str = "barrier,trap";
const DISTRIBUTIONS: &str = "uniform,plain-zipfian";

pub fn run(args: &MemoryArgs) -> Result<ExitCode> {
    let settings = resolve(args)?;
    let outputs = Outputs::of(args.json.as_deref(), None, &[])?;
    let bar = LateBar::new("stores");
    let result = measure(&settings, &|done, of| bar.count(done, of));
    bar.finish();
    let result = result?;
    outputs.write(&result, String::new)?;
    if !outputs.take_stdout() {
        show(&result);
    }
    Ok(ExitCode::SUCCESS)
}

fn resolve(args: &MemoryArgs) -> Result<MemorySettings> {
    let Bytes(memory_bytes) = optional("memory", &args.memory)?.unwrap_or(Bytes(MEMORY_BYTES));
    if memory_bytes < REGION_MIN_BYTES || memory_bytes > u64::from(u32::MAX) * 64 {
        bail!("--memory {}: expected 256 KiB to 256 GiB", Bytes(memory_bytes));
    }
    let budgets = args.budgets.as_deref().unwrap_or(BUDGETS);
    let policies = match args.policies.as_deref() {
        None => PolicyKind::ALL.to_vec(),
        Some(list) => words(list, |word| region::policy(&Some(word.to_owned())))?,
    };
    let checkpoint = args.checkpoint.clone().or(Some("off".into()));
    let distributions = args.distributions.as_deref().unwrap_or(DISTRIBUTIONS);
    let rounds = at_least_one("rounds", args.rounds.map(|n| n as u64), ROUNDS as u64)?;
    let stores = at_least_one("stores", args.stores, STORES)?;
    if stores >= u64::from(u32::MAX) {
        bail!("--stores {stores}: expected fewer than 2^32");
    }
    Ok(MemorySettings {
        dir: args.dir.clone().unwrap_or_else(|| PathBuf::from(DIR)),
        // The size is a multiple of the block, so that every record lies in the memory.
        memory_bytes: memory_bytes / REGION_MIN_BYTES * REGION_MIN_BYTES,
        stores,
        store_bytes: words(args.sizes.as_deref().unwrap_or(STORE_BYTES), store_bytes)?,
        distributions: words(distributions, distribution_of_stores)?,
        trackings: words(args.tracking.as_deref().unwrap_or(TRACKINGS), |word| {
            region::tracking(&Some(word.to_owned()))
        })?,
        policies,
        budgets: words(budgets, |word| percent(budgets, word))?,
        rounds: rounds as usize,
        seed: args.seed.unwrap_or(1),
        checkpoint_every: region::checkpoint("checkpoint", &checkpoint)?,
        engine: region::engine(&args.io)?,
        direct: region::direct(&args.direct)?,
    })
}

fn words<T>(list: &str, one: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    list.split(',').map(|word| one(word.trim())).collect()
}

fn store_bytes(word: &str) -> Result<u64> {
    let Bytes(bytes) = named("sizes", word, word.parse())?;
    if !bytes.is_power_of_two() || !(8..=STORE_BYTES_MAX).contains(&bytes) {
        bail!("--sizes {word}: expected powers of two from 8 to 4KiB");
    }
    Ok(bytes)
}

fn distribution_of_stores(word: &str) -> Result<Distribution> {
    Distribution::parse(word).with_context(|| {
        let names: Vec<_> = Distribution::ALL.iter().map(|one| one.name()).collect();
        format!("--distributions {word}: expected one of {}", names.join(", "))
    })
}

fn show(result: &MemoryResult) {
    let machine = &result.machine;
    say(format_args!(
        "{} stores into {}, {} rounds, seed {}; {}\n\
         SSD bytes per byte stored; \"exact LRU\" and \"perfect\" (knows the future) are simulated \
         on the same \
         stream\n",
        result.stores,
        Bytes(result.memory_bytes),
        result.rounds,
        result.seed,
        machine,
    ));
    say(format_args!(
        "{:<9}{:<24}{:<15}{:>6}{:>8}{:>9}{:>9}{:>11}{:>9}{:>11}{:>9}",
        "tracking",
        "policy",
        "stores",
        "bytes",
        "budget",
        "ns",
        "SSD",
        "exact LRU",
        "perfect",
        "x perfect",
        "traps"
    ));
    result.cells.iter().for_each(|cell| say(line(cell)));
}

fn line(cell: &Cell) -> String {
    format!(
        "{:<9}{:<24}{:<15}{:>6}{:>6} %{:>9.0}{:>9.3}{:>11.3}{:>9.3}{:>11}{:>9.3}",
        cell.tracking,
        cell.policy,
        cell.distribution,
        cell.store_bytes,
        cell.budget_percent,
        cell.ns_per_store,
        cell.ssd_bytes_per_user_byte,
        cell.exact_lru_bytes_per_user_byte,
        cell.perfect_bytes_per_user_byte,
        cell.over_perfect.map_or("-".into(), |over| format!("{over:.2}")),
        cell.traps_per_store,
    )
}
