//! Operations without a transaction: killed at every step they are whole or absent, and they are
//! refused where there is more to do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use perdura_media::sim::SimDevice;
use perdura_media::{Clock, SimClock};
use perdura_region::{Config, Planted, Region};
use perdura_store::{Access, End, Expiry, KEY_BYTES_MAX, Key, Store};

use crate::harness::*;

const BUDGET_BYTES: u64 = 1 << 20;
const COUNTER: Key<'static> = Key { db: 0, bytes: b"counter" };
const HASH: Key<'static> = Key { db: 0, bytes: b"hash" };
const SMALL: Key<'static> = Key { db: 0, bytes: b"small hash" };
const LIST: Key<'static> = Key { db: 0, bytes: b"list" };
const SET: Key<'static> = Key { db: 0, bytes: b"set" };
const SORTED: Key<'static> = Key { db: 0, bytes: b"sorted set" };

type Operation = (Key<'static>, fn(&Store) -> Option<()>);
const OPERATIONS: [Operation; 16] = [
    (COUNTER, |store| {
        let seen = |old: &[u8]| (old == b"1000").then_some((&b"1001"[..], ()));
        store.replace_at(COUNTER, store.place(COUNTER), Expiry::Keep, seen)
    }),
    (COUNTER, |store| {
        let four = |_: &[u8]| Some((&b"four"[..], ()));
        store.replace_at(COUNTER, store.place(COUNTER), Expiry::None, four)
    }),
    (HASH, |store| {
        let longer = |_: &[u8]| Some((&[b'n'; 300][..], ()));
        store.hash_replace_at(HASH, store.place(HASH), b"field 70", longer)
    }),
    (SMALL, |store| {
        let other = |old: &[u8]| Some((&b"AAAA"[..old.len()], ()));
        store.hash_replace_at(SMALL, store.place(SMALL), b"b", other)
    }),
    (LIST, |store| push(store, End::Front)),
    (LIST, |store| push(store, End::Back)),
    (LIST, |store| pop(store, End::Front)),
    (LIST, |store| pop(store, End::Back)),
    (HASH, |store| {
        store
            .hash_set_at(HASH, store.place(HASH), b"another", b"value")
            .map(|is_new| assert!(is_new))
    }),
    (SET, |store| {
        store.set_add_at(SET, store.place(SET), b"another").map(|is_new| assert!(is_new))
    }),
    (SET, |store| {
        let place = store.place(SET);
        let taken = store.set_pop_at(SET, place, &mut |below| below / 3, <[u8]>::to_vec)?;
        let has = |entry: Option<perdura_store::Entry<'_>>| Some(entry?.set()?.has(&taken));
        assert_eq!(store.read(SET, has), Some(false));
        Some(())
    }),
    (SORTED, |store| change(store, b"another", None, 77.0)),
    // Once where it lies, and once elsewhere in the tree.
    (SORTED, |store| change(store, b"member 70", Some(70.0), 70.5)),
    (SORTED, |store| change(store, b"member 71", Some(71.0), 5.5)),
    (SORTED, |store| pop_sorted(store, End::Front)),
    (SORTED, |store| pop_sorted(store, End::Back)),
];

fn change(store: &Store, member: &[u8], old: Option<f64>, new: f64) -> Option<()> {
    let seen = |score| (score == old).then_some(new);
    let scores = store.sorted_change_at(SORTED, store.place(SORTED), member, seen)?;
    assert_eq!(scores, (old, new));
    Some(())
}

fn pop_sorted(store: &Store, end: End) -> Option<()> {
    let at_end = |entry: Option<perdura_store::Entry<'_>>| {
        let (sorted, mut found) = (entry?.sorted()?, None);
        sorted.for_each(0..u64::MAX, end.is_front(), &mut |name, score| {
            found = Some((name.to_vec(), score));
        });
        found
    };
    let wanted = store.read(SORTED, at_end);
    let place = store.place(SORTED);
    let taken = store.sorted_pop_at(SORTED, place, end, |name, score| (name.to_vec(), score))?;
    assert_eq!(Some(taken), wanted);
    Some(())
}

