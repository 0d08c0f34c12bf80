//! The measured work: a hash table in persistent memory ("NVMPersist"), and beside it work on
//! capacity memory ("NVMCap") that shares the cache.
//!
//! This file tells the recorder every load of the work; stores to persistent memory are told by the
//! memory itself, which also knows its own stores for logs and allocations.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::ground::{Ground, Place, Watch, WorkError};
use super::model::Owner;
use super::sys::Block;

const WORD: usize = 8;
/// Head of a node, bytes: next, key, length of the value.
const HEAD: usize = 3 * WORD;
/// Lengths of values and their shares, of 20 nodes: 16 B to 1 KiB, small ones more often.
const VALUES: [(usize, u32); 6] = [(16, 5), (40, 6), (104, 4), (232, 3), (488, 1), (1000, 1)];
/// Slots of the table in one object: a line, so that a log of whole objects has no disadvantage.
const GROUP_SLOTS: u64 = 8;
const GROUP_BYTES: usize = GROUP_SLOTS as usize * WORD;
/// The bits of a key that are its number.
const KEY_NUMBER: u64 = u32::MAX as u64;

/// Shares of hash operations, of 100; the rest are look-ups.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    /// Inserts a key; a key that exists gets another value of the same length in place.
    pub inserts: u32,
    /// Changes one word of a value.
    pub updates: u32,
    /// Deletes a key.
    pub deletes: u32,
}

/// The paper's mix: insert, look up, delete.
pub const HASH_OPERATIONS: Mix = Mix { inserts: 50, updates: 0, deletes: 20 };
/// A mix for logs: large contiguous changes and small scattered ones.
pub const MIXED: Mix = Mix { inserts: 50, updates: 40, deletes: 10 };

/// A chained hash table in persistent memory.
pub struct HashWork<'g, G: Ground> {
    ground: &'g G,
    watch: Watch<'g>,
    groups: Vec<Place>,
    mix: Mix,
    random: Random,
    seed: u64,
    /// The expected contents: keys, and the first word of their values.
    live: Vec<(u64, u64)>,
    /// For each key number: its index in `live`, plus one; 0 if absent.
    places: Vec<u32>,
    changed_bytes: u64,
    live_bytes: u64,
}

/// Where a key was found.
struct Found {
    /// The object whose word points to the node, and the word's offset in it, bytes.
    link: (Place, usize),
    node: Place,
    next: u64,
    value_bytes: usize,
}

impl<'g, G: Ground> HashWork<'g, G> {
    /// An empty table for a number of different keys.
    ///
    /// # Errors
    /// There is no memory for the table.
    pub fn new(
        ground: &'g G,
        watch: Watch<'g>,
        mix: Mix,
        keys: u64,
        seed: u64,
    ) -> Result<Self, WorkError> {
        let count = keys.div_ceil(GROUP_SLOTS).next_power_of_two();
        let mut groups = Vec::new();
        let empty = [0; GROUP_BYTES];
        for _ in 0..count {
            ground.transact(&mut |changes| {
                let group = changes.alloc(empty.len())?;
                changes.bytes(group, &empty)?;
                groups.push(group);
                Ok(())
            })?;
        }
        let random = Random::seed_from_u64(seed);
        Ok(Self {
            ground,
            watch,
            groups,
            mix,
            random,
            seed,
            live: Vec::new(),
            places: vec![0; keys as usize],
            changed_bytes: 0,
            live_bytes: 0,
        })
    }

    /// Does one operation.
    ///
    /// # Errors
    /// There is no memory, or the table lost a key.
    pub fn step(&mut self) -> Result<(), WorkError> {
        let drawn = self.random.random_range(0..100);
        let Mix { inserts, updates, deletes } = self.mix;
        if drawn < inserts || self.live.is_empty() {
            return self.insert();
        }
        let which = self.random.random_range(0..self.live.len());
        let (key, word) = self.live[which];
        let found = self.find(key)?;
        let first = self.load(found.node, HEAD, found.value_bytes)?;
        if first != word {
            return Err(WorkError::Lost { key, seed: self.seed });
        }
        match drawn - inserts {
            drawn if drawn < updates => self.update(which, &found),
            drawn if drawn < updates + deletes => self.delete(which, &found),
            _ => Ok(()),
        }
    }

