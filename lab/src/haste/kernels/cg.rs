//! CG, conjugate gradient: solves A z = x for a large sparse symmetric positive definite matrix
//! with random pattern and values.
//!
//! Each of some random masks gives an entry (i, i xor mask) with a random negative value, equal to
//! its mirror image; the diagonal is a little more than the sum of the row, so the matrix is
//! positive definite. Values and columns lie row by row, as in NPB.

use super::probe::Probe;
use super::random::{fraction, mixed};
use super::room::Room;
use super::sys::Array;
use super::{KernelError, Scale, Verified, Work};

const SEED: u64 = 31;
/// How far the diagonal exceeds the sum of its row: a smaller surplus needs more iterations.
const SURPLUS: f64 = 0.05;

/// Log2 of the number of rows, entries of a row besides the diagonal, iterations.
fn size(scale: Scale) -> (u32, usize, usize) {
    match scale {
        Scale::Tiny => (13, 10, 25),
        Scale::Small => (17, 24, 15),
        Scale::Medium => (20, 32, 25),
        Scale::Paper => (25, 48, 75),
    }
}

/// Size of the kernel's data.
pub fn footprint_bytes(scale: Scale) -> u64 {
    let (rows, entries, _) = size(scale);
    (1 << rows) * (12 * (entries as u64 + 1) + 5 * 8)
}

pub struct Cg<'h, P> {
    entries: usize,
    iterations: usize,
    values: Array<'h, f64, P>,
    columns: Array<'h, u32, P>,
    x: Array<'h, f64, P>,
    z: Array<'h, f64, P>,
    r: Array<'h, f64, P>,
    p: Array<'h, f64, P>,
    q: Array<'h, f64, P>,
}

impl<'h, P: Probe> Work<'h, P> for Cg<'h, P> {
    fn prepare(room: &Room<'h, P>, scale: Scale) -> Result<Self, KernelError> {
        let (rows_bits, others, iterations) = size(scale);
        let (rows, entries) = (1usize << rows_bits, others + 1);
        let mask = |number: usize| 1 + mixed(SEED, number as u64) as usize % (rows - 1);
        let masks: Vec<usize> = (0..others).map(mask).collect();
        let mut values = room.array(rows * entries)?;
        let mut columns = room.array(rows * entries)?;
        for row in 0..rows {
            let to_values = values.row_mut(row * entries..(row + 1) * entries);
            let to_columns = columns.row_mut(row * entries..(row + 1) * entries);
            let mut sum = 0.0;
            for (number, mask) in masks.iter().enumerate() {
                let column = row ^ mask;
                let pair = (row.min(column) * others + number) as u64;
                let value = fraction(SEED + 1, pair);
                (to_values[number], to_columns[number]) = (-value, column as u32);
                sum += value;
            }
            (to_values[others], to_columns[others]) = (sum + SURPLUS, row as u32);
        }
        let vector = |fill: fn(usize) -> f64| -> Result<_, KernelError> {
            let mut vector = room.array(rows)?;
            (0..rows).for_each(|row| vector.set(row, fill(row)));
            Ok(vector)
        };
        let right = |row: usize| fraction(SEED + 2, row as u64) - 0.5;
        Ok(Self {
            entries,
            iterations,
            x: vector(right)?,
            z: vector(|_| 0.0)?,
            r: vector(right)?,
            p: vector(right)?,
            q: vector(|_| 0.0)?,
            values,
            columns,
        })
    }

    fn work(&mut self) {
        let rows = self.x.len();
        let mut rho = squared(self.r.row(0..rows));
        for _ in 0..self.iterations {
            multiply(self.entries, &self.values, &self.columns, &self.p, &mut self.q);
            let (p, q) = (self.p.row(0..rows), self.q.row(0..rows));
            let alpha = rho / p.iter().zip(q).map(|(p, q)| p * q).sum::<f64>();
            add_scaled(self.z.row_mut(0..rows), alpha, p);
            add_scaled(self.r.row_mut(0..rows), -alpha, q);
            let before = std::mem::replace(&mut rho, squared(self.r.row(0..rows)));
            let (p, r) = (self.p.row_mut(0..rows), self.r.row(0..rows));
            p.iter_mut().zip(r).for_each(|(p, r)| *p = r + rho / before * *p);
        }
    }

    fn verify(&mut self) -> Verified {
        let rows = self.x.len();
        multiply(self.entries, &self.values, &self.columns, &self.z, &mut self.q);
        let (x, q) = (self.x.row(0..rows), self.q.row(0..rows));
        let left: f64 = x.iter().zip(q).map(|(x, q)| (x - q).powi(2)).sum();
        Verified {
            what: "residual of the solution against the right side",
            found: (left / squared(x)).sqrt(),
            bound: 0.72f64.powi(self.iterations as i32).max(1e-9),
        }
    }
}

fn multiply<P: Probe>(
    entries: usize,
    values: &Array<'_, f64, P>,
    columns: &Array<'_, u32, P>,
    vector: &Array<'_, f64, P>,
    product: &mut Array<'_, f64, P>,
) {
    for row in 0..product.len() {
        let range = row * entries..(row + 1) * entries;
        let of_row = values.row(range.clone()).iter().zip(columns.row(range));
        let sum = of_row.map(|(value, column)| value * vector.get(*column as usize)).sum();
        product.set(row, sum);
    }
}

fn squared(words: &[f64]) -> f64 {
    words.iter().map(|word| word * word).sum()
}

fn add_scaled(to: &mut [f64], factor: f64, words: &[f64]) {
    to.iter_mut().zip(words).for_each(|(to, word)| *to += factor * word);
}
