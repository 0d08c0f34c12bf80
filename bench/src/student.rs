//! Student's distribution, and Welch's test for two sides that were not measured in turn, which
//! needs neither equal spreads nor equal numbers of figures. Figures measured in pairs are compared
//! in [`crate::pairs`].

use serde::{Deserialize, Serialize};

/// The ratio of two sides' geometric means, and its confidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unpaired {
    /// Ratio of one side of a comparison to the other.
    pub ratio: f64,
    /// The 95 % confidence interval: lower end, upper end.
    pub ci95: [f64; 2],
    /// Probability that sides without a difference come out this far apart, 0 to 1.
    pub p: f64,
}

impl Unpaired {
    /// Compares figures in no order; `None` for fewer than two of a side, or a figure that is not
    /// positive.
    ///
    /// The test is on their logarithms: twice as large is as far away as half as large.
    pub fn of(side: &[f64], other: &[f64]) -> Option<Self> {
        let (one, two) = (Side::of(side)?, Side::of(other)?);
        let difference = one.mean - two.mean;
        let error = (one.error_squared + two.error_squared).sqrt();
        // Figures without any spread still have a spread by rounding.
        const ROUNDING: f64 = 1e-12;
        if error < ROUNDING {
            let p = if difference.abs() < ROUNDING { 1.0 } else { 0.0 };
            let difference = if p == 1.0 { 0.0 } else { difference };
            return Some(Self { ratio: difference.exp(), ci95: [difference.exp(); 2], p });
        }
        // Welch and Satterthwaite: the degrees of freedom of one sample with this spread.
        let share = |side: &Side| side.error_squared.powi(2) / (side.count - 1.0);
        let degrees = error.powi(4) / (share(&one) + share(&two));
        let half = quantile_95(degrees) * error;
        Some(Self {
            ratio: difference.exp(),
            ci95: [(difference - half).exp(), (difference + half).exp()],
            p: two_sided(difference / error, degrees),
        })
    }
}

/// Logarithms of one side's figures.
struct Side {
    count: f64,
    mean: f64,
    /// Squared standard error of the mean.
    error_squared: f64,
}

impl Side {
    fn of(figures: &[f64]) -> Option<Self> {
        if figures.len() < 2 || !figures.iter().all(|one| one.is_finite() && *one > 0.0) {
            return None;
        }
        let count = figures.len() as f64;
        let logs = || figures.iter().map(|one| one.ln());
        let mean = logs().sum::<f64>() / count;
        let variance = logs().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Some(Self { count, mean, error_squared: variance / count })
    }
}

