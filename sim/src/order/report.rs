//! The result of a plan, for people and for tests.

use std::collections::BTreeSet;
use std::fmt;

use super::contents::lines_of;
use super::explore::Tally;
use super::place::Place;
use super::plant::Bug;
use super::trace::{Event, Trace};

/// A crash state that a loss must not lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The operation.
    pub operation: &'static str,
    /// Seed of the plan.
    pub seed: u64,
    /// Most states that were tried at one event.
    pub states_max: usize,
    /// The bug that had been planted, if any.
    pub bug: Option<Bug>,
    /// The state.
    pub place: Place,
    /// The state that was found instead of an allowed one.
    pub why: String,
}

/// Bugs of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caught {
    /// How many were planted.
    pub planted: u64,
    /// How many of them were caught.
    pub caught: u64,
}

/// The result of checking one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationReport {
    /// Name of the operation.
    pub name: &'static str,
    /// Number of stores.
    pub stores: usize,
    /// Number of flushes.
    pub flushes: usize,
    /// Number of different lines that were stored to.
    pub lines: usize,
    /// Number of fences.
    pub fences: usize,
    /// Counts of the states that were tried.
    pub tally: Tally,
    /// The first failure, if any.
    pub failure: Option<Failure>,
    /// Bugs planted and caught, by kind.
    pub caught: Vec<(&'static str, Caught)>,
    /// Bugs that were not caught, each with its event: flushes that nothing needs, and stores whose
    /// order does not matter.
    pub missed: Vec<(Bug, String)>,
}

/// The results of all operations of a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The operations in the order of the list of all operations.
    pub operations: Vec<OperationReport>,
}

impl Outcome {
    /// The failures of all operations.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.operations.iter().filter_map(|operation| operation.failure.as_ref())
    }
}

impl OperationReport {
    pub(crate) fn new(name: &'static str, trace: &Trace) -> Self {
        let lines: BTreeSet<u64> = trace
            .events
            .iter()
            .filter_map(Event::stored)
            .flat_map(|(offset, bytes)| lines_of(offset, bytes).map(|(number, ..)| number))
            .collect();
        Self {
            name,
            stores: trace.stores(),
            flushes: trace.flushes(),
            lines: lines.len(),
            fences: trace.fences(),
            tally: Tally::default(),
            failure: None,
            caught: Vec::new(),
            missed: Vec::new(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, seed, states_max, place, why, .. } = self;
        writeln!(f, "{operation}, seed {seed}, state {place}: {why}")?;
        write!(
            f,
            "  replay: perdura sim order --operation {operation} --seed {seed} \
             --states-max {states_max} --only {place}"
        )?;
        self.bug.map_or(Ok(()), |bug| write!(f, " --plant {bug}"))
    }
}

impl fmt::Display for OperationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { points, whole_points, states, reopened, recoveries } = self.tally;
        write!(
            f,
            "{:<18} {} stores in {} lines, {} flushes, {} fences; {states} crash states at \
             {points} points (all there are at {whole_points}), {reopened} different; \
             {recoveries} recoveries cut",
            self.name, self.stores, self.lines, self.flushes, self.fences
        )?;
        for (kind, Caught { planted, caught }) in &self.caught {
            write!(f, "\n  {kind:<16} {caught} of {planted} caught")?;
            let missed: Vec<_> = self
                .missed
                .iter()
                .filter(|(bug, _)| bug.kind() == *kind && bug.is_waste())
                .map(|(bug, event)| format!("{bug} ({event})"))
                .collect();
            if !missed.is_empty() {
                write!(f, "; never missed: {}", missed.join(", "))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for operation in &self.operations {
            writeln!(f, "{operation}")?;
            if let Some(failure) = &operation.failure {
                writeln!(f, "FAILED {failure}")?;
            }
        }
        let sum =
            |of: fn(&Tally) -> u64| self.operations.iter().map(|one| of(&one.tally)).sum::<u64>();
        write!(
            f,
            "{} operations: {} crash states, {} different, {} recoveries cut; {} failures",
            self.operations.len(),
            sum(|tally| tally.states),
            sum(|tally| tally.reopened),
            sum(|tally| tally.recoveries),
            self.failures().count()
        )
    }
}
