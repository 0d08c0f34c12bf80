//! Checks the order of the heap's stores: `perdura sim order`.
//!
//! An operation of the heap is recorded: its stores, flushes and fences. For each point of the
//! recording, the memories that a loss may leave are enumerated ([`model`]). The heap is reopened
//! on each, and its contents are compared with an oracle that knows the states before and after
//! each step. Recoveries are cut in their turn. Then every flush, fence and store of the recording
//! is planted with a bug in turn, which must be caught. A flush whose loss is never noticed may be
//! superfluous, and is listed.
//!
//! Operation, seed and limits decide everything; a [`Place`] names a state.

mod broken;
mod contents;
mod explore;
mod model;
mod operations;
mod oracle;
mod place;
mod plant;
mod report;
mod script;
mod settings;
mod states;
mod subject;
mod sys;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use perdura_heap::Planted;

use broken::Broken;
use explore::{Explorer, Found, Limits};
use script::{Operation, Recorded};

pub use explore::Tally;
pub use place::{NotAPlace, Place, Step};
pub use plant::{Bug, NotABug};
pub use report::{Caught, Failure, OperationReport, Outcome};

/// States tried at one event unless told otherwise.
pub const STATES_MAX: usize = 32;
/// Most stores of one recording at which a loss is tried. Of more stores, as many are taken evenly.
const STORES_MAX: usize = 90;
/// Events of a recording, most of them alike, from which on a loss is tried at a third as many
/// stores.
const EVENTS_LONG: usize = 1_000;
/// Events of a recording up to which losses are tried in as many of its recoveries as the operation
/// asks for. In a longer recording there are fewer in proportion.
const EVENTS_RECOVERED: usize = 50;
/// States at one event up to which losses are tried in as many of their recoveries as the operation
/// asks for.
const STATES_RECOVERED: usize = 8;
/// Most bugs of one kind that are planted in one recording. Of more, as many are taken evenly.
const BUGS_MAX: usize = 64;

/// The settings of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Name of the operation to check; `None` for all operations.
    pub operation: Option<String>,
    /// Seed of every random choice.
    pub seed: u64,
    /// Most states that are tried at one event.
    pub states_max: usize,
    /// Try only this state.
    pub only: Option<Place>,
    /// Bugs to plant.
    pub plant: Plant,
}

/// Which bugs to plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// No bug: only the right program is checked.
    None,
    /// Each bug there is, after the right program, to count how many are caught.
    Each,
    /// One bug, in the place of the right program: the check is expected to fail.
    One(Bug),
}

/// A plan that cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// There is no operation of this name.
    #[error("no operation {name}: expected all or one of {}", names().join(", "))]
    NoOperation {
        /// The name given.
        name: String,
    },
    /// The operation has no such event.
    #[error(
        "{operation}: {bug} cannot be planted: there is no such event, or it would change nothing"
    )]
    NoBug {
        /// The operation.
        operation: &'static str,
        /// The bug.
        bug: Bug,
    },
    /// The program was built without bugs of the heap.
    #[error("{}: this program was built without the heap's bugs", planted.name())]
    NotBuilt {
        /// The bug.
        planted: Planted,
    },
    /// The operation has no such state.
    #[error(
        "{operation}: no state {place} (states are numbered anew with another seed or --states-max)"
    )]
    NoState {
        /// The operation.
        operation: &'static str,
        /// The state.
        place: Place,
    },
    /// The operation failed where no power was lost.
    #[error("{operation}: failed without any loss: {why}")]
    Record {
        /// The operation.
        operation: &'static str,
        /// The description of the failure.
        why: String,
    },
}

/// Names of all operations.
pub fn names() -> Vec<&'static str> {
    operations::all().iter().map(|operation| operation.name).collect()
}

/// Carries a plan out. `progress` gets the number of operations done and the number of all.
///
/// # Errors
/// The plan names an operation, a bug or a state that does not exist, or an operation fails without
/// any loss.
pub fn run(plan: &Plan, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Outcome, PlanError> {
    let mut chosen = operations::all();
    if let Some(name) = &plan.operation {
        chosen.retain(|operation| operation.name == name);
    }
    if let (Some(name), true) = (&plan.operation, chosen.is_empty()) {
        return Err(PlanError::NoOperation { name: name.clone() });
    }
    if let Plant::One(Bug::Heap(planted)) = plan.plant {
        if !Planted::CAN_PLANT {
            return Err(PlanError::NotBuilt { planted });
        }
        chosen.iter_mut().for_each(|operation| operation.settings.planted = planted);
    }
    let next = AtomicUsize::new(0);
    let done = AtomicU64::new(0);
    let work = || {
        let mut reports = Vec::new();
        while let Some(operation) = chosen.get(next.fetch_add(1, Relaxed)) {
            reports.push((operation.name, check_recorded(plan, operation)));
            progress(done.fetch_add(1, Relaxed) + 1, chosen.len() as u64);
        }
        reports
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(chosen.len());
    let mut reports = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut reports = work();
        for other in others {
            let some = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            reports.extend(some);
        }
        reports
    });
    let place = |name| chosen.iter().position(|operation| operation.name == name);
    reports.sort_by_key(|(name, _)| place(*name));
    let operations: Result<_, _> = reports.into_iter().map(|(_, report)| report).collect();
    Ok(Outcome { operations: operations? })
}

