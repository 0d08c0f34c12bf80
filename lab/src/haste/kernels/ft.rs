//! FT, a 3-D Fourier transform: forward once; then each round evolves the spectrum and transforms
//! it back, as in NPB.
//!
//! Evolving multiplies the spectrum by phases, which shifts the data along x: so the expected
//! result is known at every point.

use std::f64::consts::TAU;

use super::probe::Probe;
use super::random::fraction;
use super::room::Room;
use super::sys::Array;
use super::{KernelError, Scale, Verified, Work};

const SEED: u64 = 41;
/// Columns that are transformed together along y: a row of them is a few cache lines.
const COLUMNS: usize = 16;

type Complex = [f64; 2];

/// Points along x, y and z, and rounds.
fn size(scale: Scale) -> ([usize; 3], usize) {
    match scale {
        Scale::Tiny => ([64, 32, 32], 2),
        Scale::Small => ([128, 128, 128], 2),
        Scale::Medium => ([512, 256, 256], 3),
        Scale::Paper => ([1024, 1024, 512], 6),
    }
}

/// Size of the kernel's data.
pub fn footprint_bytes(scale: Scale) -> u64 {
    2 * 16 * size(scale).0.iter().product::<usize>() as u64
}

pub struct Ft<'h, P> {
    points: [usize; 3],
    rounds: usize,
    spectrum: Array<'h, Complex, P>,
    evolved: Array<'h, Complex, P>,
    scratch: Vec<Complex>,
    plans: [Plan; 3],
}

fn start(index: usize) -> Complex {
    [fraction(SEED, index as u64) - 0.5, fraction(SEED + 1, index as u64) - 0.5]
}

impl<'h, P: Probe> Work<'h, P> for Ft<'h, P> {
    fn prepare(room: &Room<'h, P>, scale: Scale) -> Result<Self, KernelError> {
        let (points, rounds) = size(scale);
        let [x, y, z] = points;
        let mut spectrum = room.array(x * y * z)?;
        for row in 0..y * z {
            let words = spectrum.row_mut(row * x..(row + 1) * x);
            words.iter_mut().enumerate().for_each(|(i, word)| *word = start(row * x + i));
        }
        Ok(Self {
            points,
            rounds,
            spectrum,
            evolved: room.array(x * y * z)?,
            scratch: vec![[0.0; 2]; x * z.max(COLUMNS * y / x + 1)],
            plans: points.map(Plan::new),
        })
    }

    fn work(&mut self) {
        let Self { points, plans, scratch, .. } = self;
        let [x, y, z] = *points;
        transform(&mut self.spectrum, *points, plans, scratch, false);
        for round in 1..=self.rounds {
            let phases: Vec<Complex> =
                (0..x).map(|k| phase(-TAU * ((k * round) % x) as f64 / x as f64)).collect();
            for row in (0..y * z).map(|row| row * x..(row + 1) * x) {
                let words = self.spectrum.row(row.clone()).iter().zip(&phases);
                let evolved = self.evolved.row_mut(row);
                evolved.iter_mut().zip(words).for_each(|(to, (word, by))| *to = times(*word, *by));
            }
            transform(&mut self.evolved, *points, plans, scratch, true);
        }
    }

    fn verify(&mut self) -> Verified {
        let [x, y, z] = self.points;
        let scale = 1.0 / (x * y * z) as f64;
        let mut found: f64 = 0.0;
        for row in 0..y * z {
            let words = self.evolved.row(row * x..(row + 1) * x);
            for (i, word) in words.iter().enumerate() {
                let from = start(row * x + (i + x - self.rounds % x) % x);
                let error = (word[0] * scale - from[0]).hypot(word[1] * scale - from[1]);
                found = found.max(error);
            }
        }
        let what = "largest error of the inverse transform against the shifted input";
        Verified { what, found, bound: 1e-11 }
    }
}

fn transform<P: Probe>(
    array: &mut Array<'_, Complex, P>,
    [x, y, z]: [usize; 3],
    [along_x, along_y, along_z]: &[Plan; 3],
    scratch: &mut [Complex],
    inverse: bool,
) {
    for row in 0..y * z {
        along_x.run(array.row_mut(row * x..(row + 1) * x), inverse);
    }
    for plane in 0..z {
        for first in (0..x).step_by(COLUMNS) {
            let columns = COLUMNS.min(x - first);
            let at = |step: usize| (plane * y + step) * x + first;
            lines(array, at, columns, along_y, scratch, inverse);
        }
    }
    for row in 0..y {
        let at = |step: usize| (step * y + row) * x;
        lines(array, at, x, along_z, scratch, inverse);
    }
}

/// Transforms lines that lie side by side: at each step along them, `columns` words from `at(step)`
/// on.
fn lines<P: Probe>(
    array: &mut Array<'_, Complex, P>,
    at: impl Fn(usize) -> usize,
    columns: usize,
    plan: &Plan,
    scratch: &mut [Complex],
    inverse: bool,
) {
    let len = plan.len();
    for step in 0..len {
        for (column, word) in array.row(at(step)..at(step) + columns).iter().enumerate() {
            scratch[column * len + step] = *word;
        }
    }
    for line in scratch[..columns * len].chunks_exact_mut(len) {
        plan.run(line, inverse);
    }
    for step in 0..len {
        for (column, word) in array.row_mut(at(step)..at(step) + columns).iter_mut().enumerate() {
            *word = scratch[column * len + step];
        }
    }
}

/// An unscaled radix-2 transform in place, of a power of two of points.
struct Plan {
    turns: Vec<Complex>,
}

impl Plan {
    fn new(len: usize) -> Self {
        assert!(len.is_power_of_two() && len > 1, "a transform of {len} points");
        let turn = |k| phase(-TAU * k as f64 / len as f64);
        Self { turns: (0..len / 2).map(turn).collect() }
    }

    fn len(&self) -> usize {
        self.turns.len() * 2
    }

    fn run(&self, line: &mut [Complex], inverse: bool) {
        let len = self.len();
        let shift = usize::BITS - len.trailing_zeros();
        for index in 0..len {
            let mirrored = index.reverse_bits() >> shift;
            if index < mirrored {
                line.swap(index, mirrored);
            }
        }
        let mut half = 1;
        while half < len {
            let stride = len / (2 * half);
            for group in line.chunks_exact_mut(2 * half) {
                let (low, high) = group.split_at_mut(half);
                for (k, (low, high)) in low.iter_mut().zip(high).enumerate() {
                    let [cos, sin] = self.turns[k * stride];
                    let turned = times(*high, [cos, if inverse { -sin } else { sin }]);
                    *high = [low[0] - turned[0], low[1] - turned[1]];
                    *low = [low[0] + turned[0], low[1] + turned[1]];
                }
            }
            half *= 2;
        }
    }
}

fn phase(angle: f64) -> Complex {
    [angle.cos(), angle.sin()]
}

fn times(a: Complex, b: Complex) -> Complex {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transform_is_the_sum_it_stands_for() {
        for len in [2, 4, 32] {
            let line: Vec<Complex> = (0..len).map(start).collect();
            let mut fast = line.clone();
            Plan::new(len).run(&mut fast, false);
            for (k, found) in fast.iter().enumerate() {
                let terms = line.iter().enumerate();
                let sum = terms.fold([0.0, 0.0], |sum, (j, word)| {
                    let term = times(*word, phase(-TAU * ((j * k) % len) as f64 / len as f64));
                    [sum[0] + term[0], sum[1] + term[1]]
                });
                assert!((found[0] - sum[0]).hypot(found[1] - sum[1]) < 1e-12, "{len} points, {k}");
            }
        }
    }
}
