//! A tier against a map of what was written last, with syncs and fetches that take their time.

use std::collections::HashMap;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

const KEYS: u64 = 300;

fn settings(devices: u16, primaries: u16) -> Settings {
    Settings {
        devices,
        primaries,
        behind_max: 3,
        capacity: Capacity { cache_bytes: 20_000, buffer_bytes: 10_000 },
        prefetch: Prefetch::Used,
    }
}

/// What has been asked for and is not done yet.
#[derive(Default)]
struct UnderWay {
    syncs: Vec<Synced>,
    fetches: Vec<(DeviceId, DeviceId, Vec<Fetched>)>,
}

struct World {
    tier: Tier,
    /// The length of each value, by which it is told from others of its key.
    written: HashMap<Key, u32>,
    under_way: UnderWay,
    random: Xoshiro256PlusPlus,
}

impl World {
    fn new(seed: u64, settings: Settings) -> Self {
        let (tier, under_way) = (Tier::new(settings), UnderWay::default());
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut world = Self { tier, written: HashMap::new(), under_way, random };
        for key in 0..KEYS / 2 {
            world.tier.load(key, 100);
            world.written.insert(key, 100);
        }
        world
    }

    /// A key: a few are used far more often.
    fn key(&mut self) -> Key {
        let most = if self.random.random_bool(0.7) { KEYS / 20 } else { KEYS };
        self.random.random_range(0..most)
    }

    fn step(&mut self) {
        match self.random.random_range(0..10) {
            0..4 => self.write(),
            4..8 => self.read(),
            8 => self.end_sync(),
            _ => self.end_fetch(),
        }
        self.check();
    }

    fn write(&mut self) {
        let (key, len_bytes) = (self.key(), self.random.random_range(50..300));
        let request = Request { key, write_bytes: Some(len_bytes) };
        match self.tier.serve(request) {
            Served::Full(primary) => {
                self.sync(primary);
                assert!(!self.under_way.syncs.is_empty(), "a full buffer without a sync");
            }
            Served::Local { device, .. } => {
                assert_eq!(device, self.tier.home(key));
                self.written.insert(key, len_bytes);
            }
            Served::Front { primary, .. } => {
                assert_eq!(self.tier.primary_of(self.tier.home(key)), Some(primary));
                self.written.insert(key, len_bytes);
                self.sync(primary);
            }
            other => panic!("a write was served as {other:?}"),
        }
    }

    fn sync(&mut self, primary: DeviceId) {
        let due = self.tier.due_syncs(primary);
        self.under_way.syncs.extend(due);
    }

    fn read(&mut self) {
        let key = self.key();
        let found = match self.tier.serve(Request { key, write_bytes: None }) {
            Served::Nowhere(home) => {
                assert_eq!(home, self.tier.home(key));
                None
            }
            Served::Local { len_bytes, .. } | Served::Front { len_bytes, .. } => Some(len_bytes),
            Served::Idle { device, primary, len_bytes, fetch } => {
                assert_eq!(device, self.tier.home(key));
                let fetched_bytes: u32 = fetch.iter().map(|entry| entry.len_bytes).sum();
                assert!(fetched_bytes <= 1_000, "more than a twentieth of the cache");
                self.under_way.fetches.push((device, primary, fetch));
                Some(len_bytes)
            }
            Served::Full(_) => panic!("a read that waits"),
        };
        assert_eq!(found, self.written.get(&key).copied(), "key {key}");
    }

    fn end_sync(&mut self) {
        if !self.under_way.syncs.is_empty() {
            let at = self.random.random_range(0..self.under_way.syncs.len());
            let synced = self.under_way.syncs.swap_remove(at);
            self.tier.synced(&synced);
        }
    }

    fn end_fetch(&mut self) {
        if !self.under_way.fetches.is_empty() {
            let at = self.random.random_range(0..self.under_way.fetches.len());
            let (device, primary, entries) = self.under_way.fetches.swap_remove(at);
            self.tier.fetched(device, primary, &entries);
        }
    }

