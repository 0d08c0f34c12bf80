//! The numbers of `math.random`: the same for each script, as in Redis, on every machine.

/// A linear congruential generator of 48 bits, that of `lrand48`.
#[derive(Debug)]
pub(crate) struct Rand48(u64);

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const MASK: u64 = (1 << 48) - 1;

const UNSEEDED: u64 = 0x1234_ABCD_330E;

impl Default for Rand48 {
    fn default() -> Self {
        Self(UNSEEDED)
    }
}

impl Rand48 {
    /// The generator for this seed.
    pub fn seeded(seed: i32) -> Self {
        Self(u64::from(seed as u32) << 16 | 0x330E)
    }

    /// Draws a number from 0, below 2^31.
    pub fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        (self.0 >> 17) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_lrand48() {
        // srand48(1), then lrand48() of the GNU C library.
        let mut numbers = Rand48::seeded(1);
        let drawn: Vec<u32> = (0..3).map(|_| numbers.next()).collect();
        assert_eq!(drawn, [89_400_484, 976_015_093, 1_792_756_325]);
    }
}
