//! Dividing an amount by weight between lower and upper bounds.

/// The bounds and the weight of one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// At least this.
    pub(super) floor: u64,
    /// At most this.
    pub(super) cap: u64,
    /// Parts that reach no bound are in proportion to their weights.
    pub(super) weight: u32,
}

impl Part {
    /// What the part gets at `level` for each unit of weight.
    fn at(&self, level: u64) -> u64 {
        let by_weight = u128::from(level) * u128::from(self.weight);
        let by_weight = u64::try_from(by_weight).unwrap_or(u64::MAX);
        by_weight.max(self.floor).min(self.cap.max(self.floor))
    }
}

/// Divides `total`: floors first, then by weight up to the caps. The parts together are never more
/// than `total`: floors that are get less in proportion. What is left over by rounding stays.
pub(super) fn fill(total: u64, parts: &[Part]) -> Vec<u64> {
    let sum = |level| parts.iter().map(|part| u128::from(part.at(level))).sum::<u128>();
    let floors = parts.iter().map(|part| u128::from(part.floor)).sum::<u128>();
    if floors > u128::from(total) {
        let less = |part: &Part| (u128::from(part.floor) * u128::from(total) / floors) as u64;
        return parts.iter().map(less).collect();
    }
    // The highest level at which all parts fit.
    let (mut fits, mut beyond) = (0, total.saturating_add(1));
    while beyond - fits > 1 {
        let middle = fits + (beyond - fits) / 2;
        if sum(middle) <= u128::from(total) { fits = middle } else { beyond = middle }
    }
    parts.iter().map(|part| part.at(fits)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(floor: u64, cap: u64, weight: u32) -> Part {
        Part { floor, cap, weight }
    }

    #[test]
    fn weights_count_between_the_bounds() {
        assert_eq!(fill(100, &[part(0, 100, 1), part(0, 100, 3)]), [25, 75]);
        assert_eq!(fill(100, &[part(40, 100, 1), part(0, 100, 3)]), [40, 60]);
        assert_eq!(fill(100, &[part(0, 10, 1), part(0, 100, 1)]), [10, 90]);
        assert_eq!(fill(100, &[part(0, 30, 1), part(0, 40, 1)]), [30, 40]);
        assert_eq!(fill(100, &[part(150, 200, 1), part(50, 90, 9)]), [75, 25]);
        assert_eq!(fill(0, &[part(0, 5, 1)]), [0]);
        assert!(fill(9, &[]).is_empty());
    }

    proptest! {
        #[test]
        fn parts_keep_to_their_bounds_and_use_what_there_is(
            total in 0..1_000_000u64,
            bounds in prop::collection::vec((0..90_000u64, 0..300_000u64, 1..100u32), 1..20),
        ) {
            let parts: Vec<_> =
                bounds.iter().map(|&(floor, more, weight)| part(floor, floor + more, weight)).collect();
            let got = fill(total, &parts);
            let sum: u64 = got.iter().sum();
            prop_assert!(sum <= total);
            let floors: u64 = parts.iter().map(|part| part.floor).sum();
            if floors <= total {
                let caps: u64 = parts.iter().map(|part| part.cap).sum();
                let weights: u64 = parts.iter().map(|part| u64::from(part.weight)).sum();
                prop_assert!(sum + weights >= total.min(caps), "{sum} of {total}");
                for (got, part) in got.iter().zip(&parts) {
                    prop_assert!((part.floor..=part.cap).contains(got));
                }
            }
        }
    }
}
