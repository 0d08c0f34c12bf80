//! Eviction: a full store goes on taking writes, the right keys go, and a kill in the middle leaves
//! each key whole or absent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::harness::*;
use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::Region;
use perdura_store::{
    Access, Changed, End, Eviction, EvictionPolicy, Expiry, Key, Listener, Store, StoreError,
};
use rand::Rng;

const BUDGET_BYTES: u64 = 1 << 20;

fn evicting(policy: EvictionPolicy) -> (Store, Arc<SimClock>, SimDevice) {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000_000)));
    let store = open(&device, &clock, BUDGET_BYTES);
    store.set_eviction(Eviction { policy, ..Eviction::default() });
    (store, clock, device)
}

fn put(store: &Store, name: u32, len: usize, expiry: Expiry) -> Result<(), StoreError> {
    let bytes = name.to_be_bytes();
    let key = Key::new(&bytes);
    store.run(Access::Key(key), |tx| tx.put(key, &vec![name as u8; len], expiry))
}

fn has(store: &Store, name: u32) -> bool {
    store.look(Key::new(&name.to_be_bytes()), |entry| entry.is_some())
}

#[test]
fn keys_not_used_for_long_go_first() {
    let (store, clock, _device) = evicting(EvictionPolicy::AllLeastRecent);
    (0..10_000).for_each(|name| put(&store, name, 1000, Expiry::None).unwrap());
    assert_eq!(store.evicted_keys(), 0);
    // Half of the keys are used, while twice as much is written as there was.
    for second in 1..=20 {
        clock.advance_ns(1_000_000_000);
        store.keep_time();
        (0..5000u32).for_each(|name| {
            let _ = store.get(Key::new(&name.to_be_bytes()));
        });
        let new = 10_000 + second * 1000..11_000 + second * 1000;
        new.for_each(|name| put(&store, name, 1000, Expiry::None).unwrap());
    }
    let (used, idle) = (0..10_000).partition::<Vec<u32>, _>(|name| *name < 5000);
    let left = |names: &[u32]| names.iter().filter(|name| has(&store, **name)).count();
    let (used, idle) = (left(&used), left(&idle));
    assert!(store.evicted_keys() > 0, "the memory holds all");
    assert!(used > 4900 && idle < 4000, "{used} of the used and {idle} of the idle keys are left");
}

#[test]
fn keys_used_seldom_go_first() {
    let (store, clock, _device) = evicting(EvictionPolicy::AllLeastFrequent);
    (0..15_000).for_each(|name| put(&store, name, 1000, Expiry::None).unwrap());
    for _ in 0..100 {
        (0..5000u32).for_each(|name| {
            let _ = store.get(Key::new(&name.to_be_bytes()));
        });
    }
    // All are idle for as long; only how often they were used tells them apart.
    clock.advance_ns(1_000_000_000);
    store.keep_time();
    (20_000..60_000).for_each(|name| put(&store, name, 1000, Expiry::None).unwrap());
    let used = (0..5000).filter(|name| has(&store, *name)).count();
    let seldom = (5000..10_000).filter(|name| has(&store, *name)).count();
    assert!(used > 4800 && seldom < 1500, "{used} of the used and {seldom} of the others are left");
}

#[test]
fn only_keys_that_expire_go_and_the_soonest_first() {
    let (store, _clock, _device) = evicting(EvictionPolicy::ExpiringSoonest);
    (0..5000).for_each(|name| put(&store, name, 1000, Expiry::None).unwrap());
    for name in 5000..40_000 {
        let at_ms = 10_000_000_000 + u64::from(name);
        put(&store, name, 1000, Expiry::AtMs(at_ms)).unwrap();
    }
    assert!((0..5000).all(|name| has(&store, name)));
    let early = (5000..15_000).filter(|name| has(&store, *name)).count();
    let late = (30_000..40_000).filter(|name| has(&store, *name)).count();
    assert!(early * 5 < late && late > 9000, "{early} early and {late} late keys are left");
    // When no key that expires is left, memory is used up.
    let refused = (50_000..80_000).find_map(|name| put(&store, name, 1000, Expiry::None).err());
    assert!(matches!(refused, Some(StoreError::OutOfMemory { .. })), "{refused:?}");
    assert!((0..5000).all(|name| has(&store, name)));
    assert_eq!(store.keys_with_expiry(0), 0);
}

