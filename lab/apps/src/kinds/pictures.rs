//! Decoding of JPEG files to BMP files, as the paper's converter does: input in calls of 4 KiB,
//! output row by row.

use jpeg_encoder::{ColorType, Encoder};
use rand::Rng;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;

use crate::access::{Access, Output};
use crate::error::{AppError, Result};
use crate::kinds::{App, Named, Size, random};

const NAME: &str = "pictures";
const WIDTH: usize = 640;
const HEIGHT: usize = 480;
/// With this quality and the noise below, a picture has about the paper's 120 kB.
const QUALITY: u8 = 88;
const CALL_BYTES: usize = 4096;
const FILE_HEADER_BYTES: usize = 14;
const PICTURE_HEADER_BYTES: usize = 40;
const PIXEL_BYTES: usize = 3;
/// Number of different pictures; the others are copies under other names.
const DISTINCT: usize = 24;

/// The application.
#[derive(Debug)]
pub struct Pictures {
    pictures: usize,
    seed: u64,
}

impl Pictures {
    /// The number of pictures follows the size.
    pub fn new(size: Size, seed: u64) -> Self {
        let pictures = match size {
            Size::Small => 4,
            Size::Medium => 150,
            Size::Paper => 5_000,
        };
        Self { pictures, seed }
    }

    /// Draws a picture: smooth shades, a few discs with edges, and noise.
    fn pixels(&self, number: usize) -> Vec<u8> {
        let mut random = random(self.seed, NAME, number);
        let shade: [f32; 6] = random.random();
        let discs: Vec<([f32; 3], [u8; 3])> = (0..12)
            .map(|_| {
                let [x, y, r]: [f32; 3] = random.random();
                ([x * WIDTH as f32, y * HEIGHT as f32, 10.0 + r * 70.0], random.random())
            })
            .collect();
        let mut pixels = Vec::with_capacity(WIDTH * HEIGHT * PIXEL_BYTES);
        for y in 0..HEIGHT {
            for x in 0..WIDTH {
                let (u, v) = (x as f32 / WIDTH as f32, y as f32 / HEIGHT as f32);
                let within = |([cx, cy, r], _): &&([f32; 3], [u8; 3])| {
                    (x as f32 - cx).powi(2) + (y as f32 - cy).powi(2) < r * r
                };
                let disc = discs.iter().rev().find(within).map(|(_, colour)| *colour);
                let noise: u8 = random.random_range(0..40);
                for part in 0..PIXEL_BYTES {
                    let smooth = 200.0 * (shade[part] * u + shade[part + 3] * v) / 2.0;
                    let base = disc.map_or(smooth as u8, |colour| colour[part] / 2 + 60);
                    pixels.push(base.saturating_add(noise));
                }
            }
        }
        pixels
    }

    fn jpeg(&self, number: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        Encoder::new(&mut bytes, QUALITY)
            .encode(&self.pixels(number), WIDTH as u16, HEIGHT as u16, ColorType::Rgb)
            .map_err(|error| AppError::malformed(&input(number), error))?;
        Ok(bytes)
    }
}

fn input(number: usize) -> String {
    format!("in-{number:05}.jpg")
}

impl App for Pictures {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> String {
        format!("decodes {} JPEG files of {WIDTH} x {HEIGHT} to BMP files", self.pictures)
    }

    fn inputs(&self) -> Result<Vec<Named>> {
        let distinct: Vec<Vec<u8>> =
            (0..DISTINCT.min(self.pictures)).map(|n| self.jpeg(n)).collect::<Result<_>>()?;
        let copy = |number: usize| (input(number), distinct[number % distinct.len()].clone());
        Ok((0..self.pictures).map(copy).collect())
    }

    fn run(&self, access: &dyn Access) -> Result<()> {
        for number in 0..self.pictures {
            let name = input(number);
            let mut file = access.get(&name)?;
            let bytes = file.whole(CALL_BYTES)?;
            let mut decoder = JpegDecoder::new(ZCursor::new(bytes));
            let pixels = decoder.decode().map_err(|error| AppError::malformed(&name, error))?;
            let (width, height) = decoder
                .dimensions()
                .ok_or_else(|| AppError::malformed(&name, "a picture without a size"))?;
            let all_bytes = FILE_HEADER_BYTES + PICTURE_HEADER_BYTES + row_bytes(width) * height;
            let mut output = access.put(&format!("out-{number:05}.bmp"), all_bytes)?;
            write_bmp(&mut *output, &pixels, width, height)?;
            output.finish()?;
        }
        Ok(())
    }
}

