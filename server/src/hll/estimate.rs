//! From registers to the number of elements: the improved raw estimator of O. Ertl, "New
//! cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6, which Redis
//! uses.

use super::{COUNTED_BITS, REGISTERS};

/// How many registers have each value.
pub(crate) struct Histogram([u32; 64]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; 64])
    }
}

/// 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

impl Histogram {
    /// Counts registers with this value, which is below 64.
    pub fn add(&mut self, value: u8, registers: u32) {
        self.0[usize::from(value)] += registers;
    }

    pub fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let last = COUNTED_BITS as usize;
        let full = f64::from(self.0[last + 1]);
        let mut sum = registers * tau((registers - full) / registers);
        for count in self.0[1..=last].iter().rev() {
            sum = (sum + f64::from(*count)) * 0.5;
        }
        sum += registers * sigma(f64::from(self.0[0]) / registers);
        (ALPHA * registers * registers / sum).round() as u64
    }
}

fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_registers_raised_is_no_element_and_all_full_ones_are_many() {
        let mut empty = Histogram::default();
        empty.add(0, REGISTERS as u32);
        assert_eq!(empty.estimate(), 0);
        let mut full = Histogram::default();
        full.add(51, REGISTERS as u32);
        assert_eq!(full.estimate(), u64::MAX);
    }
}
