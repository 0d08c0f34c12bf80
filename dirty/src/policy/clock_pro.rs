//! `clock-pro`: two hands, as in CLOCK-Pro. Data that are written again while dirty, or soon after
//! they were cleaned, are spared until a slower hand has cooled them. The policy costs two bits a
//! grain.

use super::rank::{Mark, Policy, RankedBy, View};

/// The policy `clock-pro`.
pub(super) struct ClockPro;

impl Policy for ClockPro {
    const NAME: &'static str = "clock-pro";
    const RANKED_BY: RankedBy = RankedBy::Heat;
    const MARK_WORDS: usize = 0;
    const HEEDS_REWRITES: bool = true;

    /// All units have one rank, because hot grains are spared by their heat.
    #[inline]
    fn rank(_unit: u64, _mark: Mark, _view: &View) -> u64 {
        255
    }
}
