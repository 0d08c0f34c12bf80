//! `perdura sim cut`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use perdura_region::planted::Planted;
use perdura_sim::cut::{Plan, run as run_cuts};

use crate::args::{CutArgs, SimArgs, SimCommand};
use crate::progress::LateBar;
use crate::say::say;

pub fn run(args: &SimArgs) -> Result<ExitCode> {
    match &args.what {
        SimCommand::Cut(args) => cut(args),
    }
}

fn cut(args: &CutArgs) -> Result<ExitCode> {
    let planted = match args.plant.as_deref() {
        None => Planted::None,
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
