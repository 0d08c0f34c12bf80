//! The discrete cosine transform of blocks of 8 x 8, in integers, and back.

use std::f64::consts::PI;

/// Points on a side of a block.
pub const SIDE: usize = 8;
/// A block, row after row.
pub type Block = [i32; SIDE * SIDE];

/// Fraction bits of the matrix.
const MATRIX_BITS: u32 = 12;
/// Fraction bits between the two passes.
const PASS_BITS: u32 = 3;

/// The matrix of the transform, and the order of coefficients from low to high frequencies.
#[derive(Debug)]
pub struct Transform {
    matrix: Block,
    transposed: Block,
    /// Positions of the coefficients in that order.
    pub zigzag: [usize; SIDE * SIDE],
}

impl Transform {
    pub fn new() -> Self {
        let mut matrix = [0; SIDE * SIDE];
        for (at, entry) in matrix.iter_mut().enumerate() {
            let (k, n) = ((at / SIDE) as f64, (at % SIDE) as f64);
            let norm = if at < SIDE { (1.0 / 8.0f64).sqrt() } else { 0.5 };
            let cosine = ((2.0 * n + 1.0) * k * PI / 16.0).cos();
            *entry = (norm * cosine * f64::from(1 << MATRIX_BITS)).round() as i32;
        }
        let mut zigzag: [usize; SIDE * SIDE] = std::array::from_fn(|at| at);
        zigzag.sort_by_key(|at| {
            let (row, column) = (at / SIDE, at % SIDE);
            let diagonal = row + column;
            (diagonal, if diagonal % 2 == 0 { column } else { row })
        });
        Self { matrix, transposed: transpose(&matrix), zigzag }
    }

    pub fn forward(&self, block: &Block) -> Block {
        let rows = product(block, &self.transposed, MATRIX_BITS - PASS_BITS);
        product(&self.matrix, &rows, MATRIX_BITS + PASS_BITS)
    }

    pub fn back(&self, block: &Block) -> Block {
        let rows = product(block, &self.matrix, MATRIX_BITS - PASS_BITS);
        product(&self.transposed, &rows, MATRIX_BITS + PASS_BITS)
    }
}

fn transpose(block: &Block) -> Block {
    std::array::from_fn(|at| block[at % SIDE * SIDE + at / SIDE])
}

/// Product of two matrices, rounded by so many bits.
fn product(left: &Block, right: &Block, bits: u32) -> Block {
    let mut all = [0; SIDE * SIDE];
    for row in 0..SIDE {
        let mut sums = [1 << (bits - 1); SIDE];
        for inner in 0..SIDE {
            let factor = left[row * SIDE + inner];
            for column in 0..SIDE {
                sums[column] += factor * right[inner * SIDE + column];
            }
        }
        for column in 0..SIDE {
            all[row * SIDE + column] = sums[column] >> bits;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn a_block_comes_back_to_within_one() {
        let transform = Transform::new();
        let mut random = crate::kinds::Random::seed_from_u64(3);
        for _ in 0..1000 {
            let block: Block = std::array::from_fn(|_| random.random_range(-255..=255));
            let back = transform.back(&transform.forward(&block));
            for (a, b) in block.iter().zip(back) {
                assert!((a - b).abs() <= 1, "{a} became {b}, seed 3");
            }
        }
    }

    #[test]
    fn the_transform_is_that_of_the_definition() {
        let transform = Transform::new();
        let mut random = crate::kinds::Random::seed_from_u64(4);
        let block: Block = std::array::from_fn(|_| random.random_range(-255..=255));
        let found = transform.forward(&block);
        for (at, &found) in found.iter().enumerate() {
            let (k, l) = (at / SIDE, at % SIDE);
            let wave = |k: usize, n: usize| ((2 * n + 1) as f64 * k as f64 * PI / 16.0).cos();
            let norm = |k: usize| if k == 0 { (1.0 / 8.0f64).sqrt() } else { 0.5 };
            let sum: f64 = (0..SIDE * SIDE)
                .map(|n| f64::from(block[n]) * wave(k, n / SIDE) * wave(l, n % SIDE))
                .sum();
            let expected = norm(k) * norm(l) * sum;
            assert!((expected - f64::from(found)).abs() < 2.0, "{expected}, {found}, seed 4");
        }
    }

    #[test]
    fn low_frequencies_come_first() {
        let zigzag = Transform::new().zigzag;
        assert_eq!(zigzag[..6], [0, 1, 8, 16, 9, 2]);
        assert_eq!(zigzag[63], 63);
    }
}