/// The value for which 95 % of the distribution is between its negative and itself. `degrees` may
/// be a fraction, and is at least 1.
pub fn quantile_95(degrees: f64) -> f64 {
    // With one degree the value is 12.71, and it falls with more.
    let (mut low, mut high) = (0.0, 13.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if two_sided(middle, degrees) > 0.05 { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The share of the distribution that is further from zero than `t`.
pub fn two_sided(t: f64, degrees: f64) -> f64 {
    // Beyond this the normal distribution is equal within all digits, and gamma's logarithm begins
    // to lose digits.
    const DEGREES_MAX: f64 = 1e6;
    if !t.is_finite() {
        return 0.0;
    }
    let degrees = degrees.min(DEGREES_MAX);
    beta_share(degrees / (degrees + t * t), degrees / 2.0, 0.5).clamp(0.0, 1.0)
}

/// The regularized incomplete beta function.
fn beta_share(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    // The fraction converges fast below its mean; above it, the other tail's fraction does.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * beta_fraction(x, a, b) / a
    } else {
        1.0 - front * beta_fraction(1.0 - x, b, a) / b
    }
}

/// The continued fraction of the incomplete beta function, from the front by Lentz's method.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    const TERMS_MAX: u32 = 300;
    let kept = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut c, mut d) = (1.0, 1.0 / kept(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for term in 1..=TERMS_MAX {
        let m = f64::from(term);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for step in [even, odd] {
            d = 1.0 / kept(1.0 + step * d);
            c = kept(1.0 + step / c);
            change = c * d;
            fraction *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    fraction
}

/// Logarithm of the gamma function of a number that is not negative: Stirling's series, shifted to
/// an argument at which it is exact enough.
fn ln_gamma(x: f64) -> f64 {
    const ENOUGH: f64 = 12.0;
    let (mut at, mut below) = (x, 0.0);
    while at < ENOUGH {
        below += at.ln();
        at += 1.0;
    }
    let square = at * at;
    let series = (1.0 / 12.0
        - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * square)) / square) / square)
        / at;
    (at - 0.5) * at.ln() - at + 0.5 * std::f64::consts::TAU.ln() + series - below
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus as Random;

    use super::*;

    #[test]
    fn quantiles_are_those_of_published_tables() {
        for (degrees, expected) in [
            (1.0, 12.706_205),
            (2.0, 4.302_653),
            (3.0, 3.182_446),
            (9.0, 2.262_157),
            (30.0, 2.042_272),
            (31.0, 2.039_513),
            (1000.0, 1.962_339),
            (1e9, 1.959_966),
        ] {
            let found = quantile_95(degrees);
            assert!((found - expected).abs() < 2e-6, "{degrees}: {found}");
        }
        // Between whole degrees the value is between theirs.
        assert!((3.182..4.303).contains(&quantile_95(2.5)));
    }

    #[test]
    fn one_degree_is_cauchys_distribution() {
        for t in [0.0f64, 0.3, 1.0, 5.0, 100.0] {
            let expected = 1.0 - 2.0 * t.atan() / std::f64::consts::PI;
            assert!((two_sided(t, 1.0) - expected).abs() < 1e-12, "{t}");
        }
        assert_eq!(two_sided(f64::INFINITY, 3.0), 0.0);
    }

    #[test]
    fn the_gamma_function_is_the_factorial_and_knows_its_halves() {
        assert!((ln_gamma(5.0) - 24f64.ln()).abs() < 1e-12);
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-12);
        assert!((ln_gamma(1.0)).abs() < 1e-12);
    }

    #[test]
    fn a_worked_example() {
        // Logarithms 0, 1, 2 beside 3, 3, 6: means 1 and 4, squared errors 1/3 and 1, degrees
        // (4/3)^2 / (1/18 + 1/2) = 3.2.
        let of = |logs: [f64; 3]| logs.map(f64::exp);
        let found = Unpaired::of(&of([3.0, 3.0, 6.0]), &of([0.0, 1.0, 2.0])).unwrap();
        let error = (4.0f64 / 3.0).sqrt();
        assert!((found.ratio.ln() - 3.0).abs() < 1e-12);
        assert!((found.ci95[0].ln() - (3.0 - quantile_95(3.2) * error)).abs() < 1e-9);
        assert!((found.p - two_sided(3.0 / error, 3.2)).abs() < 1e-12);
        assert!(found.ci95[0] < 1.0 && found.p > 0.05, "not shown: {found:?}");
    }

    #[test]
    fn sides_without_spread_are_equal_or_not() {
        let same = Unpaired::of(&[2.0, 2.0], &[2.0, 2.0]).unwrap();
        assert_eq!((same.ratio, same.p), (1.0, 1.0));
        let other = Unpaired::of(&[3.0, 3.0], &[2.0, 2.0, 2.0]).unwrap();
        assert!((other.ratio - 1.5).abs() < 1e-12 && other.p == 0.0);
    }

    #[test]
    fn what_cannot_be_tested_is_none() {
        assert_eq!(Unpaired::of(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(Unpaired::of(&[1.0, 0.0], &[1.0, 2.0]), None);
        assert_eq!(Unpaired::of(&[1.0, f64::NAN], &[1.0, 2.0]), None);
    }

    #[test]
    fn the_interval_holds_the_truth_in_95_of_100_runs_of_unequal_sides() {
        let mut random = Random::seed_from_u64(7);
        let mut noise = || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        let (runs, mut held, mut shown) = (2000, 0, 0);
        for _ in 0..runs {
            let side: Vec<f64> = (0..5).map(|_| 0.8 * (0.2 * noise()).exp()).collect();
            let other: Vec<f64> = (0..9).map(|_| (0.05 * noise()).exp()).collect();
            let found = Unpaired::of(&side, &other).unwrap();
            held += usize::from((found.ci95[0]..=found.ci95[1]).contains(&0.8));
            // Interval and test agree.
            let is_shown = !(found.ci95[0]..=found.ci95[1]).contains(&1.0);
            assert_eq!(is_shown, found.p < 0.05, "{found:?}");
            shown += usize::from(is_shown);
        }
        let share = held as f64 / f64::from(runs);
        assert!((0.93..0.97).contains(&share), "{share}");
        assert!(shown > 500, "{shown}");
    }
}
