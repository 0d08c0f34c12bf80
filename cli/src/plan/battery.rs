//! `perdura plan battery`: the battery that flushes a memory, and the one for a bounded part of it.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use perdura_media::{Bytes, BytesPerSecond, Percent};
use perdura_plan::power::{Layout, Server};

use super::power::{PowerArgs, show};
use perdura_terminal::named;

/// Options of `plan battery`. The defaults are the paper's server.
#[derive(Debug, Args)]
pub struct BatteryArgs {
    /// Memory that must not be lost.
    #[arg(long, value_name = "SIZE", default_value = "4096GB")]
    memory: String,
    /// Most data that may be dirty: a size, or a share of the memory [default: as much as --grace
    /// or --battery allows, or 11%].
    #[arg(long, value_name = "SIZE|PERCENT")]
    budget: Option<String>,
    #[command(flatten)]
    power: PowerArgs,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

/// The share that the abstract of the Viyojit paper names.
const BUDGET: Percent = Percent(11.0);

pub fn run(args: &BatteryArgs) -> Result<ExitCode> {
    let memory: Bytes = named("memory", &args.memory, args.memory.parse())?;
    anyhow::ensure!(memory.0 > 0, "--memory 0: expected more");
    let rate = BytesPerSecond(Server::PAPER.flush_bytes_per_s);
    let machine = args.power.resolve(rate, 1.0)?;
    let server = machine.server(memory.0, Layout::Plain);
    let most = machine.budget_max(&server)?;
    let Bytes(budget_bytes) = match &args.budget {
        Some(text) if text.trim_end().ends_with('%') => {
            named::<Percent, _>("budget", text, text.parse())?.of(memory)
        }
        Some(text) => named("budget", text, text.parse())?,
        None => most.map_or(BUDGET.of(memory), Bytes),
    };
    anyhow::ensure!(
        args.budget.is_none() || budget_bytes <= memory.0,
        "a budget of {} is more than the memory, {memory}: give a smaller --budget, or the \
         --memory it is for",
        Bytes(budget_bytes)
    );
    if let Some(most) = most
        && budget_bytes > most
    {
        anyhow::bail!(
            "a budget of {} does not fit: the warning or battery given allows {}; give more of it, \
             or a smaller --budget",
            Bytes(budget_bytes),
            Bytes(most)
        );
    }
    let comparison = server.compare(budget_bytes, &machine.cells)?;
    if args.json {
        let answer = serde_json::json!({
            "server": server, "cells": machine.cells, "modelled": comparison,
        });
        perdura_terminal::say(serde_json::to_string_pretty(&answer).context("JSON")?);
    } else {
        show(&comparison);
    }
    Ok(ExitCode::SUCCESS)
}
