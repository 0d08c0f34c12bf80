//! `perdura plan`: what to buy and how to set it.

mod battery;
mod claim;
mod formats;
mod kubernetes;
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
    /// Find a budget and a battery for a load, from a trace of it: how much it writes in its worst
    /// intervals and to how few pages, what budgets would cost it, and the battery that follows
    /// (Viyojit, sections 2, 3 and 6).
    Trace(Box<trace::TraceArgs>),
    /// List the formats of traces, and say which of them this program reads.
    Formats,
    /// Compute the battery, or the time, that it takes to flush a memory, and to flush a bounded
    /// part of it. All figures are modelled.
    Battery(Box<battery::BatteryArgs>),
    /// Compare media to buy for a load, as primary storage, as a cache before disks and for a fixed
    /// part of the data: price, power, speed-up, and the loads at which the answer changes. All
    /// figures are modelled.
    Media(Box<media::MediaArgs>),
    /// Print a manifest for Kubernetes whose times and sizes keep the promise when the pod is
    /// deleted.
    Kubernetes(Box<kubernetes::KubernetesArgs>),
    /// Record which pages a program writes, as a trace for `plan trace`.
    Record(Box<record::RecordArgs>),
}

pub fn run(args: &PlanArgs) -> Result<ExitCode> {
    let code = match &args.command {
        PlanCommand::Trace(args) => trace::run(args),
        PlanCommand::Formats => {
            formats::list();
            Ok(ExitCode::SUCCESS)
        }
        PlanCommand::Battery(args) => battery::run(args),
        PlanCommand::Media(args) => media::run(args),
        PlanCommand::Kubernetes(args) => kubernetes::run(args),
        PlanCommand::Record(args) => record::run(args),
    }?;
    perdura_terminal::all_said()?;
    Ok(code)
}
