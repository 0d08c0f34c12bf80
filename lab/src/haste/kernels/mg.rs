//! MG, multigrid: V-cycles on a 3-D Poisson problem with periodic borders, as NPB's, with a right
//! side of a few charges.
//!
//! A u = 6 u - the six neighbours; coarser grids have the same operator and four times the
//! residual. Each correction is followed by red-black Gauss-Seidel in place.

use super::probe::Probe;
use super::random::mixed;
use super::room::Room;
use super::sys::Array;
use super::{KernelError, Scale, Verified, Work};

const COARSEST: usize = 4;
const CHARGES: u64 = 10;
const SWEEPS: usize = 2;
const SWEEPS_COARSEST: usize = 8;

/// Points along an edge, and cycles.
fn size(scale: Scale) -> (usize, usize) {
    match scale {
        Scale::Tiny => (32, 4),
        Scale::Small => (128, 3),
        Scale::Medium => (256, 4),
        Scale::Paper => (1024, 20),
    }
}

/// Size of the kernel's data.
pub fn footprint_bytes(scale: Scale) -> u64 {
    let words = |edge: usize| (edge as u64).pow(3);
    let edges = std::iter::successors(Some(size(scale).0), |edge| Some(edge / 2));
    let levels: u64 = edges.take_while(|edge| *edge >= COARSEST).map(|edge| 2 * words(edge)).sum();
    8 * (levels + words(size(scale).0))
}

struct Level<'h, P> {
    edge: usize,
    u: Array<'h, f64, P>,
    /// The residual of this grid; on a coarser grid it is the right side.
    r: Array<'h, f64, P>,
}

pub struct Mg<'h, P> {
    cycles: usize,
    v: Array<'h, f64, P>,
    levels: Vec<Level<'h, P>>,
}

impl<'h, P: Probe> Work<'h, P> for Mg<'h, P> {
    fn prepare(room: &Room<'h, P>, scale: Scale) -> Result<Self, KernelError> {
        let (edge, cycles) = size(scale);
        let zeros = |edge: usize| -> Result<_, KernelError> {
            let mut array = room.array(edge.pow(3))?;
            (0..edge * edge).for_each(|row| array.row_mut(row * edge..(row + 1) * edge).fill(0.0));
            Ok(array)
        };
        let mut v: Array<'h, f64, P> = zeros(edge)?;
        for charge in 0..2 * CHARGES {
            let at = (mixed(51, charge) % edge.pow(3) as u64) as usize;
            // As many charges are positive as negative: their sum must be zero.
            v.set(at, v.get(at) + if charge % 2 == 0 { 1.0 } else { -1.0 });
        }
        let edges = std::iter::successors(Some(edge), |edge| Some(edge / 2));
        let levels = edges
            .take_while(|edge| *edge >= COARSEST)
            .map(|edge| Ok(Level { edge, u: zeros(edge)?, r: zeros(edge)? }))
            .collect::<Result<_, KernelError>>()?;
        Ok(Self { cycles, v, levels })
    }

    fn work(&mut self) {
        for _ in 0..self.cycles {
            let finest = &mut self.levels[0];
            residual(finest.edge, &finest.u, &self.v, &mut finest.r);
            self.cycle();
        }
        let finest = &mut self.levels[0];
        residual(finest.edge, &finest.u, &self.v, &mut finest.r);
    }

    fn verify(&mut self) -> Verified {
        let finest = &mut self.levels[0];
        residual(finest.edge, &finest.u, &self.v, &mut finest.r);
        let norm = |array: &Array<'_, f64, P>| {
            array.row(0..array.len()).iter().map(|word| word * word).sum::<f64>().sqrt()
        };
        Verified {
            what: "share of the residual left after the cycles",
            found: norm(&finest.r) / norm(&self.v),
            bound: 0.35f64.powi(self.cycles as i32).max(1e-12),
        }
    }
}

impl<P: Probe> Mg<'_, P> {
    fn cycle(&mut self) {
        let last = self.levels.len() - 1;
        for fine in 0..last {
            let (above, below) = self.levels.split_at_mut(fine + 1);
            restrict(above[fine].edge, &above[fine].r, &mut below[0].r);
        }
        let coarsest = &mut self.levels[last];
        clear(coarsest.edge, &mut coarsest.u);
        smooth(coarsest.edge, &mut coarsest.u, &coarsest.r, SWEEPS_COARSEST);
        for fine in (0..last).rev() {
            let (above, below) = self.levels.split_at_mut(fine + 1);
            let Level { edge, u, r } = &mut above[fine];
            if fine > 0 {
                clear(*edge, u);
            }
            prolong(*edge, &below[0].u, u);
            let right = if fine > 0 { r } else { &self.v };
            smooth(*edge, u, right, SWEEPS);
        }
    }
}

