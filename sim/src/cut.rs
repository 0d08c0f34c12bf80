//! Power cuts, crashes and faults of a store, again and again: `perdura sim cut`.
//!
//! A *scenario* is a run drawn from a seed; a *cut* ends it at one of its durable operations in one
//! of the ways of the fault model and checks what that row promises. Cut `n` of seed `S` is the
//! same whatever else is run: `--seed S --only n` replays it.

mod account;
mod battery;
mod broken;
mod detected;
mod ends;
pub(crate) mod kills;
mod name;
mod oracle;
mod proof;
mod scenario;
mod series;
mod served;
mod step;
mod world;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use parking_lot::Mutex;
use perdura_region::Planted;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use ends::End;
pub use series::CUTS_PER_SCENARIO;
use series::{Made, Way};

/// Failures after which a run stops.
pub const FAILURES_MAX: usize = 3;

/// The cuts to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Seed from which all scenarios follow.
    pub seed: u64,
    /// Most cuts to make, over all scenarios.
    pub cuts: u64,
    /// Number of the only cut to make; `None` for all.
    pub only: Option<u64>,
    /// A bug to plant.
    pub planted: Planted,
    /// Threads that make cuts; the outcome does not depend on their number.
    pub threads: usize,
}

/// Number of cuts by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kinds {
    /// Power lost without a warning.
    pub unwarned: u64,
    /// Power lost after a warning.
    pub warned: u64,
    /// Process killed.
    pub crashed: u64,
    /// Bits of the image flipped.
    pub flipped: u64,
    /// Device failed.
    pub latched: u64,
    /// Servers, lost in any of these ways.
    pub served: u64,
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Seed of the plan.
    pub seed: u64,
    /// Number of the cut.
    pub cut: u64,
    /// The bug that had been planted.
    pub planted: Planted,
    /// The scenario and its end, in words.
    pub scenario: String,
    /// The broken promise, in words.
    pub why: String,
}

/// The result of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of cuts.
    pub cuts: u64,
    /// Number of cuts by kind.
    pub kinds: Kinds,
    /// Durable operations of all runs.
    pub durable_ops: u64,
    /// Operations that were refused for want of memory or budget.
    pub refused_ops: u64,
    /// Broken promises; the run stops after [`FAILURES_MAX`].
    pub failures: Vec<Failure>,
}

/// Runs a plan. `progress` gets the number of cuts made and the number of all, and says whether to
/// make more cuts.
pub fn run(plan: &Plan, progress: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync)) -> Outcome {
    let (from, to) = match plan.only {
        Some(cut) => (cut, cut.saturating_add(1)),
        None => (0, plan.cuts),
    };
    let first = from / CUTS_PER_SCENARIO;
    // Regions are small here, and come and go: to gather their pages takes a fifth of the time.
    // Where the system refuses, nothing but time is lost.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let run = Mutex::new(Run {
        next: first,
        ordered: first,
        waiting: BTreeMap::new(),
        outcome: Outcome::default(),
        is_over: false,
    });
    let work = || {
        loop {
            let number = run.lock().next();
            let of_scenario = number.saturating_mul(CUTS_PER_SCENARIO);
            let (start, end) = (from.max(of_scenario), to.min(of_scenario + CUTS_PER_SCENARIO));
            if start >= end || run.lock().is_over {
                return;
            }
            let made = series::make(plan, number, start - of_scenario..end - of_scenario);
            let mut run = run.lock();
            run.waiting.insert(number, made);
            run.take_over(plan, from, to, progress);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..plan.threads {
            scope.spawn(work);
        }
        work();
    });
    run.into_inner().outcome
}

/// The state of a run. Scenarios are handed out in order, and their results count in that order,
/// so that the outcome does not depend on threads.
struct Run {
    /// The next scenario to be handed out.
    next: u64,
    /// The next scenario whose results will count.
    ordered: u64,
    waiting: BTreeMap<u64, Vec<Made>>,
    outcome: Outcome,
    is_over: bool,
}

impl Run {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Counts the results that are next in order.
    fn take_over(
        &mut self,
        plan: &Plan,
        from: u64,
        to: u64,
        progress: &(dyn Fn(u64, u64) -> ControlFlow<()> + Sync),
    ) {
        while let Some(all) = self.waiting.remove(&self.ordered) {
            let first = from.max(self.ordered * CUTS_PER_SCENARIO);
            for (made, cut) in all.into_iter().zip(first..) {
                if self.is_over {
                    return;
                }
                self.outcome.count(plan, cut, made);
                let goes_on = progress(cut + 1 - from, to - from).is_continue();
                self.is_over = !goes_on || self.outcome.failures.len() >= FAILURES_MAX;
            }
            self.ordered += 1;
        }
    }
}

impl Outcome {
    fn count(&mut self, plan: &Plan, cut: u64, made: Made) {
        self.cuts += 1;
        self.durable_ops += made.durable_ops;
        self.refused_ops += made.refused_ops;
        if let Some(way) = made.way {
            self.kinds.count(way);
        }
        if let Some((scenario, why)) = made.failure {
            let (seed, planted) = (plan.seed, plan.planted);
            self.failures.push(Failure { seed, cut, planted, scenario, why });
        }
    }
}

impl Kinds {
    fn count(&mut self, way: Way) {
        *match way {
            Way::Copied { .. } | Way::Run(End::Unwarned { .. }) => &mut self.unwarned,
            Way::Killed { .. } => &mut self.crashed,
            Way::Run(End::Warned { .. }) => &mut self.warned,
            Way::Run(End::Crashed { .. }) => &mut self.crashed,
            Way::Run(End::Flipped { .. }) => &mut self.flipped,
            Way::Run(End::Latched { .. }) => &mut self.latched,
            Way::ServedCopy { .. } | Way::Served(_) => &mut self.served,
        } += 1;
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "cut {}: {}", self.cut, self.why)?;
        writeln!(f, "  scenario: {}", self.scenario)?;
        write!(f, "  replay:   perdura sim cut --seed {} --only {}", self.seed, self.cut)?;
        if self.planted == Planted::None {
            return Ok(());
        }
        write!(f, " --plant {}", self.planted.name())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "{failure}")?;
        }
        let Kinds { unwarned, warned, crashed, flipped, latched, served } = self.kinds;
        write!(
            f,
            "{} cuts: {} unwarned, {} warned, {} crashed, {} with flipped bits, {} with a failed \
             device, {} of servers; {} durable operations; {} failures",
            grouped(self.cuts),
            grouped(unwarned),
            grouped(warned),
            grouped(crashed),
            grouped(flipped),
            grouped(latched),
            grouped(served),
            grouped(self.durable_ops),
            self.failures.len()
        )
    }
}

/// A number with commas between thousands.
fn grouped(number: u64) -> String {
    if number < 1_000 {
        return number.to_string();
    }
    format!("{},{:03}", grouped(number / 1_000), number % 1_000)
}

/// The `number`-th seed that follows from `seed`.
fn mixed(seed: u64, number: u64) -> u64 {
    Random::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).next_u64()
}
