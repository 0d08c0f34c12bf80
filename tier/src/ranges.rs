//! Entries by how often they were used: up to ten range lists, each in the order of last use
//! (Sprint-AEP, section III-C, its HRLs and CRLs).
//!
//! The paper divides the values of hotness between two clamps into ten ranges when a prefetch
//! begins. Here the ranges are fixed, each twice as wide as the one below, so that an entry changes
//! its list in constant time and nothing is ever sorted. Which of two lists is hotter is the same
//! for everybody who compares.

use std::collections::HashMap;
use std::hash::Hash;

/// Number of lists.
pub const RANGES: usize = 10;

/// The range of a hotness: 0 has what was never used, 1 what was used once.
pub fn range_of(hotness: u32) -> usize {
    hotness.checked_ilog2().map_or(0, |log| (log as usize + 1).min(RANGES - 1))
}

/// Entries in range lists.
#[derive(Debug, Clone)]
pub struct Ranges<K> {
    slots: Vec<Slot<K>>,
    /// Slots without an entry.
    unused: Vec<u32>,
    places: HashMap<K, u32>,
    lists: [List; RANGES],
}

#[derive(Debug, Clone)]
struct Slot<K> {
    key: K,
    hotness: u32,
    /// The entry that was used next after this one, and the one before.
    newer: Option<u32>,
    older: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
struct List {
    newest: Option<u32>,
    oldest: Option<u32>,
}

impl<K: Copy + Eq + Hash> Default for Ranges<K> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            unused: Vec::new(),
            places: HashMap::new(),
            lists: [List::default(); RANGES],
        }
    }
}

impl<K: Copy + Eq + Hash> Ranges<K> {
    /// Number of entries.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// The hotness of an entry, if it is here.
    #[cfg(test)]
    pub fn hotness(&self, key: K) -> Option<u32> {
        self.places.get(&key).map(|place| self.slots[*place as usize].hotness)
    }

    /// Puts an entry here as the one used last of its range, whether it is here already or not.
    pub fn put(&mut self, key: K, hotness: u32) {
        let place = match self.places.get(&key) {
            Some(&place) => {
                self.unlink(place);
                place
            }
            None => self.take_slot(key),
        };
        self.slots[place as usize].hotness = hotness;
        self.link(place);
    }

    /// Takes an entry out. Returns its hotness.
    pub fn remove(&mut self, key: K) -> Option<u32> {
        let place = self.places.remove(&key)?;
        self.unlink(place);
        self.unused.push(place);
        Some(self.slots[place as usize].hotness)
    }

    /// The entry used last of the hottest range, and that range.
    pub fn hottest(&self) -> Option<(K, usize)> {
        let found = |range: usize| self.lists[range].newest.map(|place| (place, range));
        let (place, range) = (0..RANGES).rev().find_map(found)?;
        Some((self.slots[place as usize].key, range))
    }

    /// The entry not used for longest of the coldest range, and that range.
    pub fn coldest(&self) -> Option<(K, usize)> {
        let found = |range: usize| self.lists[range].oldest.map(|place| (place, range));
        let (place, range) = (0..RANGES).find_map(found)?;
        Some((self.slots[place as usize].key, range))
    }

    fn take_slot(&mut self, key: K) -> u32 {
        let slot = Slot { key, hotness: 0, newer: None, older: None };
        let place = match self.unused.pop() {
            Some(place) => {
                self.slots[place as usize] = slot;
                place
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        self.places.insert(key, place);
        place
    }

    fn link(&mut self, place: u32) {
        let list = &mut self.lists[range_of(self.slots[place as usize].hotness)];
        let before = list.newest.replace(place);
        match before {
            Some(before) => self.slots[before as usize].newer = Some(place),
            None => list.oldest = Some(place),
        }
        let slot = &mut self.slots[place as usize];
        (slot.newer, slot.older) = (None, before);
    }

    fn unlink(&mut self, place: u32) {
        let Slot { hotness, newer, older, .. } = self.slots[place as usize];
        let list = &mut self.lists[range_of(hotness)];
        match newer {
            Some(newer) => self.slots[newer as usize].older = older,
            None => list.newest = older,
        }
        match older {
            Some(older) => self.slots[older as usize].newer = newer,
            None => list.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn each_range_is_twice_as_wide_as_the_one_below() {
        let found = [0, 1, 2, 3, 4, 7, 8, 255, 256, u32::MAX].map(range_of);
        assert_eq!(found, [0, 1, 2, 2, 3, 3, 4, 8, 9, 9]);
    }

    /// Entries with the step at which each was put, searched one by one.
    #[derive(Default)]
    struct Naive(Vec<(u64, u32, u64)>);

    impl Naive {
        fn hottest(&self) -> Option<(u64, usize)> {
            let best = self.0.iter().max_by_key(|(_, hotness, step)| (range_of(*hotness), *step));
            best.map(|(key, hotness, _)| (*key, range_of(*hotness)))
        }

        fn coldest(&self) -> Option<(u64, usize)> {
            let best = self.0.iter().min_by_key(|(_, hotness, step)| (range_of(*hotness), *step));
            best.map(|(key, hotness, _)| (*key, range_of(*hotness)))
        }
    }

    #[test]
    fn lists_find_what_a_search_of_all_entries_finds() {
        for seed in 0..20 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let (mut ranges, mut naive) = (Ranges::default(), Naive::default());
            for step in 0..2_000 {
                let key = random.random_range(0..60);
                if random.random_bool(0.6) {
                    let hotness = 1 << random.random_range(0..12) >> random.random_range(0..3);
                    ranges.put(key, hotness);
                    naive.0.retain(|entry| entry.0 != key);
                    naive.0.push((key, hotness, step));
                } else {
                    let at = naive.0.iter().position(|entry| entry.0 == key);
                    let expected = at.map(|at| naive.0.remove(at).1);
                    assert_eq!(ranges.remove(key), expected, "seed {seed}, step {step}");
                }
                assert_eq!(ranges.len(), naive.0.len());
                assert_eq!(ranges.hottest(), naive.hottest(), "seed {seed}, step {step}");
                assert_eq!(ranges.coldest(), naive.coldest(), "seed {seed}, step {step}");
                let hotness = naive.0.iter().find(|entry| entry.0 == key).map(|entry| entry.1);
                assert_eq!(ranges.hotness(key), hotness);
            }
        }
    }
}
