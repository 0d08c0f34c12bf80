//! The state of sampling which dirty pages are written again (Viyojit, section 5.2). The paper
//! clears the MMU's dirty bits once an epoch; a process can only protect dirty pages again and see
//! which of them trap.
//!
//! A page protected again stays dirty and in the ledger; its next store costs a trap and no budget.
//! An epoch ends when every page that was open has been protected once. Each call does a bounded
//! batch, sized so that protecting and the traps that follow take at most a tenth of the time
//! between calls; so a large dirty set stretches the epoch instead of slowing the writers. Nothing
//! is sampled for policies that do not need it, while less than half of the budget is dirty,
//! because nothing will be cleaned soon, or where all memory may be dirty, because nothing ever
//! will.

use std::time::Duration;

use crate::policy::sampling::Sampling;

/// The state of sampling, which only the cleaner uses.
#[derive(Debug)]
pub(super) struct Recency {
    pub(crate) sampling: Sampling,
    /// Bitmap word at which the next batch begins.
    pub(crate) hand: usize,
    /// Time at which the policy's epoch began, nanoseconds on the region's clock.
    pub(crate) epoch_began_ns: u64,
}

impl Recency {
    pub(crate) fn new(call_every: Duration, trap_ns: u64) -> Self {
        let sampling = Sampling::new(call_every.as_nanos() as u64, trap_ns);
        Self { sampling, hand: 0, epoch_began_ns: 0 }
    }
}
