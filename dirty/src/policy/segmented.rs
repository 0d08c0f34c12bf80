//! `segmented`: data written once go first, oldest first; data written again are kept while they
//! are at most 30 % of the dirty set. The policy costs 8 B a unit.

use super::rank::{Mark, Policy, RankedBy, View};

/// The policy `segmented`.
pub(super) struct Segmented;

impl Policy for Segmented {
    const NAME: &'static str = "segmented";
    const RANKED_BY: RankedBy = RankedBy::Age;
    const MARK_WORDS: usize = 1;
    const HEEDS_REWRITES: bool = true;

    #[inline]
    fn mark(mark: Mark, was_dirty: bool, epoch: u32) -> Mark {
        match was_dirty {
            true => Mark { again: true, ..mark },
            false => Mark { epoch, again: false, history: 0 },
        }
    }

    #[inline]
    fn rank(_unit: u64, mark: Mark, view: &View) -> u64 {
        match mark.again && !view.protected_is_over {
            true => view.by_age(mark, 127),
            false => 128 + view.by_age(mark, 127),
        }
    }
}