    /// Bytes that transactions changed so far: those of written objects and of words.
    pub fn changed_bytes(&self) -> u64 {
        self.changed_bytes
    }

    /// Bytes of the nodes in the table.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    fn insert(&mut self) -> Result<(), WorkError> {
        let number = self.random.random_range(0..self.places.len());
        let key = self.key(number);
        let mut value = vec![0; value_bytes(key)];
        self.random.fill(&mut value[..]);
        if let Some(which) = self.places[number].checked_sub(1) {
            return self.replace(which as usize, &value);
        }
        let (group, at) = self.slot(key);
        let next = self.load(group, at, WORD)?;
        let head = [next, key, value.len() as u64].map(u64::to_le_bytes);
        let node = [head.as_flattened(), &value].concat();
        self.ground.transact(&mut |changes| {
            let place = changes.alloc(node.len())?;
            changes.bytes(place, &node)?;
            changes.word(group, at, place)
        })?;
        self.changed_bytes += (node.len() + WORD) as u64;
        self.live_bytes += node.len() as u64;
        self.live.push((key, word_at(&value, 0)));
        self.places[number] = self.live.len() as u32;
        Ok(())
    }

    fn replace(&mut self, which: usize, value: &[u8]) -> Result<(), WorkError> {
        let found = self.find(self.live[which].0)?;
        let place = found.node + HEAD as u64;
        self.ground.transact(&mut |changes| changes.bytes(place, value))?;
        self.changed_bytes += value.len() as u64;
        self.live[which].1 = word_at(value, 0);
        Ok(())
    }

    fn update(&mut self, which: usize, found: &Found) -> Result<(), WorkError> {
        let value = self.random.random();
        self.ground.transact(&mut |changes| changes.word(found.node, HEAD, value))?;
        self.changed_bytes += WORD as u64;
        self.live[which].1 = value;
        Ok(())
    }

    fn delete(&mut self, which: usize, found: &Found) -> Result<(), WorkError> {
        let (object, at) = found.link;
        self.ground.transact(&mut |changes| {
            changes.word(object, at, found.next)?;
            changes.free(found.node)
        })?;
        self.changed_bytes += WORD as u64;
        self.live_bytes -= (HEAD + found.value_bytes) as u64;
        let (key, _) = self.live.swap_remove(which);
        let number = self.number(key);
        self.places[number] = 0;
        if let Some((moved, _)) = self.live.get(which) {
            let moved = self.number(*moved);
            self.places[moved] = which as u32 + 1;
        }
        Ok(())
    }

    fn find(&self, key: u64) -> Result<Found, WorkError> {
        let (group, at) = self.slot(key);
        let mut link = (group, at);
        let mut node = self.load(group, at, WORD)?;
        while node != 0 {
            let mut head = [0; HEAD];
            self.ground.read(node, &mut head)?;
            self.watch.load(self.ground.address(node), HEAD, Owner::PersistentData);
            let [next, found, value_bytes] = [0, WORD, 2 * WORD].map(|at| word_at(&head, at));
            let value_bytes = value_bytes as usize;
            if found == key {
                return Ok(Found { link, node, next, value_bytes });
            }
            link = (node, 0);
            node = next;
        }
        Err(WorkError::Lost { key, seed: self.seed })
    }

    /// Loads bytes and returns their first word.
    fn load(&self, object: Place, at: usize, bytes: usize) -> Result<u64, WorkError> {
        let mut loaded = [0; 1024];
        let Some(loaded) = loaded.get_mut(..bytes) else {
            return Err(WorkError::Lost { key: object, seed: self.seed });
        };
        self.ground.read(object + at as u64, loaded)?;
        let address = self.ground.address(object) + at as u64;
        self.watch.load(address, bytes, Owner::PersistentData);
        Ok(word_at(loaded, 0))
    }

    /// A key without a pattern, whose lower bits are its number in the table.
    fn key(&self, number: usize) -> u64 {
        scramble(number as u64) & !KEY_NUMBER | number as u64
    }

    fn number(&self, key: u64) -> usize {
        (key & KEY_NUMBER) as usize
    }

    /// The group of slots of a key, and the slot's offset in the group, bytes.
    fn slot(&self, key: u64) -> (Place, usize) {
        let slot = scramble(key) % (self.groups.len() as u64 * GROUP_SLOTS);
        (self.groups[(slot / GROUP_SLOTS) as usize], (slot % GROUP_SLOTS) as usize * WORD)
    }
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; WORD];
    word.copy_from_slice(&bytes[at..at + WORD]);
    u64::from_le_bytes(word)
}

