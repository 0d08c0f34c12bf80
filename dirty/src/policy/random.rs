//! `random`: any dirty unit, by a seeded hash of its number and the round. The policy costs no
//! memory.

use super::rank::{Mark, Policy, RankedBy, View};

/// The policy `random`.
pub(super) struct Random;

impl Policy for Random {
    const NAME: &'static str = "random";
    const RANKED_BY: RankedBy = RankedBy::Number;
    const MARK_WORDS: usize = 0;
    const HEEDS_REWRITES: bool = false;

    #[inline]
    fn rank(unit: u64, _mark: Mark, view: &View) -> u64 {
        (unit ^ view.round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56
    }
}
