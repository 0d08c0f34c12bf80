//! Block heat: about how often each block was read or written lately, one byte a block. A restart
//! loads first what was hot.
//!
//! A byte counts on a logarithmic scale, as the counters of Redis' LFU eviction do (Morris, CACM
//! 1978): it grows by one with a probability that halves every [`STEPS_OF_DOUBLING`] steps, and
//! [`BlockHeat::cool`] takes one from each. Only one access in [`SAMPLED_ONE_IN`] is looked at.
//!
//! Block heat is a hint: threads change it without a lock, and a lost change does no harm.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use crate::geometry::BLOCK_BYTES;

/// Steps in which the number of accesses doubles that a byte stands for.
const STEPS_OF_DOUBLING: u8 = 8;
const SAMPLED_ONE_IN: u32 = 8;
/// Most blocks of a part that are looked at for its heat.
const LOOKED_AT_MAX: usize = 64;

/// The heat of all blocks of a region.
pub struct BlockHeat(Box<[AtomicU8]>);

impl BlockHeat {
    /// Blocks that nobody has read or written.
    pub(crate) fn new(blocks: usize) -> Self {
        Self((0..blocks).map(|_| AtomicU8::new(0)).collect())
    }

    /// Notes an access. `ticket` is a number that differs from access to access.
    #[inline]
    pub(crate) fn note(&self, offset: u64, ticket: u32) {
        let random = ticket.wrapping_mul(0x9e37_79b1);
        if random >> (u32::BITS - SAMPLED_ONE_IN.ilog2()) == 0 {
            self.warm((offset / BLOCK_BYTES) as usize, random);
        }
    }

    #[inline]
    fn warm(&self, block: usize, random: u32) {
        let byte = &self.0[block];
        let heat = byte.load(Relaxed);
        let one_in = 1u32 << (heat / STEPS_OF_DOUBLING);
        if (random ^ random >> 15).is_multiple_of(one_in) {
            byte.store(heat.saturating_add(1), Relaxed);
        }
    }

    /// Takes one from each block: what nobody uses any more becomes cold.
    pub fn cool(&self) {
        for byte in &self.0 {
            let heat = byte.load(Relaxed);
            if heat > 0 {
                byte.store(heat - 1, Relaxed);
            }
        }
    }

    /// The bytes of the first `blocks` blocks.
    pub fn bytes(&self, blocks: usize) -> Vec<u8> {
        self.0.iter().take(blocks).map(|byte| byte.load(Relaxed)).collect()
    }

    /// The heat of `parts` equal parts of the first `blocks` blocks: that of the hottest of some
    /// blocks of each, evenly spaced.
    pub fn parts(&self, blocks: usize, parts: usize) -> Vec<u8> {
        let blocks = blocks.min(self.0.len());
        let begin = |part: usize| part * blocks / parts.max(1);
        let hottest = |part| {
            let of = &self.0[begin(part)..begin(part + 1)];
            let every = of.len().div_ceil(LOOKED_AT_MAX).max(1);
            of.iter().step_by(every).map(|byte| byte.load(Relaxed)).max()
        };
        (0..parts).filter_map(hottest).collect()
    }

    /// Takes over the bytes of an earlier run.
    pub fn restore(&self, bytes: &[u8]) {
        for (to, from) in self.0.iter().zip(bytes) {
            to.store(*from, Relaxed);
        }
    }

    /// About how many accesses a byte stands for.
    pub fn accesses(byte: u8) -> f64 {
        (f64::from(byte) / f64::from(STEPS_OF_DOUBLING)).exp2() - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heat_of_a_part_is_that_of_its_hottest_block() {
        let heat = BlockHeat::new(1000);
        heat.restore(&(0..1000).map(|n| (n / 10) as u8).collect::<Vec<_>>());
        assert_eq!(heat.parts(1000, 4), [24, 49, 74, 99]);
        assert_eq!(heat.parts(3, 4), [0, 0, 0], "parts without a block are left out");
        assert_eq!(heat.parts(0, 4), []);
    }

    #[test]
    fn a_byte_grows_with_the_logarithm_of_the_accesses() {
        let heat = BlockHeat::new(3);
        let mut before = 0.0;
        for (power, accesses) in [(10, 1u32 << 10), (14, 1 << 14), (18, 1 << 18)] {
            let heat = BlockHeat::new(3);
            (0..accesses).for_each(|ticket| heat.note(BLOCK_BYTES, ticket));
            let bytes = heat.bytes(9);
            assert_eq!((bytes.len(), bytes[0], bytes[2]), (3, 0, 0));
            let found = BlockHeat::accesses(bytes[1]);
            assert!(found > 8.0 * before, "2^{power} accesses: {found} after {before}");
            before = found;
        }
        assert_eq!(heat.bytes(1), [0], "only the first block was asked for");
    }

    #[test]
    fn what_nobody_uses_becomes_cold() {
        let heat = BlockHeat::new(4);
        heat.restore(&[2, 0, 255]);
        heat.cool();
        assert_eq!(heat.bytes(4), [1, 0, 254, 0]);
        (0..300).for_each(|_| heat.cool());
        assert_eq!(heat.bytes(4), [0; 4]);
    }

    #[test]
    fn a_byte_stays_at_its_greatest() {
        let heat = BlockHeat::new(1);
        heat.restore(&[255]);
        heat.warm(0, 0);
        assert_eq!(heat.bytes(1), [255]);
    }
}
