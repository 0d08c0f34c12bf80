//! Promises that were broken.

use perdura_heap::{HeapError, MemoryError};

use super::oracle::Difference;

/// A promise that was broken, with the facts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the heap does not open: {0}")]
    Open(HeapError),
    #[error("{step}: refused: {error}")]
    Refused { step: &'static str, error: HeapError },
    #[error("{step}: done, though it must be refused")]
    NotRefused { step: &'static str },
    #[error("{}", told(.0))]
    NoState(Vec<(&'static str, Difference)>),
    #[error("after the recovery, {step}: {difference}")]
    Later { step: &'static str, difference: Difference },
    #[error("{when}: the byte at {offset:#x} was stored without the tap's knowledge")]
    Untapped { when: &'static str, offset: u64 },
    #[error("no memory for a heap: {0}")]
    Memory(#[from] MemoryError),
    #[error("panicked: {0}")]
    Panicked(String),
}

/// The difference to each of the allowed states.
fn told(differences: &[(&'static str, Difference)]) -> String {
    let told = differences.iter().map(|(step, found)| format!("not as after {step:?}: {found}"));
    told.collect::<Vec<_>>().join("; ")
}
