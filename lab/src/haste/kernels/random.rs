//! Numbers that follow from a place, so that data can be checked without being read.

/// A number that follows from two others (SplitMix64's finisher).
pub fn mixed(seed: u64, index: u64) -> u64 {
    let mut word = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A number from 0 up to, but not including, 1 that follows from two others.
pub fn fraction(seed: u64, index: u64) -> f64 {
    (mixed(seed, index) >> 11) as f64 / (1u64 << 53) as f64
}
