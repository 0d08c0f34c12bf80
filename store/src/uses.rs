//! How often keys were used lately: a byte for each of many classes of hashes.
//!
//! The counts decide which values stay in memory. They are hints: keys whose hashes fall in the
//! same class share a count, and threads may lose a count between them. A count stops at 255. When
//! the counts have become large on average, all are halved ([`Uses::age`]), so they tell of lately.
//! A byte a key, and not a list of keys in the order of use (Sprint-AEP, section III.C), because a
//! read then changes no more than that byte.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use perdura_region::{Mapping, prefetch_to_store};

use crate::error::OpenError;

/// Bytes of memory for each count: values that small are not made far.
const MEMORY_BYTES_PER_COUNT: u64 = 64;
/// Counts that are looked at to tell whether all are large.
const SAMPLES: usize = 4096;
/// Average of the counts that are not 0, from which on all counts are halved.
const AVERAGE_MAX: u64 = 4;

pub(crate) struct Uses {
    counts: Mapping,
    mask: u64,
}

impl Uses {
    /// Counts for a store in so much memory. They are read in no order, so they are in huge pages
    /// where the system has some: each read would miss the processor's cache of addresses, too.
    ///
    /// # Errors
    /// The system has no memory for the counts.
    pub fn new(region_bytes: u64) -> Result<Self, OpenError> {
        let bytes = (region_bytes / MEMORY_BYTES_PER_COUNT).next_power_of_two().max(1024);
        let counts = Mapping::anonymous(bytes)
            .map_err(|errno| OpenError::Counts { bytes, source: errno.into() })?;
        counts.prefer_huge_pages();
        Ok(Self { counts, mask: bytes - 1 })
    }

    /// Notes that the key with this hash is used.
    #[inline]
    pub fn note(&self, hash: u64) {
        let count = self.at(hash);
        let before = count.load(Relaxed);
        if before < u8::MAX {
            count.store(before + 1, Relaxed);
        }
    }

    /// Starts loading the count of keys of this hash into the cache.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch_to_store(std::ptr::from_ref(self.at(hash)).cast());
    }

    /// How often keys of this hash were used lately.
    #[inline]
    pub fn of(&self, hash: u64) -> u8 {
        self.at(hash).load(Relaxed)
    }

    /// Halves all counts if they are large on average.
    pub fn age(&self) {
        let counts = self.all();
        let step = (counts.len() / SAMPLES).max(1);
        let used = |count: &AtomicU8| Some(u64::from(count.load(Relaxed))).filter(|uses| *uses > 0);
        let sampled = counts.iter().step_by(step).filter_map(used);
        let (sum, number) = sampled.fold((0, 0), |(sum, number), uses| (sum + uses, number + 1));
        if sum > number * AVERAGE_MAX {
            for count in counts {
                count.store(count.load(Relaxed) / 2, Relaxed);
            }
        }
    }

    fn at(&self, hash: u64) -> &AtomicU8 {
        // The lower bits pick the bucket of the index, so keys of one bucket have counts of their
        // own only if other bits are used, too.
        &self.all()[((hash ^ hash >> 29) & self.mask) as usize]
    }

    fn all(&self) -> &[AtomicU8] {
        self.counts.octets(0, self.mask as usize + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_stop_at_the_highest_and_are_halved_once_they_are_large_on_average() {
        let uses = Uses::new(1 << 16).unwrap();
        (0..300).for_each(|_| uses.note(7));
        assert_eq!((uses.of(7), uses.of(8)), (255, 0));
        (0..1024).filter(|hash| *hash != 7).for_each(|hash| uses.note(hash));
        uses.age();
        assert_eq!(uses.of(7), 255, "one large count among many small ones says little");
        for hash in 0..1024 {
            (0..6).for_each(|_| uses.note(hash));
        }
        uses.age();
        assert_eq!((uses.of(7), uses.of(8)), (127, 3));
    }
}
