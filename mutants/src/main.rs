//! Runs all mutants that cargo-mutants lists, which would take days one by one: a copy of the tree
//! gets them all at once, each behind a switch, and is compiled once.
//!
//! 1. [`weave`] puts the mutants into the text of a copy, and [`compile`] compiles the tests there.
//!    Mutants that the compiler refuses are taken out.
//! 2. [`reach`] runs each test alone, without a mutant, and notes whose places it reaches.
//! 3. [`hunt`] turns one mutant after another on, and runs the tests that reach it, the cheapest
//!    first, until one fails.
//!
//! Each step keeps what it found in the copy's `target/`, under keys that stay the same as long as
//! a mutant's function does. So after a change only what the change may have made different is run
//! again: tests that reached a function that is no more as it was, and mutants that no test caught.

mod compile;
mod hunt;
mod list;
mod reach;
mod report;
mod test;
mod tree;
mod weave;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::list::Mutant;

/// What is to be run.
struct Options {
    /// What `cargo mutants --list --json` has written.
    list: PathBuf,
    /// The tree with the sources.
    from: PathBuf,
    /// The copy.
    into: PathBuf,
    /// One part of so many: the number of the part, and how many there are.
    shard: (u32, u32),
    /// Most processor time of the tests that are run for one mutant, as they took without it.
    most: Duration,
    threads: usize,
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("perdura-mutants: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [list, from, into, shard, seconds, threads] = &words[..] else {
        bail!("perdura-mutants LIST FROM INTO K/N SECONDS THREADS");
    };
    let (k, n) = shard.split_once('/').context("a shard is K/N")?;
    let shard = (k.parse()?, n.parse()?);
    if shard.0 >= shard.1 {
        bail!("shard {}/{}: the first of N is 0", shard.0, shard.1);
    }
    let (list, from, into) = (list.into(), from.into(), into.into());
    let most = Duration::from_secs(seconds.parse()?);
    Ok(Options { list, from, into, shard, most, threads: threads.parse()? })
}

fn run(options: &Options) -> Result<()> {
    let Options { from, threads, .. } = options;
    let mutants: Vec<Mutant> = list::mutants(&options.list, from)?;
    let into = tree::copy(from, &options.into)?;
    let built = compile::compile(from, &into, &mutants)?;
    let tests = reach::reach(&built, &mutants, &into.join("target/tests.json"), *threads)?;
    let (k, n) = options.shard;
    let key = |number: &u32| mutants[*number as usize].key;
    let mut numbers: Vec<u32> = (0..mutants.len() as u32)
        .filter(|number| !built.is_left(key(number)))
        .filter(|number| key(number) % u64::from(n) == u64::from(k))
        .collect();
    // In an order of chance: a hunt that is ended early has hunted a fair sample.
    numbers.sort_by_key(key);
    let fates = into.join("target/fates.json");
    let hunt = hunt::Hunt { built: &built, mutants: &mutants, tests: &tests, most: options.most };
    let found = hunt.run(numbers, &fates, *threads)?;
    report::print(&built, &mutants, &found);
    Ok(())
}
