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
mod name;
mod oracle;
mod proof;
mod scenario;
mod step;
mod world;

use std::fmt;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use perdura_media::SimDevice;
use perdura_region::Planted;
use perdura_store::Unreadable;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use broken::Broken;
use ends::{End, count_ops};
use scenario::Scenario;
use world::World;

/// Cuts made of one scenario.
pub const CUTS_PER_SCENARIO: u64 = 25;
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
    let mut outcome = Outcome::default();
    let (from, to) = match plan.only {
        Some(cut) => (cut, cut.saturating_add(1)),
        None => (0, plan.cuts),
    };
    let mut cut = from;
    while cut < to && outcome.failures.len() < FAILURES_MAX {
        let number = cut / CUTS_PER_SCENARIO;
        let end = to.min((number + 1).saturating_mul(CUTS_PER_SCENARIO));
        let scenario = Scenario::draw(mixed(plan.seed, number));
        let counted = attempt(plan.planted, &scenario, number, &mut outcome, count_ops);
        let ops = match counted {
            Ok(ops) => ops,
            // The scenario fails without a cut, so its first cut stands for all of its cuts.
            Err(broken) => {
                let what = format!("{scenario}; not cut");
                outcome.fail(plan, cut, what, &broken);
                outcome.cuts += 1;
                cut = end;
                continue;
            }
        };
        while cut < end && outcome.failures.len() < FAILURES_MAX {
            let seed = mixed(!plan.seed, cut);
            let mut random = Random::seed_from_u64(seed);
            let index = cut % CUTS_PER_SCENARIO;
            let end = End::draw(&scenario, ops, index, CUTS_PER_SCENARIO, &mut random);
            let checked = attempt(plan.planted, &scenario, seed, &mut outcome, |world| {
                end.check(world, &mut random)
            });
            if let Err(broken) = checked {
                outcome.fail(plan, cut, format!("{scenario}; {end}"), &broken);
            }
            outcome.kinds.count(&end);
            outcome.cuts += 1;
            cut += 1;
            if progress(cut - from, to - from).is_break() {
                return outcome;
            }
        }
    }
    outcome
}

/// Gives `f` a new machine; a panic on it is a failure like others.
fn attempt<R>(
    planted: Planted,
    scenario: &Scenario,
    seed: u64,
    outcome: &mut Outcome,
    f: impl FnOnce(&mut World<'_>) -> Result<R, Broken>,
) -> Result<R, Broken> {
    let device = SimDevice::new(0, seed);
    let mut world = World::new(scenario, planted, device);
    let result = catch_unwind(AssertUnwindSafe(|| Unreadable::catch(|| f(&mut world))));
    outcome.durable_ops += world.durable_ops();
    outcome.refused_ops += world.refused;
    let refused = |error| Err(Broken::Unreadable { error });
    result.map(|done| done.unwrap_or_else(refused)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Broken::Panicked(text.unwrap_or("without a message").to_owned()))
    })
}

impl Kinds {
    fn count(&mut self, end: &End) {
        *match end {
            End::Unwarned { .. } => &mut self.unwarned,
            End::Warned { .. } => &mut self.warned,
            End::Crashed { .. } => &mut self.crashed,
            End::Flipped { .. } => &mut self.flipped,
            End::Latched { .. } => &mut self.latched,
        } += 1;
    }
}

impl Outcome {
    fn fail(&mut self, plan: &Plan, cut: u64, scenario: String, broken: &Broken) {
        let (seed, planted) = (plan.seed, plan.planted);
        self.failures.push(Failure { seed, cut, planted, scenario, why: broken.to_string() });
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
        let Kinds { unwarned, warned, crashed, flipped, latched } = self.kinds;
        write!(
            f,
            "{} cuts: {} unwarned, {} warned, {} crashed, {} with flipped bits, {} with a failed \
             device; {} durable operations; {} failures",
            grouped(self.cuts),
            grouped(unwarned),
            grouped(warned),
            grouped(crashed),
            grouped(flipped),
            grouped(latched),
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
