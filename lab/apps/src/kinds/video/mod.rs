//! Encoding of video frames. Each plane is read in one call, and each coded frame written in one.
//!
//! The encoder (`encode`) is small and our own: only its access to data matters here. Complete
//! encoders would make the build minutes longer on two processors: rav1e by its dependencies,
//! openh264 by its C++.

mod bits;
mod encode;
mod transform;

use rand::Rng;

use crate::access::Access;
use crate::error::{AppError, Result};
use crate::kinds::{App, Named, Random, Size, random};
use encode::{Encoder, Frame, HEIGHT, PLANE_BYTES, PLANES, WIDTH};

const NAME: &str = "video";
const INTRA_EVERY: usize = 30;

/// The application: one film.
#[derive(Debug)]
pub struct Video {
    frames: usize,
    seed: u64,
}

impl Video {
    /// The number of frames follows the size.
    pub fn new(size: Size, seed: u64) -> Self {
        let frames = match size {
            Size::Small => 4,
            Size::Medium => 60,
            Size::Paper => 388,
        };
        Self { frames, seed }
    }

    fn film(&self) -> Vec<u8> {
        let mut random = random(self.seed, NAME, 0);
        let things: Vec<Thing> = (0..10).map(|_| Thing::of(&mut random)).collect();
        let mut film = Vec::with_capacity(self.frames * PLANES * PLANE_BYTES);
        for time in 0..self.frames {
            for plane in 0..PLANES {
                for y in 0..HEIGHT as i32 {
                    for x in 0..WIDTH as i32 {
                        let shade = things.iter().find_map(|thing| thing.shade(time, plane, x, y));
                        let ground = (x / 4 + y / 3) as u8 / 2 + 20 * plane as u8;
                        let noise: u8 = random.random_range(0..5);
                        film.push(shade.unwrap_or(ground).saturating_add(noise));
                    }
                }
            }
        }
        film
    }
}

/// A rectangle with a pattern that moves along.
struct Thing {
    at: [i32; 2],
    step: [i32; 2],
    size: [i32; 2],
    pattern: [i32; 2],
    shades: [u8; PLANES],
}

impl Thing {
    fn of(random: &mut Random) -> Self {
        Self {
            at: [random.random_range(0..WIDTH as i32), random.random_range(0..HEIGHT as i32)],
            step: [random.random_range(-6..=6), random.random_range(-6..=6)],
            size: [random.random_range(30..120), random.random_range(30..90)],
            pattern: [random.random_range(5..25), random.random_range(5..25)],
            shades: random.random(),
        }
    }

    /// Brightness of a point, if the rectangle covers it. A rectangle that leaves at one edge comes
    /// back at the other.
    fn shade(&self, time: usize, plane: usize, x: i32, y: i32) -> Option<u8> {
        let along = |axis: usize, point: i32, size: usize| {
            (point - self.at[axis] - self.step[axis] * time as i32).rem_euclid(size as i32)
        };
        let (u, v) = (along(0, x, WIDTH), along(1, y, HEIGHT));
        let covers = u < self.size[0] && v < self.size[1];
        let dark = (u / self.pattern[0] + v / self.pattern[1]) % 2 == 0;
        covers.then(|| if dark { self.shades[plane] / 2 } else { self.shades[plane] / 2 + 90 })
    }
}

impl App for Video {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> String {
        format!(
            "encodes {} frames of {WIDTH} x {HEIGHT}, {PLANES} planes: motion search, DCT, \
             Exp-Golomb codes",
            self.frames
        )
    }

    fn inputs(&self) -> Result<Vec<Named>> {
        Ok(vec![("in-film".into(), self.film())])
    }

    fn run(&self, access: &dyn Access) -> Result<()> {
        let mut film = access.get("in-film")?;
        let mut output = access.put("out-coded", film.len_bytes() / 8)?;
        let mut encoder = Encoder::new();
        let mut frame = Frame::grey();
        for number in 0..self.frames {
            for plane in &mut frame.planes {
                let bytes = film.next(PLANE_BYTES)?;
                if bytes.len() != PLANE_BYTES {
                    let reason = format!("ends in frame {number}");
                    return Err(AppError::malformed("in-film", reason));
                }
                plane.copy_from_slice(bytes);
            }
            output.write(&encoder.encode(&frame, number % INTRA_EVERY == 0))?;
        }
        output.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests::{result, run_in_memory};

    #[test]
    fn a_coded_film_is_smaller_and_decodes_to_something_like_it() {
        let app = Video::new(Size::Small, 8);
        let access = run_in_memory(&app);
        let coded = result(&access, "out-coded");
        let film = app.film();
        assert!(coded.len() * 8 < film.len(), "{} of {} B", coded.len(), film.len());
        let decoded = encode::tests::decode(&coded, app.frames);
        assert_eq!(decoded.len(), film.len());
        let square = |(a, b): (&u8, &u8)| f64::from(a.abs_diff(*b)).powi(2);
        let error = film.iter().zip(&decoded).map(square).sum::<f64>() / film.len() as f64;
        let psnr_db = 10.0 * (255.0f64.powi(2) / error).log10();
        assert!(psnr_db > 33.0, "{psnr_db} dB, seed 8");
    }
}
