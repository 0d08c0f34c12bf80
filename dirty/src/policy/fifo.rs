//! `fifo`: oldest first, by the time at which data became dirty. The policy costs 8 B a unit.

use super::rank::{Mark, Policy, RankedBy, View};

/// The policy `fifo`.
pub(super) struct Fifo;

impl Policy for Fifo {
    const NAME: &'static str = "fifo";
    const RANKED_BY: RankedBy = RankedBy::Age;
    const MARK_WORDS: usize = 1;
    const HEEDS_REWRITES: bool = false;

    #[inline]
    fn mark(mark: Mark, was_dirty: bool, epoch: u32) -> Mark {
        if was_dirty { mark } else { Mark { epoch, again: false, history: 0 } }
    }

    #[inline]
    fn rank(_unit: u64, mark: Mark, view: &View) -> u64 {
        view.by_age(mark, 255)
    }
}
