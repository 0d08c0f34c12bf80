//! A persistent memory as strict as the architecture allows: it has what was flushed and fenced,
//! and of the rest whatever lines the caches happened to evict.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ThreadId;

use perdura_heap::Tap;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const LINE: usize = 64;

/// The heap's stores, flushes and fences, and the memory that a loss of power would leave.
pub struct Medium {
    state: Mutex<State>,
}

struct State {
    /// The bytes that all processors see.
    cache: Vec<u8>,
    /// The durable bytes.
    medium: Vec<u8>,
    /// For each line, the event of the last flush that the medium has.
    durable_at: Vec<u64>,
    /// For each line, whether cache and medium differ, or may differ.
    dirty: Vec<bool>,
    /// For each thread, the lines that its next fence makes durable: line, event of the flush, and
    /// bytes.
    flushing: HashMap<ThreadId, Vec<(usize, u64, [u8; LINE])>>,
    events: u64,
    /// When the power is to be lost, and which lines are evicted then.
    loss: Option<(u64, Random)>,
    /// Further losses follow, this many at most, so many events apart at most.
    further: (usize, u64),
    images: Vec<Image>,
    /// How many operations each thread has had acknowledged.
    acknowledged: Vec<Arc<AtomicU64>>,
}

/// The result of a loss of power.
pub struct Image {
    pub bytes: Vec<u8>,
    /// How many operations had been acknowledged to each thread before.
    pub acknowledged: Vec<u64>,
}

impl Medium {
    pub fn new(len_bytes: u64) -> Self {
        Self::of(vec![0; len_bytes as usize], vec![0; len_bytes as usize])
    }

    /// A medium whose caches differ from its durable bytes.
    pub fn of(cache: Vec<u8>, medium: Vec<u8>) -> Self {
        let lines = cache.len() / LINE;
        let pairs = cache.chunks_exact(LINE).zip(medium.chunks_exact(LINE));
        let dirty = pairs.map(|(cache, medium)| cache != medium).collect();
        Self {
            state: Mutex::new(State {
                cache,
                medium,
                durable_at: vec![0; lines],
                dirty,
                flushing: HashMap::new(),
                events: 0,
                loss: None,
                further: (0, 0),
                images: Vec::new(),
                acknowledged: Vec::new(),
            }),
        }
    }

    /// Loses the power, for whoever asks for the image, that many events from now.
    pub fn lose_after(&self, events: u64, seed: u64) {
        let mut state = self.state();
        state.loss = Some((state.events + events, Random::seed_from_u64(seed)));
    }

    /// Loses it again and again, so often and so many events apart at most.
    pub fn lose_often(&self, times: usize, events: u64, seed: u64) {
        self.lose_after(events, seed);
        self.state().further = (times, events);
    }

    /// The results of the losses so far.
    pub fn take_images(&self) -> Vec<Image> {
        std::mem::take(&mut self.state().images)
    }

    /// Notes these counts of acknowledged operations whenever the power is lost.
    pub fn watch(&self, acknowledged: &[Arc<AtomicU64>]) {
        self.state().acknowledged = acknowledged.to_vec();
    }

    /// The result of the planned loss if it has come, and otherwise of a loss now. Says whether it
    /// has come.
    pub fn take_image(&self) -> (Image, bool) {
        let mut state = self.state();
        if let Some(image) = state.images.pop() {
            return (image, true);
        }
        let mut random = state.loss.take().map_or_else(|| Random::seed_from_u64(0), |loss| loss.1);
        (state.lose(&mut random), false)
    }

    /// The memory of a process that is killed now, which has all of its stores.
    pub fn cache(&self) -> Vec<u8> {
        self.state().cache.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    fn line(&self, line: usize) -> [u8; LINE] {
        self.cache[line * LINE..][..LINE].try_into().unwrap()
    }

    fn lose(&self, random: &mut Random) -> Image {
        // First: what is acknowledged from here on need not be there.
        let acknowledged = self.acknowledged.iter().map(|count| count.load(SeqCst)).collect();
        let mut image = self.medium.clone();
        let evicts: u32 = random.random_range(0..=4);
        for (line, _) in self.dirty.iter().enumerate().filter(|(_, dirty)| **dirty) {
            if random.random_range(0..4) < evicts {
                image[line * LINE..][..LINE].copy_from_slice(&self.line(line));
            }
        }
        Image { bytes: image, acknowledged }
    }

    fn count(&mut self) {
        self.events += 1;
        if self.loss.as_ref().is_some_and(|(at, _)| *at <= self.events)
            && let Some((_, mut random)) = self.loss.take()
        {
            let image = self.lose(&mut random);
            self.images.push(image);
            if self.further.0 > 0 {
                self.further.0 -= 1;
                self.loss = Some((self.events + random.random_range(1..=self.further.1), random));
            }
        }
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        let at = offset as usize;
        self.cache[at..at + bytes.len()].copy_from_slice(bytes);
        self.dirty[at / LINE..(at + bytes.len()).div_ceil(LINE)].fill(true);
    }

    fn flush(&mut self, line: usize) {
        let flushed = (line, self.events, self.line(line));
        self.flushing.entry(std::thread::current().id()).or_default().push(flushed);
    }
}

impl Tap for Medium {
    fn store(&self, offset: u64, bytes: &[u8]) {
        let mut state = self.state();
        state.count();
        state.store(offset, bytes);
    }

    fn flush(&self, line_offset: u64) {
        let mut state = self.state();
        state.count();
        state.flush(line_offset as usize / LINE);
    }

    fn stream(&self, offset: u64, bytes: &[u8]) {
        let mut state = self.state();
        state.count();
        state.store(offset, bytes);
        let at = offset as usize;
        (at / LINE..(at + bytes.len()).div_ceil(LINE)).for_each(|line| state.flush(line));
    }

    fn fence(&self) {
        let mut state = self.state();
        state.count();
        let flushed = state.flushing.remove(&std::thread::current().id()).unwrap_or_default();
        for (line, at, bytes) in flushed {
            // Another thread may have made a later state of the line durable.
            if state.durable_at[line] <= at {
                state.durable_at[line] = at;
                state.medium[line * LINE..][..LINE].copy_from_slice(&bytes);
                if bytes == state.line(line) {
                    state.dirty[line] = false;
                }
            }
        }
    }

    fn empty(&self, offset: u64, len: u64) {
        let mut state = self.state();
        state.count();
        state.store(offset, &vec![0; len as usize]);
    }
}
