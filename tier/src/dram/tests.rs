//! The DRAM against lists that are searched one by one, before a device that is a map.

use std::collections::{BTreeMap, HashMap};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

const CAPACITY: DramCapacity = DramCapacity { bytes: 4_000, dirty_max_bytes: 2_500 };

/// What ought to be here: entries in the order of their last use, and what was used how often.
#[derive(Default)]
struct Naive {
    /// Key, length, and the number of the write if that is not on the device.
    here: Vec<(Key, u32, Option<u64>)>,
    used: HashMap<Key, u32>,
    writes: u64,
}

impl Naive {
    fn bytes(&self, counts: impl Fn(&(Key, u32, Option<u64>)) -> bool) -> u64 {
        self.here.iter().filter(|it| counts(it)).map(|it| u64::from(it.1)).sum()
    }

    fn range(&self, key: Key) -> usize {
        range_of(self.used.get(&key).copied().unwrap_or(0))
    }

    /// Evicts the coldest clean entries but `own`, of two the one used earlier.
    fn make_room(&mut self, own: Key, len_bytes: u32, may: impl Fn(usize) -> bool) -> bool {
        let others = |it: &Self| it.bytes(|one| one.0 != own);
        while others(self) + u64::from(len_bytes) > CAPACITY.bytes {
            let clean = self.here.iter().filter(|it| it.2.is_none() && it.0 != own);
            let coldest = clean.min_by_key(|it| self.range(it.0)).map(|it| it.0);
            let Some(coldest) = coldest.filter(|key| may(self.range(*key))) else { return false };
            self.here.retain(|it| it.0 != coldest);
        }
        true
    }

    fn write(&mut self, key: Key, len_bytes: u32) -> bool {
        let dirty_bytes = self.bytes(|it| it.2.is_some() && it.0 != key);
        if dirty_bytes + u64::from(len_bytes) > CAPACITY.dirty_max_bytes {
            return false;
        }
        assert!(self.make_room(key, len_bytes, |_| true));
        self.here.retain(|it| it.0 != key);
        self.writes += 1;
        *self.used.entry(key).or_default() += 1;
        self.here.push((key, len_bytes, Some(self.writes)));
        true
    }

    fn touch(&mut self, key: Key) -> Option<u32> {
        *self.used.entry(key).or_default() += 1;
        let at = self.here.iter().position(|it| it.0 == key)?;
        let one = self.here.remove(at);
        self.here.push(one);
        Some(one.1)
    }
}

