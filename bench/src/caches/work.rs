//! The work that is measured: a hash table in persistent memory ("NVMPersist"), and beside it work on capacity memory
//! ("NVMCap") that shares the cache with it.
//!
//! Every load the work makes is told to the recorder here; stores of the persistent kind are told by what the table
//! stands on, which also knows its own stores for logs and for what is allocated.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::ground::{Changes, Ground, Place, Watch, WorkError};
use super::model::Owner;
use super::sys::Block;

const WORD: usize = 8;
/// Of a node: next, key, length of the value.
const HEAD: usize = 3 * WORD;
/// Lengths of values and of how many in 20 nodes: 16 B to 1 KiB, small ones more often.
const VALUES: [(usize, u32); 6] = [(16, 5), (40, 6), (104, 4), (232, 3), (488, 1), (1000, 1)];
/// Slots of the table in one piece of memory.
const PIECE_SLOTS: u64 = 4096;
/// Bytes of slots that a log of whole objects takes as one: a line.
const GROUP_BYTES: usize = 64;

/// What a hash operation does, of 100.
#[derive(Debug, Clone, Copy)]
pub struct Mix {
    /// Puts a new key in.
    pub inserts: u32,
    /// Changes one word of a value.
    pub updates: u32,
    /// Takes a key out; the rest are look-ups.
    pub deletes: u32,
}

/// The paper's: insert, look up, delete.
pub const HASH_OPERATIONS: Mix = Mix { inserts: 50, updates: 0, deletes: 20 };
/// Large contiguous changes and small scattered ones, for logs.
pub const MIXED: Mix = Mix { inserts: 40, updates: 40, deletes: 20 };

/// A chained hash table in persistent memory.
pub struct HashWork<'g, G: Ground> {
    ground: &'g G,
    watch: Watch<'g>,
    pieces: Vec<Place>,
    mix: Mix,
    random: Random,
    seed: u64,
    keys: u64,
    /// What the table must hold: keys and the word of their value that updates change.
    live: Vec<(u64, u64)>,
    changed_bytes: u64,
    live_bytes: u64,
}

/// Where a key was found.
struct Found {
    /// The object whose word points to the node, its bytes, and the word's place in it.
    link: (Place, usize, usize),
    node: Place,
    next: u64,
    value_bytes: usize,
}

impl<'g, G: Ground> HashWork<'g, G> {
    /// An empty table for about so many nodes.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new(
        ground: &'g G,
        watch: Watch<'g>,
        mix: Mix,
        nodes: u64,
        seed: u64,
    ) -> Result<Self, WorkError> {
        let count = nodes.div_ceil(PIECE_SLOTS).next_power_of_two();
        let mut pieces = Vec::new();
        let empty = vec![0; PIECE_SLOTS as usize * WORD];
        for _ in 0..count {
            ground.transact(&mut |changes| {
                let piece = changes.alloc(empty.len())?;
                changes.object(piece, &empty)?;
                pieces.push(piece);
                Ok(())
            })?;
        }
        let random = Random::seed_from_u64(seed);
        Ok(Self {
            ground,
            watch,
            pieces,
            mix,
            random,
            seed,
            keys: 0,
            live: Vec::new(),
            changed_bytes: 0,
            live_bytes: 0,
        })
    }

    /// One operation.
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

    /// Bytes that transactions changed so far: objects written, and words.
    pub fn changed_bytes(&self) -> u64 {
        self.changed_bytes
    }

    /// Bytes of the nodes that are in the table.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    fn insert(&mut self) -> Result<(), WorkError> {
        self.keys += 1;
        let key = scramble(self.keys ^ self.seed << 40);
        let (group, at) = self.slot(key);
        let next = self.load(group, at, WORD)?;
        let value_bytes = value_bytes(key);
        let mut node = Vec::with_capacity(HEAD + value_bytes);
        [next, key, value_bytes as u64].iter().for_each(|word| node.extend(word.to_le_bytes()));
        (0..value_bytes / WORD)
            .for_each(|word| node.extend(scramble(key + word as u64).to_le_bytes()));
        self.ground.transact(&mut |changes| {
            let place = changes.alloc(node.len())?;
            changes.object(place, &node)?;
            changes.word(group, GROUP_BYTES, at, place)
        })?;
        self.changed_bytes += (node.len() + WORD) as u64;
        self.live_bytes += node.len() as u64;
        self.live.push((key, scramble(key)));
        Ok(())
    }

    fn update(&mut self, which: usize, found: &Found) -> Result<(), WorkError> {
        let value = self.random.random();
        let node_bytes = HEAD + found.value_bytes;
        self.ground.transact(&mut |changes| changes.word(found.node, node_bytes, HEAD, value))?;
        self.changed_bytes += WORD as u64;
        self.live[which].1 = value;
        Ok(())
    }

    fn delete(&mut self, which: usize, found: &Found) -> Result<(), WorkError> {
        let (object, object_bytes, at) = found.link;
        self.ground.transact(&mut |changes| {
            changes.word(object, object_bytes, at, found.next)?;
            changes.free(found.node)
        })?;
        self.changed_bytes += WORD as u64;
        self.live_bytes -= (HEAD + found.value_bytes) as u64;
        self.live.swap_remove(which);
        Ok(())
    }

    fn find(&self, key: u64) -> Result<Found, WorkError> {
        let (group, at) = self.slot(key);
        let mut link = (group, GROUP_BYTES, at);
        let mut node = self.load(group, at, WORD)?;
        while node != 0 {
            let mut head = [0; HEAD];
            self.ground.read(node, &mut head);
            self.watch.load(self.ground.address(node), HEAD, Owner::PersistentData);
            let [next, found, value_bytes] = [0, WORD, 2 * WORD].map(|at| word_at(&head, at));
            let value_bytes = value_bytes as usize;
            if found == key {
                return Ok(Found { link, node, next, value_bytes });
            }
            link = (node, HEAD + value_bytes, 0);
            node = next;
        }
        Err(WorkError::Lost { key, seed: self.seed })
    }

    /// Loads bytes and returns the first word of them.
    fn load(&self, object: Place, at: usize, bytes: usize) -> Result<u64, WorkError> {
        let mut loaded = [0; 1024];
        let Some(loaded) = loaded.get_mut(..bytes) else {
            return Err(WorkError::Lost { key: object, seed: self.seed });
        };
        self.ground.read(object + at as u64, loaded);
        let address = self.ground.address(object) + at as u64;
        self.watch.load(address, bytes, Owner::PersistentData);
        Ok(word_at(loaded, 0))
    }

    /// The group of slots that a key is in, and its slot's place there.
    fn slot(&self, key: u64) -> (Place, usize) {
        let slot = key % (self.pieces.len() as u64 * PIECE_SLOTS);
        let piece = self.pieces[(slot / PIECE_SLOTS) as usize];
        let at = (slot % PIECE_SLOTS) as usize * WORD;
        (piece + (at - at % GROUP_BYTES) as u64, at % GROUP_BYTES)
    }
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; WORD];
    word.copy_from_slice(&bytes[at..at + WORD]);
    u64::from_le_bytes(word)
}

