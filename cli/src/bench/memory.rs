//! `perdura bench memory`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use perdura_bench::dist::Distribution;
use perdura_lab::memory::{Cell, MemoryResult, MemorySettings, STORE_BYTES_MAX, run as measure};
use perdura_media::Bytes;
use perdura_region::PolicyKind;
use perdura_region::region::REGION_MIN_BYTES;

use super::args::MemoryArgs;
use super::ycsb::{DIR, at_least_one, distribution, percent, tracking};
use super::{output, write_json};
use crate::progress::LateBar;
use crate::say::say;
use crate::settings::{self, named, optional};

const MEMORY_BYTES: u64 = 64 << 20;
const STORES: u64 = 200_000;
const ROUNDS: usize = 3;
const STORE_BYTES: &str = "8,64,1KiB,4KiB";
const BUDGETS: &str = "2,11,46";
const TRACKINGS: &str = "barrier,trap";
const DISTRIBUTIONS: &str = "uniform,plain-zipfian";

pub fn run(args: &MemoryArgs) -> Result<ExitCode> {
    let settings = resolve(args)?;
    let json = output("json", args.json.as_deref())?;
    let bar = LateBar::new("stores");
    let result = measure(&settings, &|done, of| bar.count(done, of));
    bar.finish();
    let result = result?;
    write_json(json, &result)?;
    show(&result);
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
        Some(list) => words(list, |word| settings::policy(&Some(word.to_owned())))?,
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
        // Whole blocks, so that every record has its place.
        memory_bytes: memory_bytes / REGION_MIN_BYTES * REGION_MIN_BYTES,
        stores,
        store_bytes: words(args.sizes.as_deref().unwrap_or(STORE_BYTES), store_bytes)?,
        distributions: words(distributions, distribution_of_stores)?,
        trackings: words(args.tracking.as_deref().unwrap_or(TRACKINGS), |word| {
            tracking(&Some(word.to_owned()))
        })?,
        policies,
        budgets: words(budgets, |word| percent(budgets, word))?,
        rounds: rounds as usize,
        seed: args.seed.unwrap_or(1),
        checkpoint_every: settings::checkpoint("checkpoint", &checkpoint)?,
        engine: settings::engine(&args.io)?,
        direct: settings::direct(&args.direct)?,
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
    distribution(word).context("--distributions")
}

fn show(result: &MemoryResult) {
    let machine = &result.machine;
    say(format_args!(
        "{} stores into {}, {} rounds, seed {}; {}\n\
         SSD bytes per byte stored; \"exact LRU\" and \"perfect\" (knows the future) are simulated on the same \
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
