//! Behaviour at the bounds: values beyond the budget, memory used up, keys too long, growth under a
//! scan.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::harness::*;
use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::Region;
use perdura_store::{
    Access, Damaged, Expiry, Heap, Key, Kind, OpenError, Store, StoreError, StoreOptions,
};

const BUDGET_BYTES: u64 = 256 << 10;

fn fresh(budget_bytes: u64) -> (Store, Arc<SimClock>, SimDevice) {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000_000)));
    (open(&device, &clock, budget_bytes), clock, device)
}

fn patterned(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|index| (index.wrapping_mul(seed | 1) >> 5) as u8).collect()
}

#[test]
fn a_value_many_times_the_budget_is_stored_whole() {
    let (store, clock, device) = fresh(BUDGET_BYTES);
    let (key, small) = (Key::new(b"large"), Key::new(b"small"));
    let value = patterned(4 << 20, 3);
    store.put(key, &value).unwrap();
    assert!(store.get(key).unwrap() == value);
    // Again, with another key in the same transaction, and a rename of it all.
    let second = patterned(3 << 20, 5);
    store
        .run(Access::Keys(&[key, small]), |tx| {
            tx.put(small, b"x", Expiry::None)?;
            tx.put(key, &second, Expiry::None)
        })
        .unwrap();
    let moved = Key { db: 1, bytes: b"moved" };
    assert!(store.run(Access::Keys(&[key, moved]), |tx| tx.rename(key, moved)).unwrap());
    assert_eq!(
        store.run(Access::Key(moved), |tx| tx.append(moved, b"end")).unwrap(),
        (3 << 20) + 3
    );
    assert_eq!(
        store.run(Access::Key(moved), |tx| tx.patch(moved, 5, &value)).unwrap(),
        (4 << 20) + 5
    );
    let expected = [&second[..5], &value].concat();
    assert!(store.get(moved).unwrap() == expected && store.get(key).is_none());
    assert!(store.region().used_bytes_max() <= BUDGET_BYTES);
    store.region().close(1).unwrap();
    drop(store);
    let store = open(&device, &clock, BUDGET_BYTES);
    assert!(store.get(moved).unwrap() == expected);
    store.flush_all().unwrap();
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, fresh(BUDGET_BYTES).0.stats().free_bytes);
}

#[test]
fn a_refused_large_value_leaves_nothing() {
    let (store, ..) = fresh(BUDGET_BYTES);
    let free = store.stats().free_bytes;
    let key = Key::new(b"k");
    let value = patterned(2 << 20, 7);
    let aborted = store.run(Access::Key(key), |tx| {
        tx.put(key, &value, Expiry::None)?;
        tx.abort::<()>("no")
    });
    assert!(matches!(aborted, Err(StoreError::Aborted("no"))));
    assert!(store.get(key).is_none());
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, free);
}

#[test]
fn a_transaction_of_more_than_the_budget_is_stored_or_refused_whole() {
    let (store, ..) = fresh(BUDGET_BYTES);
    let names: Vec<Vec<u8>> = (0..20_000).map(|n: u32| n.to_string().into_bytes()).collect();
    let keys: Vec<Key<'_>> = names.iter().map(|name| Key::new(name)).collect();
    let value = patterned(700, 9);
    // 800 records of 700 B: more than the budget in records, little in index and log.
    let put = |keys: &[Key<'_>]| {
        store.run(Access::Keys(keys), |tx| {
            keys.iter().try_for_each(|key| tx.put(*key, &value, Expiry::None))
        })
    };
    put(&keys[..800]).unwrap();
    assert_eq!(store.len(0), 800);
    let refused = store.run(Access::Keys(&keys), |tx| {
        keys.iter().try_for_each(|key| tx.put(*key, b"", Expiry::None))
    });
    assert!(matches!(refused, Err(StoreError::TransactionTooLarge { .. })), "{refused:?}");
    assert_eq!(store.len(0), 800);
    assert!(names[..800].iter().all(|name| store.get(Key::new(name)).unwrap() == value));
    assert!(store.region().used_bytes_max() <= BUDGET_BYTES);
}

#[test]
fn memory_used_up_is_an_error_and_comes_back() {
    let (store, ..) = fresh(1 << 20);
    let value = patterned(50_000, 11);
    let mut stored = 0u32;
    let refused = loop {
        match store.put(Key::new(&stored.to_be_bytes()), &value) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::OutOfMemory { .. }), "{refused}");
    assert!(stored > 300, "only {stored} values in {} MiB", REGION_BYTES >> 20);
    assert!((0..stored).all(|n| store.get(Key::new(&n.to_be_bytes())).unwrap() == value));
    for n in 0..stored {
        assert!(store.delete(Key::new(&n.to_be_bytes())).unwrap());
    }
    // Memory of one size serves another, in whatever shard.
    let whole = patterned(12 << 20, 13);
    store.put(Key::new(b"whole"), &whole).unwrap();
    assert!(store.get(Key::new(b"whole")).unwrap() == whole);
}

