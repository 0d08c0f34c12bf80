//! An encoder in the manner of H.261: blocks are predicted from moved blocks of the frame before,
//! and the differences are coded.
//!
//! Motion is searched in the first plane, for macroblocks of 16 x 16, and used for all planes. The
//! encoder predicts from the frames that a decoder will have, not from the original ones, so errors
//! do not add up.

use crate::kinds::video::bits::Bits;
use crate::kinds::video::transform::{Block, SIDE, Transform};

/// Width of all planes.
pub const WIDTH: usize = 480;
/// Height of all planes.
pub const HEIGHT: usize = 320;
/// Planes of a frame, all of full size as in 4:4:4. A plane has the paper's 153,600 bytes.
pub const PLANES: usize = 3;
/// Bytes of a plane, one for each point.
pub const PLANE_BYTES: usize = WIDTH * HEIGHT;

const MACRO: usize = 16;
/// Quantisation step of the coefficients: smaller ones become 0.
const STEP: i32 = 14;
/// Longest motion along an axis.
const MOTION_MAX: i32 = 12;
/// Predicted brightness where there is no frame before.
const GREY: u8 = 128;

/// A frame of three planes.
#[derive(Debug, Clone)]
pub struct Frame {
    /// The planes, each row after row.
    pub planes: [Vec<u8>; PLANES],
}

impl Frame {
    /// A frame of one shade.
    pub fn grey() -> Self {
        Self { planes: std::array::from_fn(|_| vec![GREY; PLANE_BYTES]) }
    }
}

/// Position of a macroblock in the frame before, relative to its position now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Motion {
    x: i32,
    y: i32,
}

/// The encoder's state: the frame before, as a decoder has it.
#[derive(Debug)]
pub struct Encoder {
    transform: Transform,
    before: Frame,
    now: Frame,
}

impl Encoder {
    /// The state before the first frame, which must be coded without prediction.
    pub fn new() -> Self {
        Self { transform: Transform::new(), before: Frame::grey(), now: Frame::grey() }
    }

    /// Codes a frame; with `intra`, without prediction from the frame before.
    pub fn encode(&mut self, frame: &Frame, intra: bool) -> Vec<u8> {
        let mut bits = Bits::default();
        bits.put(u32::from(intra), 1);
        for y in (0..HEIGHT).step_by(MACRO) {
            let mut left = Motion::default();
            for x in (0..WIDTH).step_by(MACRO) {
                let motion = (!intra).then(|| self.search(&frame.planes[0], x, y, left));
                if let Some(motion) = motion {
                    bits.put_signed(motion.x - left.x);
                    bits.put_signed(motion.y - left.y);
                    left = motion;
                }
                self.encode_macro(&mut bits, frame, x, y, motion);
            }
        }
        std::mem::swap(&mut self.before, &mut self.now);
        bits.finish()
    }

    fn encode_macro(
        &mut self,
        bits: &mut Bits,
        frame: &Frame,
        x: usize,
        y: usize,
        motion: Option<Motion>,
    ) {
        for plane in 0..PLANES {
            for (x, y) in quarters(x, y) {
                let predicted = predict(&self.before.planes[plane], x, y, motion);
                let given = block(&frame.planes[plane], x, y);
                let rest: Block = std::array::from_fn(|at| given[at] - predicted[at]);
                let mut levels = self.transform.forward(&rest);
                for level in &mut levels {
                    // Rounded towards 0, for noise should not be coded.
                    *level /= STEP;
                }
                put_levels(bits, &levels, &self.transform.zigzag);
                let decoded = restore(&self.transform, &predicted, &levels);
                store(&mut self.now.planes[plane], x, y, &decoded);
            }
        }
    }

    /// The best motion found by smaller and smaller steps, from the neighbour's motion and from
    /// none.
    fn search(&self, plane: &[u8], x: usize, y: usize, left: Motion) -> Motion {
        let before = &self.before.planes[0];
        let mut best = Motion::default();
        let mut best_cost = cost(plane, before, x, y, best, u32::MAX);
        let mut consider = |motion: Motion, best: &mut Motion| {
            let within = |along: i32, at: usize, size: usize| {
                let moved = at as i32 + along;
                along.abs() <= MOTION_MAX && moved >= 0 && moved + MACRO as i32 <= size as i32
            };
            if within(motion.x, x, WIDTH) && within(motion.y, y, HEIGHT) {
                let cost = cost(plane, before, x, y, motion, best_cost);
                if cost < best_cost {
                    best_cost = cost;
                    *best = motion;
                }
            }
        };
        consider(left, &mut best);
        for step in [4, 2, 1] {
            loop {
                let from = best;
                for (dx, dy) in [(step, 0), (-step, 0), (0, step), (0, -step)] {
                    consider(Motion { x: from.x + dx, y: from.y + dy }, &mut best);
                }
                if best == from {
                    break;
                }
            }
        }
        best
    }
}

/// The four blocks of a macroblock.
fn quarters(x: usize, y: usize) -> [(usize, usize); 4] {
    [(x, y), (x + SIDE, y), (x, y + SIDE), (x + SIDE, y + SIDE)]
}