fn check_recorded(plan: &Plan, operation: &Operation) -> Result<OperationReport, PlanError> {
    let mut recorded = script::record(operation)
        .map_err(|why| PlanError::Record { operation: operation.name, why: why.to_string() })?;
    recorded.subject.seed = plan.seed;
    check(plan, operation.name, &recorded)
}

fn check(
    plan: &Plan,
    operation: &'static str,
    recorded: &Recorded,
) -> Result<OperationReport, PlanError> {
    let mut explorer = Explorer::new(&recorded.subject, plan.seed, recorded.boot);
    let limits = limits(plan, recorded);
    let bug = if let Plant::One(bug) = plan.plant { Some(bug) } else { None };
    let trace = match bug {
        None => recorded.trace.clone(),
        Some(bug) => bug.plant(&recorded.trace).ok_or(PlanError::NoBug { operation, bug })?,
    };
    let walked = match &plan.only {
        None => explorer.walk(&recorded.lines, &trace, &limits),
        Some(place) => match explorer.replay(&recorded.lines, &trace, &limits, place) {
            Ok(true) => Ok(()),
            Ok(false) => return Err(PlanError::NoState { operation, place: place.clone() }),
            Err(found) => Err(found),
        },
    };
    let mut report = OperationReport::new(operation, &recorded.trace);
    let failure = |Found { place, broken }: Found<Broken>| Failure {
        operation,
        seed: plan.seed,
        states_max: plan.states_max,
        bug,
        place,
        why: broken.to_string(),
    };
    report.failure = walked.err().map(failure);
    report.tally = explorer.tally;
    if plan.plant == Plant::Each && plan.only.is_none() && report.failure.is_none() {
        // Recoveries are not planted with bugs here: `open` is an operation of its own.
        plant_each(&mut explorer, recorded, &Limits { losses_max: 1, ..limits }, &mut report);
    }
    Ok(report)
}

/// Plants each bug in turn, and counts those that are caught.
fn plant_each(
    explorer: &mut Explorer<'_, subject::HeapSubject>,
    recorded: &Recorded,
    limits: &Limits,
    report: &mut OperationReport,
) {
    let mut caught: BTreeMap<&'static str, Caught> = BTreeMap::new();
    for bug in thinned(Bug::all(&recorded.trace)) {
        let Some(trace) = bug.plant(&recorded.trace) else { continue };
        let is_caught = explorer.walk(&recorded.lines, &trace, limits).is_err();
        let kind = caught.entry(bug.kind()).or_default();
        kind.planted += 1;
        kind.caught += u64::from(is_caught);
        if !is_caught {
            let event = bug.index(&recorded.trace).map(|at| recorded.describe(at));
            report.missed.push((bug, event.unwrap_or_default()));
        }
    }
    report.caught = caught.into_iter().collect();
}

/// The bugs without those beyond [`BUGS_MAX`] of a kind.
fn thinned(bugs: Vec<Bug>) -> Vec<Bug> {
    let mut by_kind: BTreeMap<&'static str, Vec<Bug>> = BTreeMap::new();
    for bug in bugs {
        by_kind.entry(bug.kind()).or_default().push(bug);
    }
    let some = |bugs: Vec<Bug>| {
        let every = bugs.len().div_ceil(BUGS_MAX).max(1);
        bugs.into_iter().step_by(every)
    };
    by_kind.into_values().flat_map(some).collect()
}

fn limits(plan: &Plan, recorded: &Recorded) -> Limits {
    let events = recorded.trace.events.len();
    let thinner = events.div_ceil(EVENTS_RECOVERED).max(1) as u64;
    // More states mean no more recoveries that are cut, which would take most of the time.
    let more = plan.states_max.div_ceil(STATES_RECOVERED) as u64;
    Limits {
        states_max: plan.states_max,
        stores_max: if events > EVENTS_LONG { STORES_MAX / 3 } else { STORES_MAX },
        losses_max: recorded.losses_max,
        recovery_states_max: (plan.states_max / 16).max(2),
        recovery_one_in: recorded.recovery_one_in * thinner * more,
        kill_one_in: recorded.kill_one_in * thinner,
        with_kills: true,
    }
}