    fn set_primaries(&mut self, primaries: u16) {
        while !self.under_way.syncs.is_empty() {
            self.end_sync();
        }
        for synced in self.tier.syncs_before(primaries) {
            self.tier.synced(&synced);
        }
        self.tier.set_primaries(primaries);
        assert_eq!(self.tier.primaries(), primaries);
    }

    fn check(&self) {
        assert_eq!(self.tier.len(), self.written.len());
        self.tier.fronts.iter().flatten().for_each(Front::check);
        // Each entry of an idle device can be fetched, or is in its front or on its way there, or
        // the device has not been told yet that it was evicted.
        for (number, device) in self.tier.devices.iter().enumerate() {
            let Some(primary) = device.primary else { continue };
            let front = self.tier.fronts[usize::from(primary.0)].as_ref().unwrap();
            let id = DeviceId(number as u16);
            for key in device.tree.keys() {
                let places = [
                    device.hot.hotness(*key).is_some(),
                    front.has(id, *key),
                    front.is_evicted(id, *key),
                ];
                let count = places.iter().filter(|is_there| **is_there).count();
                assert!(count == 1, "key {key} of {id:?}: {places:?}");
            }
        }
    }
}

#[test]
fn every_read_finds_what_was_written_last_whatever_is_under_way() {
    for seed in 0..30 {
        for (devices, primaries) in [(4, 1), (4, 3), (8, 2), (1, 1)] {
            let mut world = World::new(seed, settings(devices, primaries));
            (0..1_500).for_each(|_| world.step());
        }
    }
}

#[test]
fn nothing_is_lost_when_the_number_of_primaries_changes() {
    for seed in 0..20 {
        let mut world = World::new(seed, settings(4, 1));
        for _ in 0..12 {
            (0..200).for_each(|_| world.step());
            // Fetches under way end after the change.
            let primaries = world.random.random_range(1..=4);
            world.set_primaries(primaries);
        }
    }
}

/// Two devices, of which the second sleeps, and the keys that lie there.
fn small(cache_bytes: u64, buffer_bytes: u64) -> (Tier, impl Iterator<Item = Key>) {
    let capacity = Capacity { cache_bytes, buffer_bytes };
    let tier = Tier::new(Settings { devices: 2, primaries: 1, capacity, ..settings(2, 1) });
    let keys: Vec<_> = (0..1_000).filter(|key| tier.home(*key) == IDLE).collect();
    (tier, keys.into_iter())
}

const PRIMARY: DeviceId = DeviceId(0);
const IDLE: DeviceId = DeviceId(1);

fn write(tier: &mut Tier, key: Key, len_bytes: u32) {
    let served = tier.serve(Request { key, write_bytes: Some(len_bytes) });
    assert_eq!(served, Served::Front { primary: PRIMARY, len_bytes });
}

/// Reads from the idle device. Returns what is to be fetched.
fn miss(tier: &mut Tier, key: Key) -> Vec<Fetched> {
    match tier.serve(Request { key, write_bytes: None }) {
        Served::Idle { fetch, .. } => fetch,
        other => panic!("{key} was served as {other:?}"),
    }
}

fn is_in_front(tier: &mut Tier, key: Key) -> bool {
    matches!(tier.serve(Request { key, write_bytes: None }), Served::Front { .. })
}

fn sync(tier: &mut Tier) {
    for synced in tier.syncs(PRIMARY) {
        tier.synced(&synced);
    }
}

#[test]
fn a_sync_is_due_when_the_buffer_is_full_by_four_fifths() {
    let (mut tier, mut keys) = small(20_000, 1_000);
    write(&mut tier, keys.next().unwrap(), 799);
    assert!(tier.due_syncs(PRIMARY).is_empty());
    write(&mut tier, keys.next().unwrap(), 1);
    assert_eq!(tier.due_syncs(PRIMARY).len(), 1);
    assert!(tier.due_syncs(PRIMARY).is_empty(), "it is under way");
}