fn value_bytes(key: u64) -> usize {
    let mut rest = (key >> 40) as u32 % 20;
    for (bytes, weight) in VALUES {
        match rest.checked_sub(weight) {
            None => return bytes,
            Some(less) => rest = less,
        }
    }
    VALUES[0].0
}

/// A bijection that leaves no pattern (the finaliser of SplitMix64).
fn scramble(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// Size of a record that the capacity work emits, bytes.
const RECORD_BYTES: usize = 128;
/// Counters that a record changes.
const COUNTED: usize = 4;

/// Capacity work like the map step of a map-reduce: emits records into fresh memory, looks back at
/// one, and counts in a table that is used all the time.
pub struct CapacityWork<'g, G: Ground> {
    ground: &'g G,
    watch: Watch<'g>,
    hot: Block<'g>,
    kept: VecDeque<Block<'g>>,
    kept_max: usize,
    random: Random,
}

impl<'g, G: Ground> CapacityWork<'g, G> {
    /// Work with a table of `hot_bytes` that keeps records of `kept_bytes`.
    ///
    /// # Errors
    /// There is no memory for the table.
    pub fn new(
        ground: &'g G,
        watch: Watch<'g>,
        hot_bytes: usize,
        kept_bytes: u64,
        seed: u64,
    ) -> Result<Self, WorkError> {
        Ok(Self {
            ground,
            watch,
            hot: ground.capacity(hot_bytes)?,
            kept: VecDeque::new(),
            kept_max: (kept_bytes / RECORD_BYTES as u64).max(1) as usize,
            random: Random::seed_from_u64(seed),
        })
    }

    /// Does one step.
    ///
    /// # Errors
    /// There is no memory.
    pub fn step(&mut self) -> Result<(), WorkError> {
        let record = self.ground.capacity(RECORD_BYTES)?;
        self.watch.store(record.address(), RECORD_BYTES, Owner::CapacityData);
        record.words().iter().for_each(|word| word.store(self.random.random(), Relaxed));
        self.kept.push_back(record);
        let looked_at = &self.kept[self.random.random_range(0..self.kept.len())];
        self.watch.load(looked_at.address(), RECORD_BYTES, Owner::CapacityData);
        for word in looked_at.words().iter().take(COUNTED) {
            let counters = self.hot.words();
            let at = (word.load(Relaxed) % counters.len() as u64) as usize;
            let address = self.hot.address() + (at * WORD) as u64;
            self.watch.store(address, WORD, Owner::CapacityData);
            counters[at].fetch_add(1, Relaxed);
        }
        if self.kept.len() > self.kept_max
            && let Some(oldest) = self.kept.pop_front()
        {
            self.ground.give_back(oldest)?;
        }
        Ok(())
    }

