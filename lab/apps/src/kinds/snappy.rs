//! Compression of files with Snappy. Each file is read as a whole and written as a whole.

use rand::Rng;

use crate::access::Access;
use crate::error::{AppError, Result};
use crate::kinds::{App, Named, Size, random};

/// Average read of the paper's program.
const FILE_BYTES: usize = 121_307;
const NAME: &str = "snappy";

/// The application.
#[derive(Debug)]
pub struct Snappy {
    files: usize,
    seed: u64,
}

impl Snappy {
    /// The number of files follows the size.
    pub fn new(size: Size, seed: u64) -> Self {
        let files = match size {
            Size::Small => 10,
            Size::Medium => 500,
            Size::Paper => 11_108,
        };
        Self { files, seed }
    }

    /// Draws a log file: some fields of its lines repeat, some do not.
    fn file(&self, number: usize) -> Vec<u8> {
        let mut random = random(self.seed, NAME, number);
        let mut bytes = Vec::with_capacity(FILE_BYTES + 64);
        let mut at = 1_600_000_000u64;
        while bytes.len() < FILE_BYTES {
            at += random.random_range(0..30);
            let (host, code) =
                (random.random_range(0..40), [200, 200, 200, 304, 404][at as usize % 5]);
            let unique: u64 = random.random();
            let line = format!("{at} host-{host:02} GET /item/{unique:016x} {code}\n");
            bytes.extend_from_slice(line.as_bytes());
        }
        bytes.truncate(FILE_BYTES);
        bytes
    }
}

impl App for Snappy {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> String {
        format!("compresses {} files of {FILE_BYTES} B", self.files)
    }

    fn inputs(&self) -> Result<Vec<Named>> {
        Ok((0..self.files).map(|n| (format!("in-{n:05}.log"), self.file(n))).collect())
    }

    fn run(&self, access: &dyn Access) -> Result<()> {
        let mut encoder = snap::raw::Encoder::new();
        let mut packed = vec![0; snap::raw::max_compress_len(FILE_BYTES)];
        for number in 0..self.files {
            let name = format!("in-{number:05}.log");
            let mut input = access.get(&name)?;
            let bytes = input.whole(FILE_BYTES)?;
            let packed_bytes = encoder
                .compress(bytes, &mut packed)
                .map_err(|error| AppError::malformed(&name, error))?;
            let mut output = access.put(&format!("out-{number:05}.sz"), packed_bytes)?;
            output.write(&packed[..packed_bytes])?;
            output.finish()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests::{result, run_in_memory};

    #[test]
    fn what_was_compressed_is_the_input_again() {
        let app = Snappy::new(Size::Small, 7);
        let access = run_in_memory(&app);
        for number in 0..app.files {
            let packed = result(&access, &format!("out-{number:05}.sz"));
            assert!(packed.len() < FILE_BYTES * 3 / 4, "{} B", packed.len());
            let unpacked = snap::raw::Decoder::new().decompress_vec(&packed).unwrap();
            assert!(unpacked == app.file(number), "file {number} of seed 7");
        }
    }
}
