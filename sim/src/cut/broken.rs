//! Promises that were broken.

use perdura_region::{OpenError, RegionError};
use perdura_server::ServeError;
use perdura_store::{StoreError, Unreadable};

use super::oracle::Difference;

/// A promise that was broken, with the facts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("{step}: refused: {error}")]
    Refused { step: String, error: StoreError },
    #[error("{step}: {error}")]
    Region { step: String, error: RegionError },
    #[error("{step}: the store and the oracle disagree about the kind of value")]
    Kinds { step: String },
    #[error("{step}: reported as done after the device had failed")]
    FalseSuccess { step: String },
    #[error("{when}: {difference}")]
    Contents { when: &'static str, difference: Difference },
    #[error("database {db}: {found} keys counted, {expected} expected")]
    Count { db: u8, found: u64, expected: u64 },
    #[error("{step}: {used_bytes} bytes were used, the budget is {budget_bytes} bytes")]
    Budget { step: String, used_bytes: u64, budget_bytes: u64 },
    #[error(
        "memory and durable image differ in {differing_bytes} bytes; {used_bytes} bytes are \
         accounted for, {freed_bytes} bytes were freed"
    )]
    Unaccounted { differing_bytes: u64, used_bytes: u64, freed_bytes: u64 },
    #[error("{when}: the region does not open: {error}")]
    Open { when: &'static str, error: OpenError },
    #[error("{when}: the store does not open: {error}")]
    OpenStore { when: &'static str, error: perdura_store::OpenError },
    #[error(
        "{when}: none of {states} committed states was found; against the newest: {difference}"
    )]
    NoCommittedState { when: &'static str, states: usize, difference: Difference },
    #[error("a run of {ops} durable operations has ended before the place of a copy")]
    NoCopy { ops: u64 },
    #[error("a run of {ops} durable operations had {again} when it was repeated")]
    OtherRun { ops: u64, again: u64 },
    #[error("{when}: {why}")]
    Told { when: &'static str, why: String },
    #[error("the server: {error}")]
    Serve { error: ServeError },
    #[error("the flush with the warning's energy failed: {error}")]
    WarnedFlush { error: RegionError },
    #[error("{when}: the final commit was not found")]
    NotFinal { when: &'static str },
    #[error("the system refuses: {0}")]
    System(#[from] std::io::Error),
    #[error("a read was refused where nothing was damaged: {error}")]
    Unreadable { error: Unreadable },
    #[error("panicked: {0}")]
    Panicked(String),
}
