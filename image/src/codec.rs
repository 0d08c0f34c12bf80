//! Compression: the setting, and a frame's payload to and from its chunks.
//!
//! Each chunk is compressed by itself. A chunk that would not shrink is stored as it is, and its
//! stored length says so. Lengths from a device are not trusted: a chunk that does not decode to
//! exactly the length that its frame says is an error.

use crate::format::CHUNK_BYTES;

/// Whether cleaning, checkpoints and compaction compress what they write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Everything is written uncompressed.
    #[default]
    Off,
    /// Chunks are compressed by LZ4.
    Lz4,
}

impl Compression {
    /// All settings, with their names.
    pub const ALL: [(&'static str, Self); 2] = [("off", Self::Off), ("lz4", Self::Lz4)];

    /// The name of the setting.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Lz4 => "lz4",
        }
    }
}

/// Chunks after which a payload that did not shrink is given up, because the rest will hardly
/// shrink more.
const CHUNKS_TRIED: usize = 4;
/// Bytes by which these chunks must have shrunk: fewer would not make a frame smaller.
const LEAST_SAVED_BYTES: usize = 4096;

/// Buffers for compressing, kept from frame to frame.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    chunk: Vec<u8>,
    /// Stored length of each chunk of the last payload.
    pub lengths: Vec<u32>,
}

/// Stores `raw` in chunks at the beginning of `out`. Returns the bytes stored; `None` if `out` has
/// no room for them, or probably not.
pub(crate) fn compress(raw: &[u8], out: &mut [u8], scratch: &mut Scratch) -> Option<usize> {
    scratch.lengths.clear();
    scratch.chunk.resize(lz4_flex::block::get_maximum_output_size(CHUNK_BYTES), 0);
    let (mut stored, mut seen) = (0, 0);
    for (number, chunk) in raw.chunks(CHUNK_BYTES).enumerate() {
        let compressed = lz4_flex::block::compress_into(chunk, &mut scratch.chunk).ok();
        let smaller = compressed.filter(|len| *len < chunk.len());
        let bytes = smaller.map_or(chunk, |len| &scratch.chunk[..len]);
        out.get_mut(stored..stored + bytes.len())?.copy_from_slice(bytes);
        scratch.lengths.push(bytes.len() as u32);
        stored += bytes.len();
        seen += chunk.len();
        if number + 1 == CHUNKS_TRIED && seen - stored < LEAST_SAVED_BYTES {
            return None;
        }
    }
    Some(stored)
}

/// Fills `raw` with a stored chunk. `Err` has the number of bytes to which the chunk decodes
/// instead; `None` if it is no LZ4 block, or decodes to more.
pub(crate) fn decompress(stored: &[u8], raw: &mut [u8]) -> Result<(), Option<usize>> {
    if stored.len() == raw.len() {
        raw.copy_from_slice(stored);
        return Ok(());
    }
    match lz4_flex::block::decompress_into(stored, raw) {
        Ok(len) if len == raw.len() => Ok(()),
        Ok(len) => Err(Some(len)),
        Err(_) => Err(None),
    }
}

