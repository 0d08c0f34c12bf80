//! `perdura bench`: words to settings, settings to `perdura-bench`, results to the terminal and to
//! files.

mod access;
mod args;
mod caches;
mod compare;
mod haste;
mod heap;
mod insights;
mod media;
mod memory;
mod plan;
mod rivals;
mod show;
mod ycsb;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use serde::Serialize;

pub use args::BenchArgs;
use args::BenchCommand;

pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    match &args.what {
        BenchCommand::Run(args) => access::run(args),
        BenchCommand::Compare(args) => compare::run(args),
        BenchCommand::Suite(args) => access::suite(args),
        BenchCommand::Ycsb(args) => ycsb::run(args),
        BenchCommand::Memory(args) => memory::run(args),
        BenchCommand::Plan(args) => plan::run(args),
        BenchCommand::Media(args) => media::run(args),
        BenchCommand::Haste(args) => haste::run(args),
        BenchCommand::Insights(args) => insights::run(args),
        BenchCommand::Heap(args) => heap::run(args),
        BenchCommand::HeapWorker => heap::work(),
        BenchCommand::Rivals(args) => rivals::run(args),
        BenchCommand::HeapCaches(args) => caches::run(args),
    }
}

/// Made before anything is measured: a result that cannot be kept should not take an hour first.
fn output(name: &str, path: Option<&Path>) -> Result<Option<File>> {
    path.map(|path| File::create(path).with_context(|| format!("--{name} {}", path.display())))
        .transpose()
}

fn write_json(file: Option<File>, result: &impl Serialize) -> Result<()> {
    let Some(mut file) = file else { return Ok(()) };
    let text = serde_json::to_string_pretty(result).context("--json")?;
    writeln!(file, "{text}").context("--json")
}
