//! LU, as NPB's: symmetric successive over-relaxation on a grid with five unknowns a point, lower
//! then upper triangle.
//!
//! A u = D u - the six neighbours; D couples the five unknowns of a point (a on the diagonal more
//! than b everywhere), so its inverse is known. Beyond the borders u is zero. Sweeps are in place,
//! forwards and backwards.

use super::probe::Probe;
use super::random::fraction;
use super::room::Room;
use super::sys::Array;
use super::{KernelError, Scale, Verified, Work};

const SEED: u64 = 61;
const A: f64 = 6.4;
const B: f64 = 0.1;
const RELAXATION: f64 = 1.2;

type Point = [f64; 5];

/// Points along an edge, and iterations.
fn size(scale: Scale) -> (usize, usize) {
    match scale {
        Scale::Tiny => (18, 6),
        Scale::Small => (84, 5),
        Scale::Medium => (200, 8),
        Scale::Paper => (480, 50),
    }
}

/// Size of the kernel's data.
pub fn footprint_bytes(scale: Scale) -> u64 {
    3 * 40 * (size(scale).0 as u64).pow(3)
}

pub struct Lu<'h, P> {
    edge: usize,
    iterations: usize,
    u: Array<'h, Point, P>,
    right: Array<'h, Point, P>,
    residual: Array<'h, Point, P>,
}

impl<'h, P: Probe> Work<'h, P> for Lu<'h, P> {
    fn prepare(room: &Room<'h, P>, scale: Scale) -> Result<Self, KernelError> {
        let (edge, iterations) = size(scale);
        let points = |fill: fn(u64) -> f64| -> Result<_, KernelError> {
            let mut array = room.array(edge.pow(3))?;
            for row in 0..edge * edge {
                let first = row * edge;
                for (x, point) in array.row_mut(first..first + edge).iter_mut().enumerate() {
                    *point = std::array::from_fn(|n| fill(((first + x) * 5 + n) as u64));
                }
            }
            Ok(array)
        };
        Ok(Self {
            edge,
            iterations,
            u: points(|_| 0.0)?,
            right: points(|index| fraction(SEED, index) - 0.5)?,
            residual: points(|_| 0.0)?,
        })
    }

    fn work(&mut self) {
        for _ in 0..self.iterations {
            let rows = 0..self.edge * self.edge;
            let mut sum = vec![[0.0; 5]; self.edge];
            rows.clone().for_each(|row| self.relax(row, false, &mut sum));
            rows.rev().for_each(|row| self.relax(row, true, &mut sum));
            self.note_residual();
        }
    }

    fn verify(&mut self) -> Verified {
        let noted = norm(&self.residual);
        self.note_residual();
        let (found, first) = (norm(&self.residual), norm(&self.right));
        // The stored residual must be the one that the data give.
        let strayed = if (found - noted).abs() <= 1e-9 * first { 0.0 } else { 1.0 };
        Verified {
            what: "share of the residual left after the sweeps",
            found: found / first + strayed,
            bound: 0.6f64.powi(self.iterations as i32),
        }
    }
}

impl<P: Probe> Lu<'_, P> {
    /// Adds the right side and the neighbouring rows of a row into `sum`.
    fn gather(&self, row: usize, sum: &mut [Point]) {
        let edge = self.edge;
        sum.copy_from_slice(self.right.row(row * edge..(row + 1) * edge));
        let (z, y) = (row / edge, row % edge);
        let beside = [
            (z > 0).then(|| row - edge),
            (z + 1 < edge).then(|| row + edge),
            (y > 0).then(|| row - 1),
            (y + 1 < edge).then(|| row + 1),
        ];
        for other in beside.into_iter().flatten() {
            let points = self.u.row(other * edge..(other + 1) * edge);
            sum.iter_mut().zip(points).for_each(|(sum, point)| add(sum, point));
        }
    }

    /// Relaxes one row, point after point, with the current values of its neighbours.
    fn relax(&mut self, row: usize, backwards: bool, sum: &mut [Point]) {
        let edge = self.edge;
        self.gather(row, sum);
        let points = self.u.row_mut(row * edge..(row + 1) * edge);
        for step in 0..edge {
            let x = if backwards { edge - 1 - step } else { step };
            let mut target = sum[x];
            if x > 0 {
                add(&mut target, &points[x - 1]);
            }
            if x + 1 < edge {
                add(&mut target, &points[x + 1]);
            }
            // The inverse of a I + b J.
            let all = target.iter().sum::<f64>() * B / (A + 5.0 * B);
            for (unknown, target) in points[x].iter_mut().zip(target) {
                *unknown += RELAXATION * ((target - all) / A - *unknown);
            }
        }
    }

    fn note_residual(&mut self) {
        let edge = self.edge;
        let mut sum = vec![[0.0; 5]; edge];
        for row in 0..edge * edge {
            self.gather(row, &mut sum);
            let u = self.u.row(row * edge..(row + 1) * edge);
            let to = self.residual.row_mut(row * edge..(row + 1) * edge);
            for (x, point) in to.iter_mut().enumerate() {
                let mut left = sum[x];
                if x > 0 {
                    add(&mut left, &u[x - 1]);
                }
                if x + 1 < edge {
                    add(&mut left, &u[x + 1]);
                }
                let all = u[x].iter().sum::<f64>() * B;
                *point = std::array::from_fn(|n| left[n] - A * u[x][n] - all);
            }
        }
    }
}

fn add(to: &mut Point, point: &Point) {
    to.iter_mut().zip(point).for_each(|(to, word)| *to += word);
}

fn norm<P: Probe>(array: &Array<'_, Point, P>) -> f64 {
    array.row(0..array.len()).iter().flatten().map(|word| word * word).sum::<f64>().sqrt()
}
