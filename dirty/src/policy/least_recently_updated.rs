//! `least-recently-updated`: by the history of updates in the last 64 epochs (Viyojit, section
//! 5.2).
//!
//! Each unit has a history of 64 bits, one for each epoch, which is set if the unit was written in
//! that epoch, dirty or clean. Histories are compared as numbers with the newest epoch as the
//! highest bit. So the unit whose latest update is longest ago goes first; among equals, the one
//! whose update before that is longer ago, and so on. Units that were not written for 64 epochs are
//! equal. The policy costs 16 B a unit.

use super::rank::{Mark, Policy, RankedBy, View};

/// The policy `least-recently-updated`.
pub(super) struct LeastRecentlyUpdated;

impl Policy for LeastRecentlyUpdated {
    const NAME: &'static str = "least-recently-updated";
    const RANKED_BY: RankedBy = RankedBy::History;
    const MARK_WORDS: usize = 2;
    const HEEDS_REWRITES: bool = true;
    const RANK_BITS: u32 = 64;

    #[inline]
    fn mark(mark: Mark, was_dirty: bool, epoch: u32) -> Mark {
        Mark { epoch, again: was_dirty, history: mark.history_at(epoch) | 1 << 63 }
    }

    #[inline]
    fn rank(_unit: u64, mark: Mark, view: &View) -> u64 {
        !mark.history_at(view.epoch)
    }
}