struct World {
    dram: Dram,
    naive: Naive,
    device: HashMap<Key, u32>,
    /// What was written last, by its length.
    written: HashMap<Key, u32>,
    burst: Vec<Destage>,
    missed: Vec<(Missed, Option<u32>)>,
    /// The last missed read of each key that was neither written nor brought since.
    newest: HashMap<Key, Missed>,
    random: Xoshiro256PlusPlus,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            dram: Dram::new(CAPACITY),
            naive: Naive::default(),
            device: (0..20).map(|key| (key, 77)).collect(),
            written: (0..20).map(|key| (key, 77)).collect(),
            burst: Vec::new(),
            missed: Vec::new(),
            newest: HashMap::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }

    fn step(&mut self) {
        let most = if self.random.random_bool(0.5) { 8 } else { 60 };
        let key = self.random.random_range(0..most);
        match self.random.random_range(0..8) {
            0..3 => self.write(key),
            3..6 => self.read(key),
            6 => self.destage(),
            _ => self.arrive(),
        }
        self.check();
    }

    fn write(&mut self, key: Key) {
        let len_bytes = self.random.random_range(50..300);
        let is_done = self.dram.write(key, len_bytes);
        assert_eq!(is_done, self.naive.write(key, len_bytes));
        if is_done {
            self.written.insert(key, len_bytes);
            self.newest.remove(&key);
        }
    }

    fn read(&mut self, key: Key) {
        let expected = self.naive.touch(key);
        match self.dram.read(key) {
            Ok(len_bytes) => {
                assert_eq!(Some(len_bytes), expected);
                assert_eq!(self.written.get(&key), Some(&len_bytes), "an old value of {key}");
            }
            Err(missed) => {
                assert_eq!((missed.key, expected), (key, None));
                let found = self.device.get(&key).copied();
                assert_eq!(found, self.written.get(&key).copied(), "{key} was lost");
                self.newest.insert(key, missed);
                self.missed.push((missed, found));
            }
        }
    }

    fn destage(&mut self) {
        let dirty_bytes = self.naive.bytes(|it| it.2.is_some());
        let burst = self.dram.burst();
        let is_due = dirty_bytes * 100 >= CAPACITY.dirty_max_bytes * 90;
        assert_eq!(!burst.is_empty(), self.burst.is_empty() && is_due);
        if !burst.is_empty() {
            self.check_burst(&burst, dirty_bytes);
            self.burst = burst;
        }
        if !self.burst.is_empty() {
            let at = self.random.random_range(0..self.burst.len());
            let one = self.burst.swap_remove(at);
            self.device.insert(one.key, one.len_bytes);
            self.dram.destaged(one);
            let is_it = |it: &(Key, u32, Option<u64>)| it.2 == Some(one.write);
            if let Some(at) = self.naive.here.iter().position(is_it) {
                // It is the one used last of the clean ones of its range.
                let (key, len_bytes, _) = self.naive.here.remove(at);
                self.naive.here.push((key, len_bytes, None));
            }
        }
    }

    /// A burst has the coldest dirty entries, as many as are needed, in the order of their keys.
    fn check_burst(&self, burst: &[Destage], dirty_bytes: u64) {
        assert!(burst.is_sorted_by_key(|one| one.key));
        let mut dirty: Vec<_> = self.naive.here.iter().filter(|it| it.2.is_some()).collect();
        dirty.sort_by_key(|it| self.naive.range(it.0));
        let (mut left_bytes, mut expected) = (dirty_bytes, BTreeMap::new());
        for &&(key, len_bytes, write) in &dirty {
            if left_bytes * 100 <= CAPACITY.dirty_max_bytes * 85 {
                break;
            }
            left_bytes -= u64::from(len_bytes);
            expected.insert(key, (len_bytes, write));
        }
        let found = burst.iter().map(|one| (one.key, (one.len_bytes, Some(one.write))));
        assert_eq!(found.collect::<BTreeMap<_, _>>(), expected);
    }

    fn arrive(&mut self) {
        if self.missed.is_empty() {
            return;
        }
        let at = self.random.random_range(0..self.missed.len());
        let (missed, len_bytes) = self.missed.swap_remove(at);
        let is_newest = self.newest.get(&missed.key) == Some(&missed);
        let range = self.naive.range(missed.key);
        let expected = is_newest
            && len_bytes.is_some_and(|len| {
                self.naive.make_room(missed.key, len, |coldest| coldest < range)
            });
        if is_newest {
            self.newest.remove(&missed.key);
            if len_bytes.is_none() {
                self.naive.used.remove(&missed.key);
            }
        }
        assert_eq!(self.dram.arrived(missed, len_bytes), expected);
        if let Some(len_bytes) = len_bytes.filter(|_| expected) {
            self.naive.here.push((missed.key, len_bytes, None));
        }
    }

    fn check(&self) {
        let Dram { entries, used_bytes, dirty_bytes, .. } = &self.dram;
        let here = |it: &(Key, u32, Option<u64>)| (it.0, (it.1, it.2));
        let expected: BTreeMap<_, _> = self.naive.here.iter().map(here).collect();
        let of = |(key, it): (&Key, &Entry)| (*key, (it.len_bytes, it.dirty));
        assert_eq!(entries.iter().map(of).collect::<BTreeMap<_, _>>(), expected);
        assert_eq!(*used_bytes, self.naive.bytes(|_| true));
        assert_eq!(*dirty_bytes, self.naive.bytes(|it| it.2.is_some()));
        assert!(*used_bytes <= CAPACITY.bytes && *dirty_bytes <= CAPACITY.dirty_max_bytes);
        // What is not in the burst is in one of the lists, and nothing else is.
        let is_in_burst =
            |it: &&(Key, u32, Option<u64>)| self.burst.iter().any(|one| it.2 == Some(one.write));
        let in_burst = self.naive.here.iter().filter(is_in_burst).count();
        let (clean, dirty) = (self.dram.clean.len(), self.dram.dirty.len());
        assert_eq!(clean, self.naive.here.iter().filter(|it| it.2.is_none()).count());
        assert_eq!(clean + dirty + in_burst, entries.len());
        for (key, entry) in entries {
            assert_eq!(Some(&entry.hotness), self.naive.used.get(key), "hotness of {key}");
        }
    }
}

#[test]
fn it_has_what_a_search_of_all_entries_says_and_loses_no_write() {
    for seed in 0..30 {
        let mut world = World::new(seed);
        (0..1_500).for_each(|_| world.step());
    }
}

fn dram(bytes: u64, dirty_max_bytes: u64) -> Dram {
    Dram::new(DramCapacity { bytes, dirty_max_bytes })
}

fn destage_all(dram: &mut Dram) -> usize {
    let burst = dram.burst();
    burst.iter().for_each(|one| dram.destaged(*one));
    burst.len()
}

#[test]
fn an_entry_that_is_written_often_takes_room_once_and_is_destaged_last() {
    let mut dram = dram(1_000, 1_000);
    (0..100).for_each(|_| assert!(dram.write(1, 100)));
    assert!(dram.burst().is_empty());
    (2..10).for_each(|key| assert!(dram.write(key, 100)));
    let burst = dram.burst();
    assert_eq!(burst.iter().map(|one| one.key).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_burst_is_not_begun_while_another_is_under_way() {
    let mut dram = dram(1_000, 1_000);
    (0..10).for_each(|key| assert!(dram.write(key, 100)));
    let burst = dram.burst();
    assert_eq!(burst.len(), 2, "from 1,000 B to at most 850 B");
    assert!(!dram.write(10, 1), "all is dirty");
    dram.destaged(burst[0]);
    assert!(dram.write(10, 100), "what is on its device makes room");
    assert!(dram.burst().is_empty());
    burst[1..].iter().for_each(|one| dram.destaged(*one));
    assert_eq!(destage_all(&mut dram), 1);
}

#[test]
fn what_is_not_hotter_than_the_coldest_is_not_kept() {
    let mut dram = dram(100, 100);
    assert!(dram.write(1, 100));
    assert_eq!(destage_all(&mut dram), 1);
    let missed = dram.read(2).unwrap_err();
    assert!(!dram.arrived(missed, Some(100)), "both were used once");
    let missed = dram.read(2).unwrap_err();
    assert!(dram.arrived(missed, Some(100)));
    assert_eq!(dram.read(2), Ok(100));
    assert!(dram.read(1).is_err());
}

#[test]
#[should_panic(expected = "dirty_max_bytes: 2")]
fn more_than_there_is_room_for_cannot_be_dirty() {
    dram(1, 2);
}