/// Sum of the differences. The sum ends early once it is above the limit.
fn cost(plane: &[u8], before: &[u8], x: usize, y: usize, motion: Motion, limit: u32) -> u32 {
    let from = moved(x, y, motion);
    let mut sum = 0;
    for row in 0..MACRO {
        let now = &plane[(y + row) * WIDTH + x..][..MACRO];
        let then = &before[from + row * WIDTH..][..MACRO];
        sum += now.iter().zip(then).map(|(a, b)| u32::from(a.abs_diff(*b))).sum::<u32>();
        if sum > limit {
            break;
        }
    }
    sum
}

/// Start of a block in the frame before. Motions never leave the frame.
fn moved(x: usize, y: usize, motion: Motion) -> usize {
    let (x, y) = (x as i32 + motion.x, y as i32 + motion.y);
    y as usize * WIDTH + x as usize
}

fn predict(before: &[u8], x: usize, y: usize, motion: Option<Motion>) -> Block {
    let Some(motion) = motion else { return [i32::from(GREY); SIDE * SIDE] };
    block_at(before, moved(x, y, motion))
}

fn block(plane: &[u8], x: usize, y: usize) -> Block {
    block_at(plane, y * WIDTH + x)
}

fn block_at(plane: &[u8], from: usize) -> Block {
    let mut block = [0; SIDE * SIDE];
    for (row, into) in block.chunks_exact_mut(SIDE).enumerate() {
        for (into, point) in into.iter_mut().zip(&plane[from + row * WIDTH..][..SIDE]) {
            *into = i32::from(*point);
        }
    }
    block
}

fn store(plane: &mut [u8], x: usize, y: usize, block: &Block) {
    for (row, from) in block.chunks_exact(SIDE).enumerate() {
        for (into, point) in plane[(y + row) * WIDTH + x..][..SIDE].iter_mut().zip(from) {
            *into = *point as u8;
        }
    }
}

/// The block that a decoder restores.
fn restore(transform: &Transform, predicted: &Block, levels: &Block) -> Block {
    let rest = transform.back(&std::array::from_fn(|at| levels[at] * STEP));
    std::array::from_fn(|at| (predicted[at] + rest[at]).clamp(0, 255))
}

/// Writes the number of coefficients that are not 0, and for each the zeros before it and its
/// value.
fn put_levels(bits: &mut Bits, levels: &Block, zigzag: &[usize; SIDE * SIDE]) {
    bits.put_number(levels.iter().filter(|level| **level != 0).count() as u32);
    let mut zeros = 0;
    for level in zigzag.iter().map(|&at| levels[at]) {
        if level == 0 {
            zeros += 1;
        } else {
            bits.put_number(zeros);
            bits.put_signed(level);
            zeros = 0;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kinds::video::bits::tests::Reader;

    /// A decoder that was written from the format, independent of the encoder's own state.
    pub fn decode(coded: &[u8], frames: usize) -> Vec<u8> {
        let transform = Transform::new();
        let mut reader = Reader { bytes: coded, at: 0 };
        let mut before = Frame::grey();
        let mut film = Vec::new();
        for _ in 0..frames {
            let mut now = Frame::grey();
            let intra = reader.bit() == 1;
            for y in (0..HEIGHT).step_by(MACRO) {
                let mut left = Motion::default();
                for x in (0..WIDTH).step_by(MACRO) {
                    let motion = (!intra).then(|| {
                        let x = left.x + reader.signed();
                        Motion { x, y: left.y + reader.signed() }
                    });
                    left = motion.unwrap_or(left);
                    for plane in 0..PLANES {
                        for (x, y) in quarters(x, y) {
                            let mut levels = [0; SIDE * SIDE];
                            let mut at = 0;
                            for _ in 0..reader.number() {
                                at += reader.number() as usize;
                                levels[transform.zigzag[at]] = reader.signed();
                                at += 1;
                            }
                            let predicted = predict(&before.planes[plane], x, y, motion);
                            let decoded = restore(&transform, &predicted, &levels);
                            store(&mut now.planes[plane], x, y, &decoded);
                        }
                    }
                }
            }
            reader.skip_to_byte();
            film.extend(now.planes.concat());
            before = now;
        }
        film
    }

    #[test]
    fn a_frame_that_moved_is_found_again() {
        let mut encoder = Encoder::new();
        let shade = |x: usize, y: usize| ((x * x / 7 + y * y / 5 + x * y / 11) % 200) as u8;
        let drawn = |dx: usize, dy: usize| {
            let mut frame = Frame::grey();
            for plane in &mut frame.planes {
                for (at, point) in plane.iter_mut().enumerate() {
                    *point = shade(at % WIDTH + dx, at / WIDTH + dy) / 2;
                }
            }
            frame
        };
        let intra = encoder.encode(&drawn(0, 0), true).len();
        let still = encoder.encode(&drawn(0, 0), false).len();
        assert!(still * 20 < intra, "{still} of {intra} B");
        let frame = drawn(2, 1);
        let found = encoder.search(&frame.planes[0], 32, 32, Motion { x: 2, y: 1 });
        assert_eq!(found, Motion { x: 2, y: 1 });
    }
}