/// Bytes of a row, which is padded to whole words.
fn row_bytes(width: usize) -> usize {
    (width * PIXEL_BYTES).next_multiple_of(4)
}

/// Writes the two headers in a call each, then the rows from the lowest up, blue first.
fn write_bmp(output: &mut dyn Output, pixels: &[u8], width: usize, height: usize) -> Result<()> {
    let headers_bytes = (FILE_HEADER_BYTES + PICTURE_HEADER_BYTES) as u32;
    let pixels_bytes = (row_bytes(width) * height) as u32;
    let mut file = [0; FILE_HEADER_BYTES];
    file[..2].copy_from_slice(b"BM");
    file[2..6].copy_from_slice(&(headers_bytes + pixels_bytes).to_le_bytes());
    file[10..].copy_from_slice(&headers_bytes.to_le_bytes());
    output.write(&file)?;
    let mut picture = [0; PICTURE_HEADER_BYTES];
    picture[..4].copy_from_slice(&(PICTURE_HEADER_BYTES as u32).to_le_bytes());
    picture[4..8].copy_from_slice(&(width as u32).to_le_bytes());
    picture[8..12].copy_from_slice(&(height as u32).to_le_bytes());
    picture[12..14].copy_from_slice(&1u16.to_le_bytes());
    picture[14..16].copy_from_slice(&(8 * PIXEL_BYTES as u16).to_le_bytes());
    picture[20..24].copy_from_slice(&pixels_bytes.to_le_bytes());
    output.write(&picture)?;
    let mut row = vec![0; row_bytes(width)];
    for from in pixels.chunks_exact(width * PIXEL_BYTES).rev() {
        for (into, from) in row.chunks_exact_mut(PIXEL_BYTES).zip(from.chunks_exact(PIXEL_BYTES)) {
            into.copy_from_slice(&[from[2], from[1], from[0]]);
        }
        output.write(&row)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests::{result, run_in_memory};

    #[test]
    fn a_decoded_picture_is_near_the_one_that_was_encoded() {
        let app = Pictures::new(Size::Small, 5);
        let access = run_in_memory(&app);
        let bmp = result(&access, "out-00001.bmp");
        let header = FILE_HEADER_BYTES + PICTURE_HEADER_BYTES;
        assert_eq!(bmp.len(), header + row_bytes(WIDTH) * HEIGHT);
        assert_eq!(&bmp[..2], b"BM");
        let pixels = app.pixels(1);
        let mut apart = 0u64;
        for y in 0..HEIGHT {
            let row = &bmp[header + (HEIGHT - 1 - y) * row_bytes(WIDTH)..];
            for x in 0..WIDTH * PIXEL_BYTES {
                let (pixel, part) = (x / PIXEL_BYTES, x % PIXEL_BYTES);
                let found = row[pixel * PIXEL_BYTES + 2 - part];
                let expected = pixels[(y * WIDTH + pixel) * PIXEL_BYTES + part];
                apart += u64::from(found.abs_diff(expected));
            }
        }
        let mean = apart as f64 / pixels.len() as f64;
        assert!(mean < 12.0, "{mean} apart on average, seed 5");
    }

    #[test]
    fn a_damaged_picture_is_named() {
        let app = Pictures { pictures: 1, seed: 1 };
        let access = crate::ways::Dram::default();
        let mut output = access.put(&input(0), 4).unwrap();
        output.write(b"BMP?").unwrap();
        output.finish().unwrap();
        let error = app.run(&access).unwrap_err().to_string();
        assert!(error.starts_with("in-00000.jpg: "), "{error}");
    }

    #[test]
    fn pictures_have_about_the_papers_size() {
        let bytes = Pictures::new(Size::Small, 1).jpeg(0).unwrap().len();
        assert!((90_000..150_000).contains(&bytes), "{bytes} B");
    }
}