/// The words of row (z, y); borders are periodic.
fn row(edge: usize, z: usize, y: usize) -> std::ops::Range<usize> {
    let first = ((z % edge) * edge + y % edge) * edge;
    first..first + edge
}

fn clear<P: Probe>(edge: usize, u: &mut Array<'_, f64, P>) {
    (0..edge * edge).for_each(|first| u.row_mut(first * edge..(first + 1) * edge).fill(0.0));
}

/// Adds the four neighbouring rows of row (z, y) to `sum`.
fn add_rows<P: Probe>(edge: usize, u: &Array<'_, f64, P>, z: usize, y: usize, sum: &mut [f64]) {
    let neighbours = [(z + edge - 1, y), (z + 1, y), (z, y + edge - 1), (z, y + 1)];
    sum.fill(0.0);
    for (z, y) in neighbours {
        sum.iter_mut().zip(u.row(row(edge, z, y))).for_each(|(sum, word)| *sum += word);
    }
}

/// r = v - A u.
fn residual<P: Probe>(
    edge: usize,
    u: &Array<'_, f64, P>,
    v: &Array<'_, f64, P>,
    r: &mut Array<'_, f64, P>,
) {
    let mut sum = vec![0.0; edge];
    for z in 0..edge {
        for y in 0..edge {
            add_rows(edge, u, z, y, &mut sum);
            let (u, v) = (u.row(row(edge, z, y)), v.row(row(edge, z, y)));
            for (x, r) in r.row_mut(row(edge, z, y)).iter_mut().enumerate() {
                let beside = u[(x + edge - 1) % edge] + u[(x + 1) % edge];
                *r = v[x] - 6.0 * u[x] + beside + sum[x];
            }
        }
    }
}

/// Gauss-Seidel in place of A u = v: first the red points, then the black ones.
fn smooth<P: Probe>(edge: usize, u: &mut Array<'_, f64, P>, v: &Array<'_, f64, P>, sweeps: usize) {
    let mut sum = vec![0.0; edge];
    for colour in 0..2 * sweeps {
        for z in 0..edge {
            for y in 0..edge {
                add_rows(edge, u, z, y, &mut sum);
                let v = v.row(row(edge, z, y));
                let u = u.row_mut(row(edge, z, y));
                for x in ((z + y + colour) % 2..edge).step_by(2) {
                    let beside = u[(x + edge - 1) % edge] + u[(x + 1) % edge];
                    u[x] = (v[x] + beside + sum[x]) / 6.0;
                }
            }
        }
    }
}

/// Full weighting, times four for the coarser grid's spacing squared.
fn restrict<P: Probe>(edge: usize, fine: &Array<'_, f64, P>, coarse: &mut Array<'_, f64, P>) {
    const WEIGHTS: [f64; 3] = [0.25, 0.5, 0.25];
    let mut sum = vec![0.0; edge];
    for z in 0..edge / 2 {
        for y in 0..edge / 2 {
            sum.fill(0.0);
            for (dz, weight_z) in WEIGHTS.iter().enumerate() {
                for (dy, weight_y) in WEIGHTS.iter().enumerate() {
                    let at = row(edge, 2 * z + edge + dz - 1, 2 * y + edge + dy - 1);
                    let weight = 4.0 * weight_z * weight_y;
                    sum.iter_mut().zip(fine.row(at)).for_each(|(sum, word)| *sum += weight * word);
                }
            }
            for (x, word) in coarse.row_mut(row(edge / 2, z, y)).iter_mut().enumerate() {
                let beside = sum[(2 * x + edge - 1) % edge] + sum[2 * x + 1];
                *word = 0.5 * sum[2 * x] + 0.25 * beside;
            }
        }
    }
}

/// Adds the coarser grid's values; a point between coarse points gets the mean of those around it.
fn prolong<P: Probe>(edge: usize, coarse: &Array<'_, f64, P>, fine: &mut Array<'_, f64, P>) {
    let half = edge / 2;
    let mut mean = vec![0.0; half];
    for z in 0..edge {
        for y in 0..edge {
            mean.fill(0.0);
            for (z, y) in [(z, y), (z + 1, y), (z, y + 1), (z + 1, y + 1)] {
                let from = coarse.row(row(half, z / 2, y / 2));
                mean.iter_mut().zip(from).for_each(|(mean, word)| *mean += 0.25 * word);
            }
            for (x, word) in fine.row_mut(row(edge, z, y)).iter_mut().enumerate() {
                *word += 0.5 * (mean[x / 2] + mean[x.div_ceil(2) % half]);
            }
        }
    }
}
