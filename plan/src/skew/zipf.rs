//! Zipf's law, from which figure 5 of the Viyojit paper is computed: the larger the footprint, the
//! smaller the share of its pages that takes nearly all writes. The exponent says how small.
//!
//! Of `pages` pages, the page of rank k is written in proportion to k^-theta. Partial sums are
//! exact up to [`DIRECT`] terms. Beyond, they follow from the Euler-Maclaurin formula, whose first
//! omitted term is far below the precision of a double.

use serde::Serialize;

/// The exponent of YCSB's Zipf distribution, which the paper's figure 5 is drawn for here: the
/// paper names none.
pub const THETA: f64 = 0.99;
/// How many terms are added one by one.
const DIRECT: u64 = 64;

/// A point of the paper's figure 5.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ZipfPoint {
    /// The pages of the footprint.
    pub footprint_pages: u64,
    /// The fewest of them that take the share of writes.
    pub hot_pages: u64,
    /// The fewest pages as a fraction of the footprint.
    pub fraction: f64,
}

/// The sum of k^-theta for k from 1 to `pages`.
fn harmonic(pages: u64, theta: f64) -> f64 {
    let term = |k: f64| k.powf(-theta);
    let direct: f64 = (1..=pages.min(DIRECT)).map(|k| term(k as f64)).sum();
    if pages <= DIRECT {
        return direct;
    }
    // From a to b: the integral, the trapezoid's ends, and two terms of the derivatives at both.
    let (a, b) = (DIRECT as f64, pages as f64);
    let rest = 1.0 - theta;
    let integral =
        if rest.abs() < 1e-9 { (b / a).ln() } else { (b.powf(rest) - a.powf(rest)) / rest };
    let first = |k: f64| -theta * k.powf(-theta - 1.0);
    let third = |k: f64| -theta * (theta + 1.0) * (theta + 2.0) * k.powf(-theta - 3.0);
    direct + integral + (term(b) - term(a)) / 2.0 + (first(b) - first(a)) / 12.0
        - (third(b) - third(a)) / 720.0
}

/// The fewest hottest pages of a footprint that take a fraction of the writes.
pub fn zipf_point(footprint_pages: u64, fraction_of_writes: f64, theta: f64) -> ZipfPoint {
    let goal = harmonic(footprint_pages, theta) * fraction_of_writes.clamp(0.0, 1.0);
    let (mut low, mut high) = (0, footprint_pages);
    while low < high {
        let middle = low + (high - low) / 2;
        if harmonic(middle, theta) >= goal { high = middle } else { low = middle + 1 }
    }
    let fraction = if footprint_pages == 0 { 0.0 } else { low as f64 / footprint_pages as f64 };
    ZipfPoint { footprint_pages, hot_pages: low, fraction }
}

/// The curve of figure 5 for one share of writes.
pub fn zipf_curve(footprints: &[u64], fraction_of_writes: f64, theta: f64) -> Vec<ZipfPoint> {
    footprints.iter().map(|pages| zipf_point(*pages, fraction_of_writes, theta)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn sums_are_those_added_one_by_one() {
        for theta in [0.0, 0.5, 0.99, 1.0, 1.3, 2.0] {
            let mut sum = 0.0;
            for k in 1..=200_000u64 {
                sum += (k as f64).powf(-theta);
                if k % 9973 == 0 || k < 200 {
                    let reckoned = harmonic(k, theta);
                    assert!((reckoned / sum - 1.0).abs() < 1e-9, "{theta} {k}: {reckoned} {sum}");
                }
            }
        }
    }

    #[test]
    fn the_share_of_pages_falls_as_the_footprint_grows() {
        let footprints: Vec<u64> = (8..32).map(|bits| 1 << bits).collect();
        for fraction in [0.9, 0.95, 0.99] {
            let curve = zipf_curve(&footprints, fraction, THETA);
            assert!(curve.windows(2).all(|two| two[1].fraction < two[0].fraction), "{fraction}");
        }
        for pages in [1 << 10, 1 << 20, 1 << 30] {
            let of = |fraction| zipf_point(pages, fraction, THETA).hot_pages;
            assert!(of(0.9) < of(0.95) && of(0.95) < of(0.99) && of(1.0) == pages);
            let hot = |theta| zipf_point(pages, 0.9, theta).hot_pages;
            assert!(hot(0.5) > hot(0.99) && hot(0.99) > hot(1.3), "more skew, fewer pages");
        }
        // Without skew it takes as many pages as writes.
        assert_eq!(zipf_point(1000, 0.9, 0.0).hot_pages, 900);
        assert_eq!(zipf_point(0, 0.9, 0.99).hot_pages, 0);
    }

    #[test]
    fn drawn_writes_need_as_many_pages_as_the_formula_says() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        for (pages, theta) in [(1000u64, 0.99), (5000, 0.7), (200, 1.2)] {
            let mut sums = vec![0.0];
            (1..=pages).for_each(|k| sums.push(sums[k as usize - 1] + (k as f64).powf(-theta)));
            let mut counts = vec![0u64; pages as usize];
            let draws = 3_000_000u64;
            for _ in 0..draws {
                let at: f64 = rng.random::<f64>() * sums[pages as usize];
                counts[sums.partition_point(|sum| *sum <= at) - 1] += 1;
            }
            counts.sort_unstable_by(|a, b| b.cmp(a));
            for fraction in [0.5, 0.9, 0.95] {
                let (mut taken, mut hot) = (0, 0u64);
                while (taken as f64) < draws as f64 * fraction {
                    taken += counts[hot as usize];
                    hot += 1;
                }
                let said = zipf_point(pages, fraction, theta).hot_pages;
                assert!(
                    hot.abs_diff(said) as f64 <= 2.0 + 0.02 * said as f64,
                    "{pages} {theta} {fraction}: drawn {hot}, said {said}"
                );
            }
        }
    }
}
