//! The fewest bytes that any choice of victims could write, simulated on the same stream of stores.
//!
//! A store makes its unit dirty; when more units would be dirty than the budget holds, one is
//! written out. Units that are dirty at the end are not counted, as in the measured run. There are
//! no checkpoints.

use std::collections::BinaryHeap;

/// Units written out by exact least-recently-written order: the victim is the unit whose last store
/// is longest ago.
pub fn exact_lru(stream: impl Iterator<Item = u32>, units: u32, capacity: usize) -> u64 {
    let mut dirty = Recent::new(units);
    let mut written = 0;
    for unit in stream {
        if dirty.holds(unit) {
            dirty.remove(unit);
        } else if dirty.len == capacity.max(1) {
            dirty.remove(dirty.oldest());
            written += 1;
        }
        dirty.push(unit);
    }
    written
}

/// Units written out by a policy that knows the future: the victim is the unit whose next store is
/// furthest away. No policy can write fewer.
pub fn perfect_knowledge(stream: &[u32], units: u32, capacity: usize) -> u64 {
    const NEVER: u32 = u32::MAX;
    // For each store: the position of the next store to the same unit.
    let mut next_of = vec![NEVER; stream.len()];
    let mut seen = vec![NEVER; units as usize];
    for (at, unit) in stream.iter().enumerate().rev() {
        next_of[at] = std::mem::replace(&mut seen[*unit as usize], at as u32);
    }
    // For each dirty unit: the position of its next store. Entries of clean units are not used.
    let mut next = vec![NEVER; units as usize];
    let mut is_dirty = vec![false; units as usize];
    let mut furthest: BinaryHeap<(u32, u32)> = BinaryHeap::new();
    let (mut dirty, mut written) = (0, 0);
    for (at, unit) in stream.iter().enumerate() {
        let index = *unit as usize;
        if !is_dirty[index] {
            if dirty == capacity.max(1) {
                while let Some((when, victim)) = furthest.pop() {
                    let victim = victim as usize;
                    // An entry of the queue is stale if the unit was stored to again.
                    if is_dirty[victim] && next[victim] == when {
                        is_dirty[victim] = false;
                        written += 1;
                        dirty -= 1;
                        break;
                    }
                }
            }
            is_dirty[index] = true;
            dirty += 1;
        }
        next[index] = next_of[at];
        furthest.push((next_of[at], *unit));
    }
    written
}

/// Units in the order of their last store: a doubly linked list in two arrays, closed into a ring
/// by the entry `units`.
struct Recent {
    before: Vec<u32>,
    after: Vec<u32>,
    len: usize,
}

impl Recent {
    fn new(units: u32) -> Self {
        let mut none = vec![Self::ABSENT; units as usize + 1];
        none[units as usize] = units;
        Self { before: none.clone(), after: none, len: 0 }
    }

    const ABSENT: u32 = u32::MAX;

    fn end(&self) -> u32 {
        self.before.len() as u32 - 1
    }

    fn holds(&self, unit: u32) -> bool {
        self.before[unit as usize] != Self::ABSENT
    }

    fn oldest(&self) -> u32 {
        self.after[self.end() as usize]
    }

    fn push(&mut self, unit: u32) {
        let end = self.end();
        let newest = self.before[end as usize];
        (self.before[unit as usize], self.after[unit as usize]) = (newest, end);
        self.after[newest as usize] = unit;
        self.before[end as usize] = unit;
        self.len += 1;
    }

    fn remove(&mut self, unit: u32) {
        let (before, after) = (self.before[unit as usize], self.after[unit as usize]);
        self.after[before as usize] = after;
        self.before[after as usize] = before;
        self.before[unit as usize] = Self::ABSENT;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus as Random;

    use super::*;

    /// The fewest units written out, found by trying every choice of victims.
    fn fewest(stream: &[u32], dirty: &mut Vec<u32>, capacity: usize) -> u64 {
        let Some((unit, rest)) = stream.split_first() else { return 0 };
        if dirty.contains(unit) {
            return fewest(rest, dirty, capacity);
        }
        if dirty.len() < capacity {
            let mut more = dirty.clone();
            more.push(*unit);
            return fewest(rest, &mut more, capacity);
        }
        let victims = 0..dirty.len();
        let best = victims.map(|victim| {
            let mut other = dirty.clone();
            other[victim] = *unit;
            1 + fewest(rest, &mut other, capacity)
        });
        best.min().unwrap_or(0)
    }

    fn naive_lru(stream: &[u32], capacity: usize) -> u64 {
        let (mut dirty, mut written) = (Vec::new(), 0);
        for unit in stream {
            dirty.retain(|other| other != unit);
            if dirty.len() == capacity {
                dirty.remove(0);
                written += 1;
            }
            dirty.push(*unit);
        }
        written
    }

    #[test]
    fn knowing_the_future_is_as_good_as_trying_everything() {
        for seed in 0..60 {
            let mut random = Random::seed_from_u64(seed);
            let stream: Vec<u32> = (0..14).map(|_| random.random_range(0..6)).collect();
            for capacity in 1..4 {
                let found = perfect_knowledge(&stream, 6, capacity);
                let expected = fewest(&stream, &mut Vec::new(), capacity);
                assert_eq!(found, expected, "seed {seed}, {capacity}: {stream:?}");
            }
        }
    }

    #[test]
    fn exact_lru_is_what_its_name_says_and_never_beats_the_future() {
        for seed in 0..100 {
            let mut random = Random::seed_from_u64(seed);
            let stream: Vec<u32> = (0..300).map(|_| random.random_range(0..40)).collect();
            let capacity = random.random_range(1..30);
            let lru = exact_lru(stream.iter().copied(), 40, capacity);
            assert_eq!(lru, naive_lru(&stream, capacity), "seed {seed}");
            assert!(perfect_knowledge(&stream, 40, capacity) <= lru, "seed {seed}");
        }
    }

    #[test]
    fn what_fits_is_never_written() {
        let stream: Vec<u32> = (0..100).map(|at| at % 10).collect();
        assert_eq!(exact_lru(stream.iter().copied(), 10, 10), 0);
        assert_eq!(perfect_knowledge(&stream, 10, 10), 0);
        assert_eq!(exact_lru(stream.iter().copied(), 10, 9), 91);
    }
}
