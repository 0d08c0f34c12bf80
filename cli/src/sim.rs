//! `perdura sim cut` and `perdura sim order`: simulated losses, with seeds.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail};
use perdura_bench::machine::process_cpu_ns;
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
    let seed = match (args.seed, args.seconds) {
        (Some(seed), _) => seed,
        (None, Some(_)) => days_since_1970()?,
        (None, None) => 1,
    };
    let cuts = if args.seconds.is_some() { u64::MAX } else { args.cuts };
    let threads = args.threads.get();
    let plan = Plan { seed, cuts, only: args.only, planted, threads };
    let bar = LateBar::new("cutting");
    let began_ns = process_cpu_ns();
    let outcome = run_cuts(&plan, &|done, of| {
        let Some(seconds) = args.seconds else {
            bar.count(done, of);
            return ControlFlow::Continue(());
        };
        let passed = (process_cpu_ns() - began_ns) / 1_000_000_000;
        bar.count(passed.min(seconds), seconds);
        if passed < seconds { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    bar.finish();
    if args.seconds.is_some() {
        // The seed changes from day to day, and the number of cuts from run to run.
        say(format!("repeat with: perdura sim cut --seed {seed} --cuts {}", outcome.cuts));
    }
    say(&outcome);
    Ok(if outcome.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn days_since_1970() -> Result<u64> {
    let passed = UNIX_EPOCH.elapsed().context("the clock is before 1970; give a --seed")?;
    Ok(passed.as_secs() / (24 * 60 * 60))
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
        Some(name) => {
            let bug = name.parse().context("--plant: each, none or a bug")?;
            if args.operation == "all" && !matches!(bug, order::Bug::Heap(_)) {
                bail!("--plant {name} needs --operation: events are numbered in each");
            }
            order::Plant::One(bug)
        }
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
