//! YCSB's hashes: they name keys, scramble ranks and give the scores of the index of scans.

const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 1_099_511_628_211;

/// FNV-1a over the eight bytes of `value`, lowest first; positive as Java's `Math.abs` makes it.
pub fn fnv64(value: u64) -> u64 {
    let hash = value
        .to_le_bytes()
        .iter()
        .fold(FNV_OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME));
    (hash as i64).unsigned_abs()
}

/// Java's `String.hashCode`, which YCSB's Redis binding uses as a key's score in its index.
pub fn java_hash(text: &[u8]) -> i32 {
    text.iter().fold(0i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_keys_are_ycsbs() {
        assert_eq!(fnv64(0), 6_284_781_860_667_377_211);
        assert_eq!(fnv64(1), 8_517_097_267_634_966_620);
    }

    #[test]
    fn java_hashes_overflow_as_in_java() {
        assert_eq!(java_hash(b"hello"), 99_162_322);
        assert_eq!(java_hash(b"user6284781860667377211"), -594_971_599);
    }
}
