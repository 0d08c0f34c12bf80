//! Ranks by Zipf's law for any exponent, in constant memory: inversion of the continuous law, and a
//! rejection that is very rare.
//!
//! Source: Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone discrete
//! distributions", 1996. A draw costs a logarithm and an exponential, and nothing is summed at the
//! start; YCSB's generator (`perdura_bench::dist`) needs an exponent below 1.

use rand::RngCore;

/// Ranks from 0, the most frequent.
#[derive(Debug, Clone)]
pub struct Ranks {
    ranks: f64,
    exponent: f64,
    /// The integral of the law up to the end of the first rank, less all of that rank; and up to
    /// the end of the last rank.
    first: f64,
    last: f64,
    /// Within this distance of a rank's number nothing is rejected.
    sure: f64,
}

impl Ranks {
    /// Ranks of a number, at least one; rank k is drawn in proportion to `(k + 1)^-exponent`.
    pub fn new(ranks: u64, exponent: f64) -> Self {
        let ranks = ranks.max(1) as f64;
        let mut new = Self { ranks, exponent, first: 0.0, last: 0.0, sure: 0.0 };
        new.first = new.integral(1.5) - 1.0;
        new.last = new.integral(ranks + 0.5);
        new.sure = 2.0 - new.inverse(new.integral(2.5) - new.law(2.0));
        new
    }

    /// Draws a rank.
    #[inline]
    pub fn draw(&self, random: &mut impl RngCore) -> u64 {
        /// Scales an integer of 53 bits to the range from 0 to 1.
        const TO_UNIT: f64 = 1.0 / (1u64 << 53) as f64;
        loop {
            let unit = (random.next_u64() >> 11) as f64 * TO_UNIT;
            let area = self.last + unit * (self.first - self.last);
            let at = self.inverse(area);
            let rank = at.round().clamp(1.0, self.ranks);
            let is_sure = rank - at <= self.sure;
            if is_sure || area >= self.integral(rank + 0.5) - self.law(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn law(&self, at: f64) -> f64 {
        (-self.exponent * at.ln()).exp()
    }

    /// The integral from 1 on. Near an exponent of 1 both sides of the usual quotient vanish, so a
    /// series is used there.
    fn integral(&self, at: f64) -> f64 {
        let log = at.ln();
        exponential_over((1.0 - self.exponent) * log) * log
    }

    #[inline]
    fn inverse(&self, area: f64) -> f64 {
        /// From this value on `1 + x` loses no digits that matter, and its logarithm is several
        /// times as fast as a logarithm for any `x`.
        const LARGE: f64 = 0.125;
        // Rounding may lead below -1, where there is no logarithm.
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        if scaled.abs() > LARGE {
            return ((1.0 + scaled).ln() / (1.0 - self.exponent)).exp();
        }
        (logarithm_over(scaled) * area).exp()
    }
}

/// Below this value the series are exact to the last digits.
const SMALL: f64 = 1e-8;

/// `(e^x - 1) / x`.
fn exponential_over(x: f64) -> f64 {
    if x.abs() > SMALL { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// `ln(1 + x) / x`.
fn logarithm_over(x: f64) -> f64 {
    if x.abs() > SMALL { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn ranks_are_as_frequent_as_the_law_says() {
        const DRAWS: u64 = 1_000_000;
        for exponent in [0.2, 0.9, 0.999_999_999_9, 1.0, 1.2, 3.0] {
            for count in [1, 2, 3, 1000] {
                let ranks = Ranks::new(count, exponent);
                let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
                let mut counts = vec![0u64; count as usize];
                (0..DRAWS).for_each(|_| counts[ranks.draw(&mut random) as usize] += 1);
                let law = |rank: u64| ((rank + 1) as f64).powf(-exponent);
                let all: f64 = (0..count).map(law).sum();
                for rank in (0..count).filter(|rank| *rank < 10 || rank % 100 == 0) {
                    let expected = DRAWS as f64 * law(rank) / all;
                    let off = (counts[rank as usize] as f64 - expected).abs();
                    assert!(
                        off <= 5.0 * expected.sqrt() + 3.0,
                        "{exponent}, {count}, {rank}: {off} of {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn so_many_ranks_that_nobody_could_sum_them_cost_nothing() {
        let ranks = Ranks::new(1 << 50, 0.9);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        assert!((0..1000).all(|_| ranks.draw(&mut random) < 1 << 50));
    }
}