#[test]
fn without_a_policy_nothing_goes() {
    let (store, ..) = evicting(EvictionPolicy::None);
    let refused = (0..50_000).find_map(|name| put(&store, name, 1000, Expiry::None).err());
    assert!(matches!(refused, Some(StoreError::OutOfMemory { .. })), "{refused:?}");
    assert_eq!(store.evicted_keys(), 0);
    let left = store.len(0);
    store.set_eviction(Eviction { policy: EvictionPolicy::AllRandom, ..Eviction::default() });
    assert_eq!(store.evict_some(10).unwrap(), 10);
    assert_eq!(store.len(0), left - 10);
}

#[test]
fn nothing_goes_while_the_shard_has_a_deleted_value_to_free() {
    let (store, ..) = evicting(EvictionPolicy::None);
    let (key, value) = (Key::new(b"hash"), [7; 1000]);
    (0..5_000).for_each(|name| put(&store, name, 1000, Expiry::None).unwrap());
    let set = |n: u32| {
        store.run(Access::Key(key), |tx| tx.hash_set(key, &n.to_be_bytes(), &value)).is_ok()
    };
    let fields = (0..).find(|n| !set(*n)).unwrap();
    assert!(fields > 5_000 && store.delete(key).unwrap());
    store.set_eviction(Eviction { policy: EvictionPolicy::AllRandom, ..Eviction::default() });
    assert!((0..fields / 10 * 9).all(set));
    assert_eq!((store.evicted_keys(), store.len(0)), (0, 5_001));
}

/// Otherwise a server would take memory for full, because another thread let the same key go.
#[test]
fn that_none_has_gone_says_that_no_key_may_go_also_to_many_threads() {
    let (store, ..) = evicting(EvictionPolicy::ExpiringSoonest);
    for round in 1..=500 {
        for name in 0..4 {
            put(&store, name, 10, Expiry::AtMs(10_000_000_000 + u64::from(name))).unwrap();
        }
        let evict = || {
            while store.evict_some(1).unwrap() > 0 {}
            assert_eq!(store.len(0), 0, "round {round}");
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(evict))));
        assert_eq!(store.evicted_keys(), 4 * round);
    }
}

/// The keys that were removed.
#[derive(Debug, Default)]
struct Gone(Mutex<Vec<Vec<u8>>>);

impl Listener for Gone {
    fn changed(&self, keys: &[Changed], _has_emptied: bool) {
        let removed = keys.iter().filter(|changed| changed.is_removal);
        self.0.lock().unwrap().extend(removed.map(|changed| changed.key.to_vec()));
    }
}

/// Values of all sizes and kinds replace each other, and what is left is what was written.
#[test]
fn values_of_other_sizes_find_room() {
    for (seed, policy) in (1..).zip(EvictionPolicy::ALL.into_iter().skip(1)) {
        let (store, clock, _device) = evicting(policy);
        let gone = Arc::new(Gone::default());
        store.listen(Some(gone.clone()));
        let mut random = seeded(seed);
        let mut model: BTreeMap<Vec<u8>, (u8, usize)> = BTreeMap::new();
        let sizes = [10usize, 200, 3000, 50_000, 700];
        for (name, size) in (0..sizes.len() as u32 * 400).map(|n| (n, sizes[n as usize / 400])) {
            let (bytes, len) = (name.to_be_bytes(), size * random.random_range(1..=20) / 10);
            let key = Key::new(&bytes);
            let what = format!("seed {seed}, {policy:?}, key {name} of {len} bytes");
            let at_ms = 10_000_000_000 + random.random_range(0..1_000_000);
            let done = if name % 7 == 3 {
                store.run(Access::Key(key), |tx| {
                    let element = [name as u8; 500];
                    let elements = std::iter::repeat_n(&element[..], len.div_ceil(500));
                    tx.list_push(key, End::Back, elements)?;
                    tx.set_expiry(key, Some(at_ms)).map(drop)
                })
            } else {
                put(&store, name, len, Expiry::AtMs(at_ms))
            };
            done.unwrap_or_else(|error| panic!("{what}: {error}"));
            if name % 100 == 0 {
                clock.advance_ns(1_000_000_000);
                store.keep_time();
            }
            model.insert(bytes.to_vec(), (name as u8, len));
            for key in gone.0.lock().unwrap().drain(..) {
                assert!(model.remove(&key).is_some(), "{what}: {key:?} went twice");
            }
            assert!(model.contains_key(&bytes[..]), "{what}: the key itself has gone");
        }
        assert_eq!(store.len(0), model.len() as u64, "{policy:?}");
        assert!(model.keys().all(|key| store.look(Key::new(key), |entry| entry.is_some())));
        assert!(store.evicted_keys() > 100, "{policy:?}: only {}", store.evicted_keys());
    }
}

