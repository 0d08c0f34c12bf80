//! `perdura sim cut` and `perdura sim order`: simulated losses, with seeds.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use perdura_region::Planted;
use perdura_sim::cut::{Plan, run as run_cuts};
use perdura_sim::order;

use crate::args::{CutArgs, OrderArgs, SimArgs, SimCommand};
use perdura_terminal::LateBar;
use perdura_terminal::say;

pub fn run(args: &SimArgs) -> Result<ExitCode> {
    match &args.what {
        SimCommand::Cut(args) => cut(args),
        SimCommand::Order(args) => check_order(args),
    }
}

fn cut(args: &CutArgs) -> Result<ExitCode> {
    let planted = match args.plant.as_deref() {
        None => Planted::None,
        Some(name) if !Planted::CAN_PLANT => bail!(
            "--plant {name}: this program was built without the bugs; build it with \
             `cargo build --release -p perdura-cli --features planted`"
        ),
        Some(name) => {
            Planted::ALL.into_iter().find(|bug| bug.name() == name).with_context(|| {
                let names: Vec<_> = Planted::ALL.iter().map(|bug| bug.name()).collect();
                format!("--plant {name}: expected one of {}", names.join(", "))
            })?
        }
    };
    let bar = LateBar::new("cutting");
    let plan = Plan { seed: args.seed, cuts: args.cuts, only: args.only, planted };
    let outcome = run_cuts(&plan, &|done, of| bar.count(done, of));
    bar.finish();
    say(&outcome);
    Ok(if outcome.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_order(args: &OrderArgs) -> Result<ExitCode> {
    let only: Option<order::Place> = match &args.only {
        None => None,
        Some(_) if args.operation == "all" => {
            bail!("--only needs --operation: states are numbered in each")
        }
        Some(name) => Some(name.parse().context("--only")?),
    };
    let plant = match args.plant.as_deref() {
        None | Some("none") => order::Plant::None,
        Some("each") => order::Plant::Each,
        Some(_) if args.operation == "all" => bail!("--plant with one bug needs --operation"),
        Some(name) => order::Plant::One(name.parse().context("--plant: each, none or a bug")?),
    };
    let operation = (args.operation != "all").then(|| args.operation.clone());
    let bar = LateBar::new("checking orders");
    let plan = order::Plan { operation, seed: args.seed, states_max: args.states_max, only, plant };
    let outcome = order::run(&plan, &|done, of| bar.count(done, of));
    bar.finish();
    let outcome = outcome?;
    say(&outcome);
    Ok(if outcome.failures().next().is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
