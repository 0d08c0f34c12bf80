//! EP, embarrassingly parallel: Gaussian pairs by the polar method from NPB's own generator,
//! counted by annulus.
//!
//! It keeps only a batch of uniform numbers and ten counts, so a medium costs it next to nothing:
//! it is the counterexample among the kernels. Its sums are checked against those that NPB
//! publishes.

use super::probe::Probe;
use super::room::Room;
use super::sys::Array;
use super::{KernelError, Scale, Verified, Work};

/// Pairs in a batch.
const BATCH: usize = 1 << 13;
const FACTOR: u64 = 1_220_703_125;
const SEED: u64 = 271_828_183;
const MASK: u64 = (1 << 46) - 1;

/// Log2 of the number of pairs, and NPB's sums for it (classes S, A and C of its report and
/// sources).
fn size(scale: Scale) -> (u32, Option<[f64; 2]>) {
    match scale {
        Scale::Tiny => (18, None),
        Scale::Small => (24, Some([-3.247_834_652_034_74e3, -6.958_407_078_382_297e3])),
        Scale::Medium => (28, Some([-4.295_875_165_629_892e3, -1.580_732_573_678_431e4])),
        Scale::Paper => (32, Some([4.764_367_927_995_374e4, -8.084_072_988_043_731e4])),
    }
}

/// Size of the kernel's data.
pub fn footprint_bytes(_scale: Scale) -> u64 {
    (BATCH * 16 + 10 * 8) as u64
}

pub struct Ep<'h, P> {
    scale: Scale,
    batch: Array<'h, [f64; 2], P>,
    counts: Array<'h, f64, P>,
    sums: [f64; 2],
}

impl<'h, P: Probe> Work<'h, P> for Ep<'h, P> {
    fn prepare(room: &Room<'h, P>, scale: Scale) -> Result<Self, KernelError> {
        let mut counts = room.array(10)?;
        counts.row_mut(0..10).fill(0.0);
        Ok(Self { scale, batch: room.array(BATCH)?, counts, sums: [0.0; 2] })
    }

    fn work(&mut self) {
        let batches = (1u64 << size(self.scale).0) / BATCH as u64;
        for batch in 0..batches {
            // Each batch starts at the state that the generator has after all earlier batches.
            let mut state = SEED.wrapping_mul(power(FACTOR, batch * 2 * BATCH as u64)) & MASK;
            for pair in self.batch.row_mut(0..BATCH) {
                *pair = [next(&mut state), next(&mut state)];
            }
            let counts = self.counts.row_mut(0..10);
            for pair in self.batch.row(0..BATCH) {
                if let Some((x, y)) = gaussian(*pair) {
                    counts[x.abs().max(y.abs()) as usize] += 1.0;
                    self.sums = [self.sums[0] + x, self.sums[1] + y];
                }
            }
        }
    }

    fn verify(&mut self) -> Verified {
        let (pairs_bits, published) = size(self.scale);
        let counts = self.counts.row(0..10);
        let (what, expected_sums, expected_counts) = match published {
            Some(sums) => ("relative error of NPB's published sums", sums, None),
            None => {
                let (sums, counts) = naive(1 << pairs_bits);
                ("relative error of sums and counts of one long loop", sums, Some(counts))
            }
        };
        let pairs = self.sums.iter().zip(expected_sums);
        let sums_wrong = pairs.map(|(found, sum)| ((found - sum) / sum).abs()).fold(0.0, f64::max);
        let counts_wrong = expected_counts.map_or(0.0, |expected: [f64; 10]| {
            counts.iter().zip(expected).map(|(found, count)| (found - count).abs()).sum()
        });
        Verified { what, found: sums_wrong + counts_wrong, bound: 1e-8 }
    }
}

/// The same computation without batches and jumps.
fn naive(pairs: u64) -> ([f64; 2], [f64; 10]) {
    let (mut sums, mut counts, mut state) = ([0.0; 2], [0.0; 10], SEED);
    for _ in 0..pairs {
        let pair = [next(&mut state), next(&mut state)];
        if let Some((x, y)) = gaussian(pair) {
            counts[x.abs().max(y.abs()) as usize] += 1.0;
            sums = [sums[0] + x, sums[1] + y];
        }
    }
    (sums, counts)
}

/// NPB's generator: x' = 5^13 x mod 2^46.
fn next(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(FACTOR) & MASK;
    *state as f64 / (1u64 << 46) as f64
}

/// A power modulo 2^46; wrapping at 2^64 is harmless because 2^46 divides it.
fn power(base: u64, mut exponent: u64) -> u64 {
    let (mut result, mut square) = (1u64, base);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result.wrapping_mul(square) & MASK;
        }
        square = square.wrapping_mul(square) & MASK;
        exponent >>= 1;
    }
    result
}

fn gaussian(pair: [f64; 2]) -> Option<(f64, f64)> {
    let (x, y) = (2.0 * pair[0] - 1.0, 2.0 * pair[1] - 1.0);
    let t = x * x + y * y;
    (t <= 1.0).then(|| {
        let factor = (-2.0 * t.ln() / t).sqrt();
        (x * factor, y * factor)
    })
}
