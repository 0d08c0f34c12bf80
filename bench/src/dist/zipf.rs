//! Ranks by Zipf's law: Gray et al.'s generator, as YCSB has it.

use rand::Rng;

/// Exponent of Zipf's law in YCSB.
pub const THETA: f64 = 0.99;
/// Number of items of YCSB's scrambled generator.
pub const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// Zeta of [`SCRAMBLED_ITEMS`], as YCSB states it.
pub const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// Terms summed one by one before the integral takes over.
const TERMS_SUMMED: u64 = 1_000_000;

/// Draws ranks below `items` from 0, the most frequent.
#[derive(Debug, Clone)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipfian {
    /// Draws from `items` ranks.
    pub fn new(items: u64, theta: f64) -> Self {
        Self::with_zeta(items, theta, zeta(items, theta))
    }

    /// Draws from `items` ranks whose zeta is known.
    pub fn with_zeta(items: u64, theta: f64, zeta_items: f64) -> Self {
        let mut zipfian =
            Self { items, theta, zeta: zeta_items, alpha: 1.0 / (1.0 - theta), eta: 0.0 };
        zipfian.set_eta();
        zipfian
    }

    /// Number of ranks.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Raises the number of ranks; a smaller number is ignored.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            let new = (self.items + 1..=items).map(|rank| (rank as f64).powf(-self.theta));
            self.zeta += new.sum::<f64>();
            self.items = items;
            self.set_eta();
        }
    }

    /// Draws a rank.
    pub fn draw(&self, random: &mut impl Rng) -> u64 {
        let u: f64 = random.random();
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5f64.powf(self.theta) {
            return 1.min(self.items - 1);
        }
        let rank = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }

    fn set_eta(&mut self) {
        let two = 1.0 + 0.5f64.powf(self.theta);
        self.eta = match self.items {
            // Each draw is decided before it is used.
            0..=2 => 0.0,
            items => (1.0 - (2.0 / items as f64).powf(1.0 - self.theta)) / (1.0 - two / self.zeta),
        };
    }
}

/// The sum of `rank^-theta` over ranks 1 to `items`; beyond a million terms by Euler and Maclaurin,
/// whose error there is below 10^-12.
pub fn zeta(items: u64, theta: f64) -> f64 {
    let summed = items.min(TERMS_SUMMED);
    let sum: f64 = (1..=summed).rev().map(|rank| (rank as f64).powf(-theta)).sum();
    if items == summed {
        return sum;
    }
    let (from, to) = (summed as f64, items as f64);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    let ends = (to.powf(-theta) - from.powf(-theta)) / 2.0;
    let slopes = theta * (from.powf(-theta - 1.0) - to.powf(-theta - 1.0)) / 12.0;
    sum + integral + ends + slopes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeta_of_ten_billion_is_ycsbs_constant() {
        assert!((zeta(SCRAMBLED_ITEMS, THETA) - SCRAMBLED_ZETA).abs() < 1e-6);
    }

    #[test]
    fn zeta_continues_where_the_sum_ends() {
        let naive: f64 = (1..=3_000_000u64).map(|rank| (rank as f64).powf(-THETA)).sum();
        assert!((zeta(3_000_000, THETA) - naive).abs() < 1e-8);
        assert_eq!(zeta(3, THETA), 3f64.powf(-THETA) + 2f64.powf(-THETA) + 1.0);
    }

    #[test]
    fn growing_is_the_same_as_beginning_larger() {
        let mut grown = Zipfian::new(1000, THETA);
        grown.grow(1500);
        let fresh = Zipfian::new(1500, THETA);
        assert!((grown.zeta - fresh.zeta).abs() < 1e-9 && (grown.eta - fresh.eta).abs() < 1e-9);
        grown.grow(10);
        assert_eq!(grown.items(), 1500);
    }
}