fn push(store: &Store, end: End) -> Option<()> {
    let elements = [&b"12345"[..], b"text", b"7"];
    let len = store.list_push_at(LIST, store.place(LIST), end, elements.into_iter())?;
    assert_eq!(Some(len), list_len(store));
    Some(())
}

fn pop(store: &Store, end: End) -> Option<()> {
    let read = |store: &Store| {
        store.read(LIST, |entry| {
            let (mut last, list) = (Vec::new(), entry?.list()?);
            list.walk_from(end, &mut |element| {
                last = element.to_vec();
                std::ops::ControlFlow::Break(())
            });
            Some(last)
        })
    };
    let wanted = read(store);
    let taken = store.list_pop_at(LIST, store.place(LIST), end, <[u8]>::to_vec)?;
    assert_eq!(Some(taken), wanted);
    Some(())
}

fn list_len(store: &Store) -> Option<u64> {
    store.read(LIST, |entry| Some(entry?.list()?.len()))
}

/// A store with a counter, a value of each large kind, and a list with room at its ends, dirty or
/// clean.
fn filled(device: &SimDevice, clock: &Arc<SimClock>, is_clean: bool, planted: Planted) -> Store {
    let config = Config { planted, ..config(BUDGET_BYTES) };
    let region = Region::open(Arc::new(device.clone()), clock.clone(), config);
    let store = store_on(region.unwrap(), clock);
    store.put(COUNTER, b"1000").unwrap();
    let run = |key, change: &dyn Fn(&mut perdura_store::Tx<'_>) -> _| {
        store.run(Access::Key(key), |tx| change(tx)).unwrap();
    };
    run(HASH, &|tx| {
        (0..100).try_for_each(|field: u8| {
            tx.hash_set(HASH, format!("field {field}").as_bytes(), &[field; 300]).map(drop)
        })
    });
    run(SMALL, &|tx| {
        [&b"a"[..], b"b", b"c"]
            .iter()
            .try_for_each(|field| tx.hash_set(SMALL, field, b"1234").map(drop))
    });
    run(SET, &|tx| {
        let members: Vec<_> = (0..150).map(|n| format!("member {n}").into_bytes()).collect();
        tx.set_add_all(SET, members.iter().map(Vec::as_slice)).map(drop)
    });
    run(SORTED, &|tx| {
        (0..150).try_for_each(|n| {
            tx.sorted_add(SORTED, format!("member {n}").as_bytes(), f64::from(n)).map(drop)
        })
    });
    let elements: Vec<_> = (0..900).map(|n| format!("element {n}").into_bytes()).collect();
    run(LIST, &|tx| {
        for end in [End::Back, End::Front] {
            tx.list_push(LIST, end, elements.iter().map(Vec::as_slice))?;
            // One that has a chunk with room of its own.
            tx.list_push(LIST, end, std::iter::once(&b"first"[..]))?;
            tx.list_push(LIST, end, std::iter::once(&b"second"[..]))?;
        }
        Ok(())
    });
    if is_clean {
        store.region().checkpoint().unwrap();
    }
    store
}

/// Kills each operation at each of its steps. One that was answered before must be whole, all
/// others absent. Returns how many deaths left it otherwise, and how many there were.
fn torn(planted: Planted) -> (u32, u32) {
    let clock = Arc::new(SimClock::new(1_000_000));
    let (mut torn, mut deaths) = (0, 0);
    for (number, (_, operation)) in OPERATIONS.into_iter().enumerate() {
        for way in 0..4 {
            let (is_clean, by_power) = (way & 1 != 0, way & 2 != 0);
            let store = filled(&SimDevice::new(0, 0), &clock, is_clean, planted);
            let before = contents(&store);
            operation(&store);
            let after = contents(&store);
            for fuse in 1.. {
                let device = SimDevice::new(0, fuse);
                let store = filled(&device, &clock, is_clean, planted);
                store.heap().kill_after(fuse);
                let outcome = operation(&store);
                if !store.heap().is_killed() {
                    store.heap().kill_after(u64::MAX);
                    assert!(outcome.is_some(), "operation {number} is not done in place");
                    assert!(fuse > 1 && after != before, "operation {number}");
                    break;
                }
                deaths += 1;
                let wanted = if outcome.is_some() { &after } else { &before };
                let found = catch_unwind(AssertUnwindSafe(|| {
                    contents(&restarted(store, &device, &clock, planted, by_power.then_some(fuse)))
                }));
                torn += u32::from(!found.is_ok_and(|found| found == *wanted));
                if planted != Planted::None && torn > 0 {
                    return (torn, deaths);
                }
            }
        }
    }
    (torn, deaths)
}

