//! Points at which a test may hand the processor from one thread to another, so that a seed decides
//! how threads interleave.
//!
//! Without the feature `planted` nothing of this is compiled.

#[cfg(feature = "planted")]
use std::cell::Cell;

/// What a thread does at each point.
#[cfg(feature = "planted")]
pub type Step = &'static (dyn Fn() + Sync);

#[cfg(feature = "planted")]
thread_local! {
    static STEP: Cell<Option<Step>> = const { Cell::new(None) };
}

/// From now on the calling thread does `step` at each point; it does nothing with `None`.
#[cfg(feature = "planted")]
pub fn follow(step: Option<Step>) {
    STEP.set(step);
}

/// A point at which another thread may go on.
#[inline(always)]
pub fn point() {
    #[cfg(feature = "planted")]
    if let Some(step) = STEP.get() {
        step();
    }
}

/// Takes a lock in a schedule: tries again at each point, because a thread that sleeps would keep
/// the processor from all others. `None` outside of a schedule.
#[cfg(feature = "planted")]
#[inline]
pub(crate) fn until<G>(mut take: impl FnMut() -> Option<G>) -> Option<G> {
    STEP.get()?;
    loop {
        point();
        if let Some(taken) = take() {
            return Some(taken);
        }
    }
}

/// Outside of a schedule a lock is taken as ever.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub(crate) fn until<G>(_take: impl FnMut() -> Option<G>) -> Option<G> {
    None
}