#[test]
fn lengths_are_limited() {
    let (store, ..) = fresh(1 << 20);
    let long = vec![0; 65_536];
    let refused = store.put(Key::new(&long), b"");
    assert!(matches!(refused, Err(StoreError::KeyTooLong { len_bytes: 65_536, .. })));
    store.put(Key::new(&long[1..]), b"longest").unwrap();
    assert_eq!(store.get(Key::new(&long[1..])).unwrap(), b"longest");
    store.put(Key::new(b""), b"shortest").unwrap();
    assert_eq!(store.get(Key::new(b"")).unwrap(), b"shortest");
    let key = Key::new(b"k");
    let refused = store.run(Access::Key(key), |tx| tx.patch(key, 512 << 20, b"x"));
    assert!(matches!(refused, Err(StoreError::ValueTooLarge { .. })));
    let refused = store.run(Access::Key(key), |tx| tx.patch(key, 500 << 20, b"x"));
    assert!(matches!(refused, Err(StoreError::OutOfMemory { .. })));
}

#[test]
fn a_huge_hash_grows_is_read_and_goes_within_a_small_budget() {
    let (store, clock, device) = fresh(BUDGET_BYTES);
    let key = Key::new(b"hash");
    let value = patterned(100, 3);
    for n in 0..20_000u32 {
        let new =
            store.run(Access::Key(key), |tx| tx.hash_set(key, &n.to_be_bytes(), &value)).unwrap();
        assert!(new);
    }
    store.region().close(1).unwrap();
    drop(store);
    let store = open(&device, &clock, BUDGET_BYTES);
    store.read(key, |entry| {
        let entry = entry.unwrap();
        assert_eq!((entry.kind, entry.hash_len()), (Kind::Hash, Some(20_000)));
        assert!(entry.memory_bytes() > 20_000 * 128);
    });
    let found = store.hash_get(key, &77u32.to_be_bytes(), |found| found.map(<[u8]>::to_vec));
    assert_eq!(found.unwrap().unwrap(), value);
    let (mut cursor, mut met) = (0, BTreeSet::new());
    loop {
        cursor = store
            .run(Access::Key(key), |tx| {
                tx.hash_scan(key, cursor, 100, &mut |field, _| {
                    met.insert(field.to_vec());
                })
            })
            .unwrap();
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(met.len(), 20_000);
    assert!(store.delete(key).unwrap());
    // Its memory comes back piece by piece.
    let free = store.stats().free_bytes;
    assert!((8_192..8_300).contains(&store.free_some(8_192)));
    store.free_some(u64::MAX);
    store.heap().reclaim();
    assert!(store.stats().free_bytes > free);
    store.flush_all().unwrap();
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, fresh(BUDGET_BYTES).0.stats().free_bytes);
}

#[test]
fn the_operations_behind_a_deletion_free_nothing_of_it() {
    let (store, ..) = fresh(4 << 20);
    let key = Key::new(b"set");
    for n in 0..5_000u32 {
        store.run(Access::Key(key), |tx| tx.hash_set(key, &n.to_be_bytes(), b"y")).unwrap();
    }
    assert!(store.delete(key).unwrap());
    for _ in 0..100 {
        assert!(store.run(Access::Key(key), |tx| tx.hash_set(key, b"x", b"y")).unwrap());
        assert!(store.delete(key).unwrap());
    }
    let left = store.free_some(u64::MAX);
    assert!(left > 5_000, "{left} parts are left");
    assert_eq!((store.free_some(1), store.stats().detached), (0, 0));
}

#[test]
fn deleted_values_of_all_shards_go_in_parts_of_equal_weight() {
    let (store, ..) = fresh(4 << 20);
    let names: Vec<[u8; 1]> = (0..8).map(|name| [name]).collect();
    let members: Vec<_> = (0..6_000u32).map(|n| (n.to_be_bytes(), f64::from(n))).collect();
    for name in &names {
        let key = Key::new(name);
        let all = members.iter().map(|(name, score)| (&name[..], *score));
        store
            .run(Access::Key(key), |tx| tx.sorted_put_all(key, all.clone(), Expiry::None))
            .unwrap();
    }
    assert!(names.iter().all(|name| store.delete(Key::new(name)).unwrap()));
    let before = store.used_bytes();
    let freed = store.free_some(40);
    assert!((40..60).contains(&freed), "{freed} parts");
    // The nodes of a tree, which go first, are the largest.
    let bytes = before - store.used_bytes();
    assert!((1..=freed * 1200).contains(&bytes), "{bytes} B in {freed} parts");
    assert!(store.free_some(u64::MAX) > 48_000);
    assert_eq!((store.free_some(1), store.stats().detached), (0, 0));
}

