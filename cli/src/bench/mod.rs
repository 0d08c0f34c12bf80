//! `perdura bench`: words to settings, settings to `perdura-bench`, results to the terminal and to files.

mod args;
mod show;
mod ycsb;

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

pub use args::BenchArgs;
use args::BenchCommand;

pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    match &args.what {
        BenchCommand::Ycsb(args) => ycsb::run(args),
    }
}

/// Made before anything is measured: a result that cannot be kept should not take an hour first.
fn output(name: &str, path: Option<&Path>) -> Result<Option<File>> {
    path.map(|path| File::create(path).with_context(|| format!("--{name} {}", path.display())))
        .transpose()
}
