//! A promise that did not hold, with what was found.

use perdura_heap::{HeapError, MemoryError};

use super::oracle::Difference;

/// What broke.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the heap does not open: {0}")]
    Open(HeapError),
    #[error("{step}: refused: {error}")]
    Refused { step: &'static str, error: HeapError },
    #[error("{step}: done, though it must be refused")]
    NotRefused { step: &'static str },
    #[error("{}", .0.iter().map(|(step, found)| format!("not as after {step:?}: {found}")).collect::<Vec<_>>().join("; "))]
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