#[test]
fn an_operation_that_finds_no_memory_has_that_of_a_value_deleted_before() {
    let (store, ..) = fresh(4 << 20);
    let key = Key::new(b"hash");
    let value = patterned(1000, 3);
    // Each shard has as much memory as it asks for: the hash ends with all that there is.
    let fill = || {
        (0u32..).find(|n| {
            let field = n.to_be_bytes();
            match store.run(Access::Key(key), |tx| tx.hash_set(key, &field, &value)) {
                Ok(_) => false,
                Err(StoreError::OutOfMemory { .. }) => true,
                Err(error) => panic!("{error}"),
            }
        })
    };
    let first = fill().unwrap();
    assert!(first > 10_000 && store.delete(key).unwrap());
    assert_eq!(store.stats().detached, 1);
    let second = fill().unwrap();
    assert!(second > first * 9 / 10, "{first} fields, then {second}");
}

#[test]
fn a_scan_meets_all_that_was_there_while_the_index_grows() {
    let (store, ..) = fresh(1 << 20);
    for n in 0..500u32 {
        store.put(Key::new(format!("old:{n}").as_bytes()), b"").unwrap();
    }
    let (mut cursor, mut met, mut added) = (0, BTreeSet::new(), 0u32);
    loop {
        cursor = store.scan(0, cursor, 5, |key, _| {
            met.insert(key.to_vec());
        });
        if cursor == 0 {
            break;
        }
        for _ in 0..if added < 20_000 { 40 } else { 0 } {
            store.put(Key::new(format!("new:{added}").as_bytes()), b"").unwrap();
            added += 1;
        }
    }
    let missed = (0..500).filter(|n| !met.contains(format!("old:{n}").as_bytes())).count();
    assert_eq!(missed, 0);
}

#[test]
fn expired_keys_are_absent_at_once_and_gone_after_a_sweep() {
    let (store, clock, _) = fresh(1 << 20);
    for n in 0..3_000u32 {
        let name = n.to_be_bytes();
        let key = Key::new(&name);
        let expiry = if n % 3 == 0 { Expiry::AtMs(1_000_500) } else { Expiry::None };
        store.run(Access::Key(key), |tx| tx.put(key, b"v", expiry)).unwrap();
    }
    assert_eq!((store.keys_with_expiry(0), store.expire_some(1 << 20).unwrap()), (1_000, 0));
    clock.advance_ns(500_000_000);
    assert!(store.get(Key::new(&0u32.to_be_bytes())).is_none());
    assert_eq!(store.len(0), 3_000);
    // Bounded work: many small sweeps do it all, one does not.
    assert!(store.expire_some(10).unwrap() < 200);
    let swept: u64 = (0..1_000).map(|_| store.expire_some(10).unwrap()).sum();
    assert!(swept > 700);
    assert_eq!((store.len(0), store.keys_with_expiry(0)), (2_000, 0));
}

#[test]
fn nothing_expires_while_expiry_is_held_up() {
    let (store, clock, _) = fresh(1 << 20);
    let key = Key::new(b"key");
    store.run(Access::Key(key), |tx| tx.put(key, b"v", Expiry::AtMs(1_000_500))).unwrap();
    let is_there = || {
        let looked = store.run(Access::Key(key), |tx| Ok(tx.has(key))).unwrap();
        let mut met = 0;
        store.scan(0, 0, 10, |_, _| met += 1);
        assert!(looked == store.get(key).is_some() && looked == (met == 1));
        looked
    };
    store.hold_expiry();
    store.hold_expiry();
    clock.advance_ns(500_000_000);
    store.release_expiry();
    assert!(is_there() && store.expire_some(1 << 20).unwrap() == 0);
    store.release_expiry();
    assert!(!is_there());
    assert_eq!(store.expire_some(1 << 20).unwrap(), 1);
}

#[test]
#[should_panic(expected = "does not hold lane")]
fn a_key_that_was_not_declared_is_the_callers_mistake() {
    let (store, ..) = fresh(1 << 20);
    let _ = store.run(Access::Key(Key::new(b"a")), |tx| {
        (0..100u8).try_for_each(|n| tx.put(Key::new(&[n]), b"", Expiry::None))
    });
}

