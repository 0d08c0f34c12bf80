//! The hash of elements: MurmurHash64A by Austin Appleby, which is in the public domain.

const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;
/// The seed that Redis hashes elements with.
const SEED: u64 = 0xadc8_3b19;

pub(super) fn murmur64a(bytes: &[u8]) -> u64 {
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        let word = (word ^ word >> SHIFT).wrapping_mul(MULTIPLIER);
        hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(MULTIPLIER);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(MULTIPLIER);
    hash ^ hash >> SHIFT
}
