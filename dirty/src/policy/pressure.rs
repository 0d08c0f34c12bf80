//! The dirty bytes to expect, and the threshold at which cleaning begins.

/// The number of the round after `round`; it seeds the policy `random`.
pub fn next_round(round: u64) -> u64 {
    round.wrapping_add(0x9e37_79b9_7f4a_7c15)
}

/// Dirty bytes to expect in the next epoch (Viyojit, section 5.3): 0.75 of this epoch's and 0.25 of
/// the previous expectation.
pub(crate) fn pressure(new_dirty_bytes: u64, previous: u64) -> u64 {
    new_dirty_bytes / 4 * 3 + new_dirty_bytes % 4 * 3 / 4 + previous / 4
}

/// Dirty bytes above which cleaning begins (Viyojit, section 5.3): the budget less the pressure.
pub(crate) fn threshold(budget_bytes: u64, pressure_bytes: u64) -> u64 {
    budget_bytes.saturating_sub(pressure_bytes)
}

/// Dirty bytes to expect, in addition to the pressure, while cleaned bytes are on their way to the
/// device. They are as many as the last time, or nearly as many as expected before if that was
/// more: one device flush in ten takes ten times as long as the others, and room for it costs a
/// hundredth of the budget. Where a write takes longer than an epoch, the paper's pressure alone
/// would make writers wait.
pub(crate) fn lead(net_dirtied_bytes: u64, previous: u64) -> u64 {
    net_dirtied_bytes.max(previous - previous.div_ceil(64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_weighs_this_epoch_three_to_one() {
        assert_eq!(pressure(100, 0), 75);
        assert_eq!(pressure(0, 100), 25);
        assert_eq!(pressure(400, 400), 400);
        assert_eq!(threshold(100, 250), 0);
    }

    #[test]
    fn lead_follows_a_rise_at_once_and_a_fall_slowly() {
        assert_eq!(lead(800, 0), 800);
        assert_eq!(lead(0, 800), 787);
        assert_eq!(lead(0, 7), 6);
        assert_eq!(lead(0, 0), 0);
    }
}