/// The store after the death of its process and, if `power` has a seed, of the machine.
fn restarted(
    store: Store,
    device: &SimDevice,
    clock: &Arc<SimClock>,
    planted: Planted,
    power: Option<u64>,
) -> Store {
    if let Some(seed) = power {
        store.region().close(1).unwrap();
        drop(store);
        return open(&device.power_cycle(seed), clock, BUDGET_BYTES);
    }
    let (memory, ledger) = store.region().fds();
    let [memory, ledger] = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
    drop(store);
    let config = Config { planted, ..config(BUDGET_BYTES) };
    let device = Arc::new(device.clone());
    let region = Region::attach(memory, ledger, device, clock.clone(), config);
    store_on(region.unwrap(), clock)
}

#[test]
fn an_operation_in_place_that_is_killed_at_any_step_is_whole_or_absent() {
    let (torn, deaths) = torn(Planted::None);
    assert!(torn == 0 && deaths >= 400, "{torn} of {deaths}");
}

#[test]
fn old_bytes_that_are_not_put_back_are_caught() {
    assert!(torn(Planted::LeaveOverwritten).0 > 0);
    assert!(torn(Planted::UndoWithoutBytes).0 > 0);
}

#[test]
fn what_is_done_in_place_is_there_after_a_start() {
    let clock = Arc::new(SimClock::new(1_000_000));
    for is_clean in [false, true] {
        let device = SimDevice::new(0, 1);
        let store = filled(&device, &clock, is_clean, Planted::None);
        for (number, (_, operation)) in OPERATIONS.into_iter().enumerate() {
            if number != 1 {
                assert_eq!(operation(&store), Some(()), "operation {number}");
            }
        }
        let wanted = contents(&store);
        store.region().close(1).unwrap();
        drop(store);
        assert_same(&contents(&open(&device, &clock, BUDGET_BYTES)), &wanted, "after a start");
    }
}

#[test]
fn what_somebody_wants_to_know_of_is_not_done_in_place() {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000_000)));
    let store = filled(&device, &clock, false, Planted::None);
    let before = contents(&store);
    for (key, operation) in OPERATIONS {
        let watch = store.watch(key);
        assert_eq!(operation(&store), None);
        drop(watch);
        assert!(store.delete(key).unwrap());
        assert_eq!(operation(&store), None, "without a key");
        store.put(key, b"another kind, or length").unwrap();
        assert_eq!(operation(&store), None, "of another kind or length");
        let store = filled(&SimDevice::new(0, 1), &clock, false, Planted::None);
        assert!(contents(&store) == before);
        let at_ms = clock.unix_ms() + 1;
        store.run(Access::Key(key), |tx| tx.set_expiry(key, Some(at_ms))).unwrap();
        clock.advance_ns(2_000_000);
        assert_eq!(operation(&store), None, "of a key that has expired");
    }
}

