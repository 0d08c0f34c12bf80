//! Locks without ranks: the threads of a model share one thread of the system, and the order of
//! locks is no subject here.

/// Ranks of which nothing is made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rank {
    /// A lane.
    Lane(u16),
    /// The appender.
    Appender,
}

/// A held lock.
pub(crate) type Held<G> = G;

pub(crate) fn taking<G>(_rank: Rank, take: impl FnOnce() -> G) -> Held<G> {
    take()
}

pub(crate) fn taken<G>(_rank: Rank, guard: G) -> Held<G> {
    guard
}
