//! `perdura plan`: what to buy and how to set it.

mod battery;
mod claim;
mod media;
mod power;
mod rate;
mod record;
mod trace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

/// Options of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    #[command(subcommand)]
    command: PlanCommand,
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// How much battery: what traces write in their worst intervals and by how few pages, what
    /// budgets would cost them, and the battery that follows (Viyojit, sections 2, 3 and 6).
    Trace(Box<trace::TraceArgs>),
    /// List the formats of traces.
    Formats,
    /// What battery, or what time, it takes to flush a memory, and a bounded part of it. Modelled.
    Battery(Box<battery::BatteryArgs>),
    /// Compare media as primary storage, as a cache before disks, and for a fixed part of the data:
    /// price, power, speed-up, and where the answer flips. Everything is modelled.
    Media(Box<media::MediaArgs>),
    /// Record which pages a program writes, as a trace to plan with: for who has a program and no
    /// trace of it.
    Record(Box<record::RecordArgs>),
}

pub fn run(args: &PlanArgs) -> Result<ExitCode> {
    let code = match &args.command {
        PlanCommand::Trace(args) => trace::run(args),
        PlanCommand::Formats => {
            trace::formats();
            Ok(ExitCode::SUCCESS)
        }
        PlanCommand::Battery(args) => battery::run(args),
        PlanCommand::Media(args) => media::run(args),
        PlanCommand::Record(args) => record::run(args),
    }?;
    perdura_terminal::all_said()?;
    Ok(code)
}