/// Bytes of chunk `number` of a payload of `raw_bytes`, before it was compressed.
pub(crate) fn chunk_bytes(raw_bytes: usize, number: usize) -> usize {
    CHUNK_BYTES.min(raw_bytes - number * CHUNK_BYTES)
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus as Random;

    use super::*;

    /// Bytes of which about `percent` repeat others.
    fn mixed(len: usize, percent: u32, seed: u64) -> Vec<u8> {
        let mut random = Random::seed_from_u64(seed);
        let mut bytes = vec![0; len];
        for piece in bytes.chunks_mut(64) {
            match random.random_ratio(percent, 100) {
                true => piece.fill(random.random_range(0..4)),
                false => random.fill(piece),
            }
        }
        bytes
    }

    fn restored(
        stored: &[u8],
        lengths: &[u32],
        raw_bytes: usize,
    ) -> Result<Vec<u8>, Option<usize>> {
        let (mut raw, mut at) = (vec![0; raw_bytes], 0);
        for (chunk, len) in raw.chunks_mut(CHUNK_BYTES).zip(lengths) {
            decompress(&stored[at..at + *len as usize], chunk)?;
            at += *len as usize;
        }
        Ok(raw)
    }

    #[test]
    fn what_is_compressed_comes_back() {
        let mut scratch = Scratch::default();
        for (number, len) in [1, 64, 4096, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 1 << 20]
            .into_iter()
            .enumerate()
        {
            for percent in [20, 50, 100] {
                let raw = mixed(len, percent, number as u64);
                let mut out = vec![0; len];
                let Some(stored) = compress(&raw, &mut out, &mut scratch) else {
                    assert!(len <= 64, "{len} bytes, {percent} % repeating");
                    continue;
                };
                assert!(stored <= len && scratch.lengths.len() == len.div_ceil(CHUNK_BYTES));
                assert!(restored(&out[..stored], &scratch.lengths, len).unwrap() == raw);
            }
        }
    }

    #[test]
    fn a_chunk_that_does_not_shrink_is_stored_as_it_is_between_others() {
        let mut raw = mixed(3 * CHUNK_BYTES, 100, 1);
        raw[CHUNK_BYTES..2 * CHUNK_BYTES].copy_from_slice(&mixed(CHUNK_BYTES, 0, 2));
        let (mut out, mut scratch) = (vec![0; raw.len()], Scratch::default());
        let stored = compress(&raw, &mut out, &mut scratch).unwrap();
        assert_eq!(scratch.lengths[1] as usize, CHUNK_BYTES);
        assert!(restored(&out[..stored], &scratch.lengths, raw.len()).unwrap() == raw);
    }

    #[test]
    fn random_bytes_are_given_up_and_never_overflow() {
        let (raw, mut scratch) = (mixed(1 << 20, 0, 3), Scratch::default());
        let mut out = vec![0; 1 << 20];
        assert_eq!(compress(&raw, &mut out, &mut scratch), None);
        assert_eq!(scratch.lengths.len(), CHUNKS_TRIED, "the rest was tried as well");
        // These bytes shrink, but not enough for the room that is left.
        let raw = mixed(CHUNK_BYTES, 50, 4);
        let stored = compress(&raw, &mut out, &mut scratch).unwrap();
        assert_eq!(compress(&raw, &mut out[..stored - 1], &mut scratch), None);
        assert_eq!(compress(&raw, &mut out[..stored], &mut scratch), Some(stored));
    }

    #[test]
    fn a_damaged_chunk_is_an_error_or_other_bytes_of_the_same_length() {
        let raw = mixed(9_000, 60, 5);
        let (mut out, mut scratch) = (vec![0; raw.len()], Scratch::default());
        let stored = compress(&raw, &mut out, &mut scratch).unwrap();
        let (mut refused, mut random) = (0, Random::seed_from_u64(6));
        let mut place = vec![0; raw.len()];
        for _ in 0..4_000 {
            let mut damaged = out[..stored].to_vec();
            for _ in 0..random.random_range(1..4) {
                damaged[random.random_range(0..stored)] = random.random();
            }
            damaged.truncate(random.random_range(stored / 2..=stored));
            refused += u32::from(decompress(&damaged, &mut place).is_err());
        }
        assert!(refused > 2_000, "{refused}");
    }

    #[test]
    fn a_chunk_of_another_length_is_refused() {
        let raw = [7; 1000];
        let (mut out, mut scratch) = ([0; 1000], Scratch::default());
        let stored = compress(&raw, &mut out, &mut scratch).unwrap();
        assert_eq!(decompress(&out[..stored], &mut [0; 1001]), Err(Some(1000)));
        assert_eq!(decompress(&out[..stored], &mut [0; 999]), Err(None));
        assert_eq!(decompress(&[], &mut [0; 10]), Err(None));
    }
}