#[test]
fn any_number_of_values_too_large_for_one_hold_is_stored_together() {
    let (store, clock, device) = fresh(BUDGET_BYTES);
    let names: Vec<Vec<u8>> = (0..100u32).map(|n| n.to_string().into_bytes()).collect();
    let keys: Vec<Key<'_>> = names.iter().map(|name| Key::new(name)).collect();
    let value = |n: usize| patterned(40_000, n as u64 * 2 + 3);
    store
        .run(Access::Keys(&keys), |tx| {
            (0..).zip(&keys).try_for_each(|(n, key)| tx.put(*key, &value(n), Expiry::None))
        })
        .unwrap();
    store.region().close(1).unwrap();
    drop(store);
    let store = open(&device, &clock, BUDGET_BYTES);
    assert!((0..).zip(&keys).all(|(n, key)| store.get(*key).unwrap() == value(n)));
}

#[test]
fn a_hash_many_times_the_budget_is_renamed_and_copied() {
    let (store, ..) = fresh(BUDGET_BYTES);
    let (key, copy) = (Key::new(b"hash"), Key { db: 1, bytes: b"copy" });
    let value = |n: u32| patterned(1_000, u64::from(n) * 2 + 3);
    for n in 0..1_500u32 {
        store.run(Access::Key(key), |tx| tx.hash_set(key, &n.to_be_bytes(), &value(n))).unwrap();
    }
    assert!(store.run(Access::Everything, |tx| tx.copy(key, copy)).unwrap());
    for n in 0..4 {
        let (from, name) = (key, format!("renamed:{n}"));
        let to = Key::new(name.as_bytes());
        assert!(store.run(Access::Keys(&[from, to]), |tx| tx.rename(from, to)).unwrap());
        assert!(store.run(Access::Keys(&[from, to]), |tx| tx.rename(to, from)).unwrap());
    }
    for n in 0..1_500u32 {
        for key in [key, copy] {
            let found = store.hash_get(key, &n.to_be_bytes(), |found| found.map(<[u8]>::to_vec));
            assert!(found.unwrap().unwrap() == value(n));
        }
    }
    assert!(store.region().used_bytes_max() <= BUDGET_BYTES);
}

#[test]
fn a_transaction_of_many_keys_beyond_the_budget_takes_time_as_its_keys_do() {
    let (store, ..) = fresh(6 << 20);
    let names: Vec<Vec<u8>> = (0..100_000).map(|n: u32| n.to_string().into_bytes()).collect();
    let keys: Vec<Key<'_>> = names.iter().map(|name| Key::new(name)).collect();
    let began = std::time::Instant::now();
    store
        .run(Access::Keys(&keys), |tx| {
            keys.iter().try_for_each(|key| tx.put(*key, &[b'x'; 90], Expiry::None))
        })
        .unwrap();
    // A second, where looking each key up among all before it took eighteen.
    assert!(began.elapsed() < std::time::Duration::from_secs(8), "{:?}", began.elapsed());
    assert_eq!(store.len(0), 100_000);
}

#[test]
fn what_no_store_writes_is_refused() {
    let key = Key::new(b"the only key");
    // A small record that never expires: of its header there is only the first word.
    let header = 5 | 12 << 32 | 1 << 63;
    let has_buckets = |store: &Store, lane| store.region().peek(store.heap().lane_roots(lane)) > 0;
    let lane_of =
        |store: &Store| store.heap().lanes().find(|lane| has_buckets(store, *lane)).unwrap();
    let root_of = |store: &Store| store.heap().lane_roots(lane_of(store));
    let header_of = |store: &Store| {
        (0..REGION_BYTES).step_by(8).find(|at| store.region().peek(*at) == header).unwrap()
    };
    type Offset<'f> = &'f dyn Fn(&Store) -> u64;
    let damages: [(_, Offset<'_>, u64); 3] = [
        ("buckets of a table", &root_of, (8 << 29) + 1),
        ("record's header", &header_of, header & !(1 << 63)),
        ("record length", &header_of, header | 0xffff_ffff),
    ];
    for (wrong, offset_of, wrong_value) in damages {
        let (store, clock, device) = fresh(BUDGET_BYTES);
        store.put(key, b"value").unwrap();
        let (offset, lane) = (offset_of(&store), lane_of(&store));
        store.region().lock(lane).store(offset, wrong_value).unwrap();
        store.region().close(1).unwrap();
        drop(store);
        let region = Region::open(Arc::new(device), clock.clone(), config(BUDGET_BYTES)).unwrap();
        let opened = Store::open(Heap::open(region).unwrap(), clock, StoreOptions::default());
        match opened.map(drop) {
            Err(OpenError::Corrupt(Damaged { what, offset: at, value })) => {
                assert_eq!((what, at), (wrong, offset));
                assert!(what == "record length" || value == wrong_value);
            }
            other => panic!("{wrong}: {other:?}"),
        }
    }
}