#[test]
fn a_fetch_that_was_overtaken_by_a_write_and_another_fetch_brings_nothing() {
    // Room in the cache for one entry of 100 B, and for fetches of as much.
    let (mut tier, mut keys) = small(2_000, 10_000);
    let (key, other) = (keys.next().unwrap(), keys.next().unwrap());
    tier.load(key, 100);
    let late = miss(&mut tier, key);
    assert_eq!(late.len(), 1);
    write(&mut tier, key, 90);
    sync(&mut tier);
    // Colder entries than this one fill the cache, and it goes when they are synced.
    write(&mut tier, other, 2_000);
    (0..9).for_each(|_| assert!(is_in_front(&mut tier, other)));
    sync(&mut tier);
    assert!(tier.used_bytes(PRIMARY).1 <= 2_000);
    write(&mut tier, other, 10);
    let again = miss(&mut tier, key);
    assert_eq!(again.iter().map(|it| it.len_bytes).collect::<Vec<_>>(), [90]);
    tier.fetched(IDLE, PRIMARY, &late);
    assert!(!is_in_front(&mut tier, key), "what the late fetch brings is older");
    tier.fetched(IDLE, PRIMARY, &again);
    assert_eq!(
        tier.serve(Request { key, write_bytes: None }),
        Served::Front { primary: PRIMARY, len_bytes: 90 }
    );
}

#[test]
fn what_is_as_hot_as_the_cache_s_coldest_is_not_fetched_and_what_is_hotter_takes_its_place() {
    let (mut tier, mut keys) = small(100, 10_000);
    let (cached, wanted) = (keys.next().unwrap(), keys.next().unwrap());
    tier.load(wanted, 5);
    write(&mut tier, cached, 100);
    sync(&mut tier);
    // Both were used once.
    assert_eq!(miss(&mut tier, wanted), []);
    let fetch = miss(&mut tier, wanted);
    assert_eq!(fetch.len(), 1, "used twice, it is hotter");
    tier.fetched(IDLE, PRIMARY, &fetch);
    assert!(is_in_front(&mut tier, wanted) && !is_in_front(&mut tier, cached));
}

#[test]
fn a_device_is_told_at_its_next_use_how_often_an_evicted_entry_was_used() {
    let (mut tier, mut keys) = small(100, 10_000);
    let (evicted, other) = (keys.next().unwrap(), keys.next().unwrap());
    write(&mut tier, evicted, 100);
    (0..6).for_each(|_| assert!(is_in_front(&mut tier, evicted)));
    sync(&mut tier);
    write(&mut tier, other, 100);
    (0..20).for_each(|_| assert!(is_in_front(&mut tier, other)));
    sync(&mut tier);
    let own = |tier: &Tier| tier.devices[1].tree[&evicted].hotness;
    assert_eq!(own(&tier), 7, "a sync uses the device, too");
    assert_eq!(tier.devices[1].hot.hotness(evicted), Some(7));
}

#[test]
fn room_in_the_cache_is_filled_with_what_was_never_used_only_where_that_is_wanted() {
    let capacity = Capacity { cache_bytes: 2_000, buffer_bytes: 10_000 };
    for (prefetch, expected) in [(Prefetch::Off, 0), (Prefetch::Used, 1), (Prefetch::All, 2)] {
        let shape = Settings { devices: 2, primaries: 1, capacity, prefetch, ..settings(2, 1) };
        let mut tier = Tier::new(shape);
        let keys: Vec<_> = (0..1_000).filter(|key| tier.home(*key) == IDLE).take(40).collect();
        keys.iter().for_each(|key| tier.load(*key, 50));
        // A twentieth of the cache has room for two, of which one was never used.
        let fetch = miss(&mut tier, keys[0]);
        assert_eq!(fetch.len(), expected, "{prefetch:?}");
        if prefetch == Prefetch::All {
            tier.fetched(IDLE, PRIMARY, &fetch);
            for key in &keys {
                let served = tier.serve(Request { key: *key, write_bytes: None });
                if let Served::Idle { fetch, .. } = served {
                    tier.fetched(IDLE, PRIMARY, &fetch);
                }
            }
            assert!(keys.iter().all(|key| is_in_front(&mut tier, *key)), "all have room");
        }
    }
}