fn value_bytes(key: u64) -> usize {
    let mut rest = (key >> 20) as u32 % 20;
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

/// Bytes of a record that the capacity work emits.
const RECORD_BYTES: usize = 128;
/// Counters that a record changes.
const COUNTED: usize = 4;

/// The map step of a map-reduce, say: emits records into fresh memory, looks back at one, and counts in a table
/// that is used all the time.
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

    /// One step.
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

    /// Bytes that are in use.
    pub fn live_bytes(&self) -> u64 {
        (self.hot.words().len() * WORD + self.kept.len() * RECORD_BYTES) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ptr::NonNull;

    use parking_lot::Mutex;

    use super::*;

    /// Objects in a map: no heap, no log, no order.
    #[derive(Default)]
    struct Plain(Mutex<BTreeMap<Place, Vec<u8>>>, Mutex<u64>);

    impl Ground for Plain {
        fn transact(
            &self,
            make: &mut dyn FnMut(&mut dyn Changes) -> Result<(), WorkError>,
        ) -> Result<(), WorkError> {
            make(&mut &*self)
        }

        fn read(&self, place: Place, bytes: &mut [u8]) {
            let objects = self.0.lock();
            let (object, held) = objects.range(..=place).next_back().unwrap();
            let from = (place - object) as usize;
            bytes.copy_from_slice(&held[from..from + bytes.len()]);
        }

        fn address(&self, place: Place) -> u64 {
            place
        }

        fn capacity(&self, bytes: usize) -> Result<Block<'_>, WorkError> {
            let leaked = Box::leak(vec![0u64; bytes / 8].into_boxed_slice());
            // SAFETY: leaked, so it is there for ever, and nobody else knows it.
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

        fn word(
            &mut self,
            object: Place,
            bytes: usize,
            at: usize,
            value: u64,
        ) -> Result<(), WorkError> {
            let mut objects = self.0.lock();
            let (begin, held) = objects.range_mut(..=object).next_back().unwrap();
            let from = (object - begin) as usize;
            assert!(from + bytes <= held.len(), "the object's length as the log is told it");
            held[from + at..from + at + 8].copy_from_slice(&value.to_le_bytes());
            Ok(())
        }

        fn object(&mut self, object: Place, bytes: &[u8]) -> Result<(), WorkError> {
            self.0.lock().get_mut(&object).unwrap().copy_from_slice(bytes);
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
            assert_eq!(objects.len(), keys + work.pieces.len(), "seed {seed}");
            let bytes: u64 = objects.values().map(|object| object.len() as u64).sum();
            assert_eq!(bytes, work.live_bytes() + PIECE_SLOTS * 8, "seed {seed}");
        }
    }

    #[test]
    fn a_lost_key_is_noticed() {
        let ground = Plain::default();
        let mut work = HashWork::new(&ground, Watch(None), HASH_OPERATIONS, 100, 7).unwrap();
        work.step().unwrap();
        let (group, at) = work.slot(work.live[0].0);
        let change = &mut |changes: &mut dyn Changes| changes.word(group, 64, at, 0);
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