/// A value without members would have to go, and a name of more bytes than a record can say is
/// refused: both are for a transaction.
#[test]
fn a_last_member_and_a_name_that_is_too_long_are_left_to_a_transaction() {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000_000)));
    let store = filled(&device, &clock, false, Planted::None);
    let before = contents(&store);
    let name = vec![b'x'; KEY_BYTES_MAX + 1];
    assert_eq!(store.hash_set_at(HASH, store.place(HASH), &name, b"value"), None);
    assert_eq!(store.set_add_at(SET, store.place(SET), &name), None);
    assert_eq!(store.sorted_change_at(SORTED, store.place(SORTED), &name, |_| Some(1.0)), None);
    assert!(contents(&store) == before);
    let pop = || store.set_pop_at(SET, store.place(SET), &mut |below| below / 2, |_| ());
    assert_eq!(std::iter::from_fn(pop).count(), 149);
    let pop = || store.sorted_pop_at(SORTED, store.place(SORTED), End::Back, |_, _| ());
    assert_eq!(std::iter::from_fn(pop).count(), 149);
    let len = |entry: Option<perdura_store::Entry<'_>>| {
        let entry = entry.unwrap();
        entry.set().map(|set| set.len()).or(entry.sorted().map(|sorted| sorted.len()))
    };
    assert_eq!([SET, SORTED].map(|key| store.read(key, len)), [Some(1); 2]);
    // The memory of each is free, as if all had gone at once.
    let other = filled(&SimDevice::new(0, 1), &clock, false, Planted::None);
    let used = [store, other].map(|store| {
        assert!([SET, SORTED].iter().all(|key| store.delete(*key).unwrap()));
        store.free_some(u64::MAX);
        store.used_bytes()
    });
    assert_eq!(used[0], used[1]);
}

#[test]
fn what_is_there_already_is_not_written_nor_entered_again() {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000_000)));
    let store = filled(&device, &clock, false, Planted::None);
    let place = store.place(SORTED);
    let change = |score| store.sorted_change_at(SORTED, place, b"member 0", |_| Some(score));
    store.heap().kill_after(1);
    assert_eq!(store.set_add_at(SET, store.place(SET), b"member 7"), Some(false));
    // 0 and -0 have the same place, so they are one score.
    for score in [0.0, -0.0] {
        let (old, new) = change(score).unwrap();
        assert_eq!((old, new.to_bits()), (Some(0.0), 0), "{score}");
    }
    assert!(!store.heap().is_killed());
    store.heap().kill_after(u64::MAX);
    let before = contents(&store);
    let longer = |field| store.hash_set_at(HASH, store.place(HASH), field, &[b'x'; 30]);
    assert_eq!(longer(b"another"), Some(true));
    assert_eq!(store.hash_set_at(HASH, store.place(HASH), b"another", b"short"), None);
    assert!(store.run(Access::Key(HASH), |tx| tx.hash_delete(HASH, b"another")).unwrap());
    change(1.0).unwrap();
    assert_eq!(change(-0.0).map(|(_, new)| new.to_bits()), Some(0));
    assert!(contents(&store) == before);
}

#[test]
fn an_expiry_is_kept_or_left_to_who_can_change_it() {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000_000)));
    let store = filled(&device, &clock, false, Planted::None);
    let at_ms = clock.unix_ms() + 1_000;
    store.run(Access::Key(COUNTER), |tx| tx.set_expiry(COUNTER, Some(at_ms))).unwrap();
    let new = |_: &[u8]| Some((&b"2000"[..], ()));
    assert_eq!(store.replace_at(COUNTER, store.place(COUNTER), Expiry::None, new), None);
    assert_eq!(store.get(COUNTER).unwrap(), b"1000");
    assert_eq!(store.replace_at(COUNTER, store.place(COUNTER), Expiry::Keep, new), Some(()));
    let seen = store.read(COUNTER, |entry| entry.map(|entry| entry.expire_at_ms));
    assert_eq!((seen, store.get(COUNTER).unwrap()), (Some(Some(at_ms)), b"2000".to_vec()));
}

#[test]
fn a_list_that_pops_make_small_takes_no_more_memory_than_a_new_one() {
    let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000_000)));
    let store = filled(&device, &clock, false, Planted::None);
    let (mut in_place, bytes) = (0, |key| store.read(key, |entry| entry.unwrap().memory_bytes()));
    while list_len(&store) > Some(3) {
        if pop(&store, End::Back).is_some() {
            in_place += 1;
        } else {
            store.run(Access::Key(LIST), |tx| tx.list_cut(LIST, End::Back, 1)).unwrap();
        }
    }
    assert!(in_place > 1_000, "{in_place}");
    let other = Key { db: 0, bytes: b"othr" };
    store.run(Access::Keys(&[LIST, other]), |tx| tx.copy(LIST, other)).unwrap();
    assert_eq!(bytes(LIST), bytes(other));
}
