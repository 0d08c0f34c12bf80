//! The device on which a key's value belongs: the first layer of the index (Sprint-AEP, section
//! III.B).

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Picks one of `devices` for a key: the one with the highest hash of both (rendezvous hashing). So
/// the values of a device that leaves spread over the others, and one that comes takes its share
/// from each; no other value's home changes.
pub(crate) fn home_of<D>(db: u8, key: &[u8], devices: impl Iterator<Item = (u16, D)>) -> Option<D> {
    let hash = xxh3_64_with_seed(key, u64::from(db) << 32);
    let weight = |number: u16| {
        // The finalizer of MurmurHash3.
        let mut mixed = hash ^ (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        mixed ^ (mixed >> 33)
    };
    devices.max_by_key(|(number, _)| weight(*number)).map(|(_, device)| device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_even_and_only_those_of_a_device_that_leaves_change() {
        let home = |key: u32, numbers: &[u16]| {
            home_of(0, &key.to_le_bytes(), numbers.iter().map(|n| (*n, *n)))
        };
        let mut counts = [0; 4];
        for key in 0..4000 {
            let before = home(key, &[0, 1, 2, 3]);
            counts[usize::from(before.unwrap_or(9))] += 1;
            let after = home(key, &[0, 1, 3]);
            assert!(before == Some(2) || after == before);
        }
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
        assert_eq!(home(1, &[]), None);
    }
}