/// The process dies at each step of writes that evict: every key is as it was or gone, and the
/// written one is whole or absent.
#[test]
fn a_kill_in_the_middle_leaves_every_key_whole_or_absent() {
    for fuse in (1..120).step_by(3).chain((120..600).step_by(47)) {
        let (store, clock, device) = evicting(EvictionPolicy::AllLeastRecent);
        (0..260).for_each(|name| put(&store, name, 80_000, Expiry::None).unwrap());
        store.heap().kill_after(fuse);
        let outcomes: Vec<_> =
            (300..304).map(|name| put(&store, name, 80_000, Expiry::None)).collect();
        let (memory, ledger) = store.region().fds();
        let fds = (memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap());
        drop(store);
        let device = Arc::new(device.clone());
        let region =
            Region::attach(fds.0, fds.1, device, clock.clone(), config(BUDGET_BYTES)).unwrap();
        let store = store_on(region, &clock);
        for name in (0..260u32).chain(300..304) {
            let found = store.get(Key::new(&name.to_be_bytes()));
            let is_whole = found.as_ref().is_none_or(|value| *value == vec![name as u8; 80_000]);
            assert!(is_whole, "fuse {fuse}: key {name} is torn");
            let acknowledged = name >= 300 && outcomes[name as usize - 300].is_ok();
            assert!(found.is_some() || !acknowledged, "fuse {fuse}: key {name} is lost");
        }
        store.set_eviction(Eviction { policy: EvictionPolicy::AllRandom, ..Eviction::default() });
        (400..410).for_each(|name| put(&store, name, 80_000, Expiry::None).unwrap());
    }
}

/// Otherwise keys would go, or writes would fail, while most of the memory is free.
#[test]
fn memory_that_is_free_in_slots_of_one_size_serves_another() {
    for policy in [EvictionPolicy::None, EvictionPolicy::AllLeastRecent] {
        let (store, ..) = evicting(policy);
        (0..20_000).for_each(|name| put(&store, name, 1000, Expiry::None).unwrap());
        for name in (0..20_000u32).filter(|name| name % 5 != 0) {
            assert!(store.delete(Key::new(&name.to_be_bytes())).unwrap());
        }
        // 4,000 values of 1,000 bytes are left in memory of 24 MB, in runs of which no one is
        // empty.
        for name in 100_000..200_000 {
            let done = put(&store, name, 80, Expiry::None);
            done.unwrap_or_else(|error| panic!("{policy:?}, after {}: {error}", name - 100_000));
        }
        // A few go before the first look at how much is free.
        assert!(store.evicted_keys() < 50, "{policy:?}: {} have gone", store.evicted_keys());
        assert!(store.len(0) > 103_950, "{policy:?}");
        for name in (0..20_000u32).step_by(5) {
            let value = store.get(Key::new(&name.to_be_bytes()));
            let is_whole = value.is_none_or(|value| value == vec![name as u8; 1000]);
            assert!(is_whole, "{policy:?}, key {name}");
        }
    }
}