    /// Bytes in use.
    pub fn live_bytes(&self) -> u64 {
        (self.hot.words().len() * WORD + self.kept.len() * RECORD_BYTES) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ptr::NonNull;

    use parking_lot::Mutex;

    use super::super::ground::Changes;
    use super::*;

    /// Objects in a map, without heap, log and order.
    #[derive(Default)]
    struct Plain(Mutex<BTreeMap<Place, Vec<u8>>>, Mutex<u64>);

    impl Ground for Plain {
        fn transact(
            &self,
            make: &mut dyn FnMut(&mut dyn Changes) -> Result<(), WorkError>,
        ) -> Result<(), WorkError> {
            make(&mut &*self)
        }

        fn read(&self, place: Place, bytes: &mut [u8]) -> Result<(), WorkError> {
            let objects = self.0.lock();
            let (object, held) = objects.range(..=place).next_back().unwrap();
            let from = (place - object) as usize;
            bytes.copy_from_slice(&held[from..from + bytes.len()]);
            Ok(())
        }

        fn address(&self, place: Place) -> u64 {
            place
        }

        fn capacity(&self, bytes: usize) -> Result<Block<'_>, WorkError> {
            let leaked = Box::leak(vec![0u64; bytes / 8].into_boxed_slice());
            // SAFETY: the memory is leaked, so it exists for ever, and nobody else has its address.
            Ok(unsafe { Block::of(NonNull::from(leaked).cast(), bytes) })
        }

        fn give_back(&self, block: Block<'_>) -> Result<(), WorkError> {
            block.leave();
            Ok(())
        }
    }

    impl Changes for &Plain {
        fn alloc(&mut self, bytes: usize) -> Result<Place, WorkError> {
            let mut end = self.1.lock();
            let place = *end + 64;
            *end = place + bytes as u64;
            self.0.lock().insert(place, vec![0; bytes]);
            Ok(place)
        }

        fn free(&mut self, place: Place) -> Result<(), WorkError> {
            assert!(self.0.lock().remove(&place).is_some(), "freed twice: {place}");
            Ok(())
        }

        fn word(&mut self, object: Place, at: usize, value: u64) -> Result<(), WorkError> {
            let mut objects = self.0.lock();
            let (begin, held) = objects.range_mut(..=object).next_back().unwrap();
            let from = (object - begin) as usize;
            held[from + at..from + at + 8].copy_from_slice(&value.to_le_bytes());
            Ok(())
        }

        fn bytes(&mut self, place: Place, bytes: &[u8]) -> Result<(), WorkError> {
            let mut objects = self.0.lock();
            let (begin, held) = objects.range_mut(..=place).next_back().unwrap();
            let from = (place - begin) as usize;
            held[from..from + bytes.len()].copy_from_slice(bytes);
            Ok(())
        }
    }

    #[test]
    fn the_table_holds_what_was_put_in_and_frees_what_was_taken_out() {
        for (seed, mix) in [(1, HASH_OPERATIONS), (2, MIXED)] {
            let ground = Plain::default();
            let mut work = HashWork::new(&ground, Watch(None), mix, 100, seed).unwrap();
            (0..600).for_each(|_| work.step().unwrap());
            let (live, keys) = (work.live.clone(), work.live.len());
            assert!(keys > 50, "seed {seed}: {keys} keys");
            for (key, _) in live {
                work.find(key).unwrap();
            }
            let objects = ground.0.lock();
            assert_eq!(objects.len(), keys + work.groups.len(), "seed {seed}");
            let bytes: u64 = objects.values().map(|object| object.len() as u64).sum();
            assert_eq!(bytes, work.live_bytes() + work.groups.len() as u64 * 64, "seed {seed}");
        }
    }

    #[test]
    fn a_lost_key_is_noticed() {
        let ground = Plain::default();
        let mut work = HashWork::new(&ground, Watch(None), HASH_OPERATIONS, 100, 7).unwrap();
        work.step().unwrap();
        let (group, at) = work.slot(work.live[0].0);
        let change = &mut |changes: &mut dyn Changes| changes.word(group, at, 0);
        ground.transact(change).unwrap();
        let lost = (0..20).find_map(|_| work.step().err());
        assert!(matches!(lost, Some(WorkError::Lost { seed: 7, .. })), "{lost:?}");
    }

    #[test]
    fn capacity_work_keeps_no_more_than_it_may() {
        let ground = Plain::default();
        let mut work = CapacityWork::new(&ground, Watch(None), 1 << 10, 10 << 10, 3).unwrap();
        (0..500).for_each(|_| work.step().unwrap());
        assert_eq!(work.live_bytes(), 11 << 10);
        let counted: u64 = work.hot.words().iter().map(|word| word.load(Relaxed)).sum();
        assert_eq!(counted, 500 * COUNTED as u64);
    }
}
