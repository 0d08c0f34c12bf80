//! Contents of the blocks that are read and verified: each word follows from the block's number and
//! the word's place, so that a misplaced, stale or torn block is seen.

use super::MediaBenchError;

/// Length of a block, bytes.
pub(super) const BLOCK_BYTES: usize = 4096;
const WORD_BYTES: usize = 8;
/// An odd factor: it makes the words of a block and of its neighbours different.
const STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

fn first(number: u64) -> u64 {
    perdura_bench::hash::fnv64(number)
}

/// Fills a block with the words of block `number`.
pub(super) fn fill(number: u64, block: &mut [u8]) {
    let mut word = first(number);
    for bytes in block.chunks_exact_mut(WORD_BYTES) {
        bytes.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(STRIDE);
    }
}

/// Checks that all words are those of block `number`; names the first that is not.
pub(super) fn verify(what: &str, number: u64, block: &[u8]) -> Result<(), MediaBenchError> {
    let start = first(number);
    let expected = |at: usize| start.wrapping_add((at as u64).wrapping_mul(STRIDE));
    let found = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let differ = |(at, bytes): (usize, &[u8])| found(bytes) ^ expected(at);
    // All words are compared without a branch first, since they are nearly always right.
    if block.chunks_exact(WORD_BYTES).enumerate().map(differ).fold(0, |all, one| all | one) == 0 {
        return Ok(());
    }
    let mut words = block.chunks_exact(WORD_BYTES).enumerate();
    let (at, bytes) = words.find(|word| differ(*word) != 0).unwrap_or((0, block));
    Err(MediaBenchError::Corrupt {
        what: what.to_owned(),
        offset_bytes: number * BLOCK_BYTES as u64 + (at * WORD_BYTES) as u64,
        found: found(bytes),
        expected: expected(at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_block_a_torn_one_and_one_flipped_bit_are_seen() {
        let (mut one, mut other) = ([0; BLOCK_BYTES], [0; BLOCK_BYTES]);
        fill(7, &mut one);
        fill(8, &mut other);
        assert!(verify("", 7, &one).is_ok());
        assert!(verify("", 7, &other).is_err());
        let mut torn = one;
        torn[2048..].copy_from_slice(&other[2048..]);
        let error = verify("test", 7, &torn).unwrap_err().to_string();
        assert!(error.starts_with("test: the block at 30720 holds"), "{error}");
        for bit in [0, 12_345, 8 * BLOCK_BYTES - 1] {
            let mut flipped = one;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(verify("", 7, &flipped).is_err(), "bit {bit}");
        }
    }
}
