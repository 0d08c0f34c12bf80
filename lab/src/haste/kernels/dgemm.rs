//! Out-of-core matrix multiply: C = A B, block by block; the product of two blocks is computed by
//! the library `matrixmultiply`.
//!
//! Matrices lie row by row. If the order of a block is a multiple of 512, its rows are whole pages
//! that hold nothing else. Entries follow from their places: a sample of C is checked against rows
//! and columns that are computed, not read.

use super::probe::Probe;
use super::random::{fraction, mixed};
use super::room::Room;
use super::sys::{Array, BlockPlace, add_product};
use super::{KernelError, Scale, Verified, Work};

const SEED_A: u64 = 11;
const SEED_B: u64 = 12;
/// Number of entries of C that are checked.
const SAMPLES: u64 = 48;

/// Order of the matrices and of the blocks.
pub fn size(scale: Scale) -> (usize, usize) {
    match scale {
        Scale::Tiny => (256, 64),
        Scale::Small => (1536, 512),
        Scale::Medium => (6144, 1024),
        // The slides multiply 30,000 x 30,000; three blocks of order 4096 take 400 MB.
        Scale::Paper => (30_000, 4096),
    }
}

/// Size of the kernel's data.
pub fn footprint_bytes(scale: Scale) -> u64 {
    3 * 8 * (size(scale).0 as u64).pow(2)
}

pub struct Dgemm<'h, P> {
    order: usize,
    block: usize,
    a: Array<'h, f64, P>,
    b: Array<'h, f64, P>,
    c: Array<'h, f64, P>,
}

impl<'h, P: Probe> Work<'h, P> for Dgemm<'h, P> {
    fn prepare(room: &Room<'h, P>, scale: Scale) -> Result<Self, KernelError> {
        let (order, block) = size(scale);
        let matrix = |seed| {
            let mut matrix = room.array(order * order)?;
            for row in 0..order {
                let words = matrix.row_mut(row * order..(row + 1) * order);
                for (column, word) in words.iter_mut().enumerate() {
                    *word = entry(seed, order, row, column);
                }
            }
            Ok(matrix)
        };
        let (a, b): (_, Result<_, KernelError>) = (matrix(SEED_A)?, matrix(SEED_B));
        let mut c = room.array(order * order)?;
        (0..order).for_each(|row| c.row_mut(row * order..(row + 1) * order).fill(0.0));
        Ok(Self { order, block, a, b: b?, c })
    }

    fn work(&mut self) {
        let (order, block) = (self.order, self.block);
        let place = |row: usize, column: usize| BlockPlace {
            at: row * order + column,
            rows: block.min(order - row),
            columns: block.min(order - column),
            stride: order,
        };
        for row in (0..order).step_by(block) {
            for column in (0..order).step_by(block) {
                for inner in (0..order).step_by(block) {
                    add_product(
                        (&mut self.c, place(row, column)),
                        (&self.a, place(row, inner)),
                        (&self.b, place(inner, column)),
                    );
                }
            }
        }
    }

    fn verify(&mut self) -> Verified {
        let order = self.order;
        let error_of = |sample| {
            let place = (mixed(13, sample) % (order * order) as u64) as usize;
            let (row, column) = (place / order, place % order);
            let products =
                (0..order).map(|k| entry(SEED_A, order, row, k) * entry(SEED_B, order, k, column));
            (products.sum::<f64>() - self.c.get(place)).abs()
        };
        Verified {
            what: "largest error of 48 sampled entries against a naive product",
            found: (0..SAMPLES).map(error_of).fold(0.0, f64::max),
            bound: 1e-12 * order as f64,
        }
    }
}

fn entry(seed: u64, order: usize, row: usize, column: usize) -> f64 {
    fraction(seed, (row * order + column) as u64) - 0.5
}
