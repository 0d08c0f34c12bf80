//! Two sides measured in turn: the ratio of their throughputs and its confidence interval.
//!
//! The slices of a pair follow each other, so that other load on the machine meets both; the order
//! is swapped from pair to pair, so that neither is always first. The ratio is the geometric mean
//! of the pairs' ratios, its interval Student's on their logarithms.

use serde::{Deserialize, Serialize};

use crate::student::quantile_95;

/// Smallest number of pairs.
pub const PAIRS_MIN: usize = 10;

/// The ratio of two sides' figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Geometric mean of the pairs' ratios.
    pub ratio: f64,
    /// The 95 % confidence interval: lower end, upper end.
    pub ci95: [f64; 2],
    /// Ratio of each pair.
    pub per_pair: Vec<f64>,
}

impl Ratio {
    /// Compares figures measured in pairs; `None` for fewer than two pairs, or a figure that is not
    /// positive.
    pub fn of(side: &[f64], other: &[f64]) -> Option<Self> {
        let per_pair: Vec<f64> = side.iter().zip(other).map(|(side, other)| side / other).collect();
        if per_pair.len() < 2 || !per_pair.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0) {
            return None;
        }
        let logs: Vec<f64> = per_pair.iter().map(|ratio| ratio.ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        Some(Self { ratio: mean.exp(), ci95: mean_ci95(&logs)?.map(f64::exp), per_pair })
    }
}

/// The difference of two sides' figures: for figures with a large common part, whose ratio would
/// say little.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Mean of the pairs' differences.
    pub mean: f64,
    /// The 95 % confidence interval: lower end, upper end.
    pub ci95: [f64; 2],
    /// Difference of each pair.
    pub per_pair: Vec<f64>,
}

impl Difference {
    /// Compares figures measured in pairs; `None` for fewer than two pairs, or a figure that is no
    /// number.
    pub fn of(side: &[f64], other: &[f64]) -> Option<Self> {
        let per_pair: Vec<f64> = side.iter().zip(other).map(|(side, other)| side - other).collect();
        if per_pair.len() < 2 || !per_pair.iter().all(|difference| difference.is_finite()) {
            return None;
        }
        let mean = per_pair.iter().sum::<f64>() / per_pair.len() as f64;
        Some(Self { mean, ci95: mean_ci95(&per_pair)?, per_pair })
    }
}

/// The 95 % confidence interval of a mean; none for fewer than two values.
pub fn mean_ci95(values: &[f64]) -> Option<[f64; 2]> {
    if values.len() < 2 {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = quantile_95(n - 1.0) * (variance / n).sqrt();
    Some([mean - half, mean + half])
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus as Random;

    use super::*;

    #[test]
    fn equal_pairs_leave_no_doubt() {
        let ratio = Ratio::of(&[3.0, 6.0, 9.0], &[2.0, 4.0, 6.0]).unwrap();
        assert!((ratio.ratio - 1.5).abs() < 1e-12);
        assert!((ratio.ci95[1] - ratio.ci95[0]).abs() < 1e-9);
    }

    #[test]
    fn a_worked_example() {
        // Ratios 0.5, 1, 2: mean of logs 0, deviation ln 2, t(2) = 4.302653.
        let ratio = Ratio::of(&[1.0, 1.0, 2.0], &[2.0, 1.0, 1.0]).unwrap();
        let half = 4.302_652_73 * 2f64.ln() / 3f64.sqrt();
        assert!((ratio.ratio - 1.0).abs() < 1e-12);
        assert!((ratio.ci95[1].ln() - half).abs() < 1e-9);
    }

    #[test]
    fn a_worked_difference() {
        // Differences 1, 2, 3: mean 2, deviation 1, t(2) = 4.302653.
        let difference = Difference::of(&[11.0, 22.0, 33.0], &[10.0, 20.0, 30.0]).unwrap();
        let half = 4.302_652_73 / 3f64.sqrt();
        assert!((difference.mean - 2.0).abs() < 1e-12);
        assert!((difference.ci95[1] - 2.0 - half).abs() < 1e-9);
        assert_eq!(Difference::of(&[1.0], &[1.0]), None);
        assert_eq!(Difference::of(&[f64::NAN, 1.0], &[1.0, 1.0]), None);
    }

    #[test]
    fn what_cannot_be_a_ratio_is_none() {
        assert_eq!(Ratio::of(&[1.0], &[1.0]), None);
        assert_eq!(Ratio::of(&[1.0, 1.0], &[0.0, 1.0]), None);
    }

    #[test]
    fn the_interval_holds_the_truth_in_95_of_100_runs() {
        let mut random = Random::seed_from_u64(11);
        let mut noise = || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        let runs = 2000;
        let held = (0..runs)
            .filter(|_| {
                let side: Vec<f64> = (0..10).map(|_| 0.8 * (0.1 * noise()).exp()).collect();
                let other: Vec<f64> = (0..10).map(|_| (0.1 * noise()).exp()).collect();
                let ratio = Ratio::of(&side, &other).unwrap();
                (ratio.ci95[0]..=ratio.ci95[1]).contains(&0.8)
            })
            .count();
        let share = held as f64 / f64::from(runs);
        assert!((0.935..0.965).contains(&share), "{share}");
    }
}
