//! `perdura bench`: options become settings of the crate `perdura-bench`, and its results go to the
//! terminal and to files.

mod args;
mod energy;
mod grace;
mod show;
mod signal;
mod ycsb;

use std::process::ExitCode;

use anyhow::Result;

pub use args::BenchArgs;
use args::BenchCommand;

pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    match &args.what {
        BenchCommand::Energy(args) => energy::run(args),
        BenchCommand::Grace(args) => grace::run(args),
        BenchCommand::Ycsb(args) => ycsb::run(args),
    }
}
