//! Small collections that change in place in their record: killed at every step they are as before
//! or as after, an aborted operation leaves nothing, and a change makes only its own bytes dirty.

use std::sync::Arc;

use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::{Attachment, FlushOptions, Region};
use perdura_store::{Access, End, Expiry, Key, Store, Tx, TxError};
use rand::Rng;

use crate::harness::*;

const BUDGET_BYTES: u64 = 512 << 10;
const HASH: Key<'static> = Key { db: 0, bytes: b"hash" };
const SORTED: Key<'static> = Key { db: 0, bytes: b"sorted" };
const SET: Key<'static> = Key { db: 0, bytes: b"set" };
const INTS: Key<'static> = Key { db: 0, bytes: b"ints" };
const LIST: Key<'static> = Key { db: 0, bytes: b"list" };
const KEYS: [Key<'static>; 5] = [HASH, INTS, LIST, SET, SORTED];

type Change = fn(&mut Tx<'_>) -> Result<(), TxError>;

fn name(number: usize) -> Vec<u8> {
    format!("{number:064}").into_bytes()
}

fn fill(tx: &mut Tx<'_>) -> Result<(), TxError> {
    for number in 0..60 {
        tx.hash_set(HASH, format!("f{number}").as_bytes(), &name(number))?;
        tx.sorted_add(SORTED, &name(number), number as f64)?;
        let int = (number * 3).to_string();
        tx.set_add_all(INTS, std::iter::once(int.as_bytes()))?;
    }
    let names: Vec<_> = (0..60).map(name).collect();
    tx.set_put(SET, names.iter().map(Vec::as_slice), Expiry::None)?;
    tx.list_put(LIST, names[..9].iter().map(Vec::as_slice), Expiry::None)
}

fn filled(seed: u64) -> (Store, Arc<SimClock>, SimDevice) {
    let (device, clock) = (SimDevice::new(0, seed), Arc::new(SimClock::new(1_000_000)));
    let store = open(&device, &clock, BUDGET_BYTES);
    store.run(Access::Keys(&KEYS), fill).unwrap();
    store.region().checkpoint().unwrap();
    (store, clock, device)
}

/// Changes each with the key that it is made in, or in all of them.
const CHANGES: [(Option<Key<'static>>, Change); 9] = [
    (Some(HASH), |tx| tx.hash_set(HASH, b"f20", &name(99)).map(drop)),
    (Some(HASH), |tx| tx.hash_set(HASH, b"new", &name(99)).map(drop)),
    (Some(HASH), |tx| tx.hash_set(HASH, b"f40", b"shorter").map(drop)),
    (Some(SORTED), |tx| tx.sorted_add(SORTED, &name(30), 33.5).map(drop)),
    (Some(SORTED), |tx| tx.sorted_add(SORTED, b"new", 50.5).map(drop)),
    (Some(SET), |tx| tx.set_add_all(SET, [&b"new"[..], b"newer"].into_iter()).map(drop)),
    (Some(INTS), |tx| tx.set_add_all(INTS, [&b"91"[..], b"170"].into_iter()).map(drop)),
    (Some(LIST), |tx| tx.list_push(LIST, End::Back, std::iter::once(&b"new"[..])).map(drop)),
    (None, |tx| {
        // What is longer, then shorter, then longer again: behind the end lie bytes from before.
        tx.hash_set(HASH, b"new", &name(99))?;
        tx.hash_delete(HASH, b"f3")?;
        tx.hash_set(HASH, b"newer", &name(98))?;
        tx.hash_set(HASH, b"f5", &name(97))?;
        (10..40).try_for_each(|number| tx.sorted_remove(SORTED, &name(number)).map(drop))?;
        tx.sorted_add(SORTED, b"new", 20.0)?;
        tx.set_remove_all(SET, std::iter::once(&name(4)[..]))?;
        tx.set_add_all(SET, std::iter::once(&b"new"[..])).map(drop)
    }),
];

fn run(store: &Store, change: &(Option<Key<'static>>, Change), aborts: bool) -> bool {
    let access = change.0.map_or(Access::Keys(&KEYS), Access::Key);
    let outcome = store.run(access, |tx| {
        change.1(tx)?;
        if aborts { tx.abort("on purpose") } else { Ok(()) }
    });
    outcome.is_ok()
}

#[test]
fn a_small_value_that_changes_in_place_is_as_before_or_after_a_death_at_any_step() {
    for (nth, change) in CHANGES.iter().enumerate() {
        let (store, ..) = filled(1);
        let before = contents(&store);
        run(&store, change, false);
        let after = contents(&store);
        assert_ne!(before, after);
        for fuse in 1.. {
            let (store, clock, device) = filled(fuse);
            store.heap().kill_after(fuse);
            let is_done = run(&store, change, false) && !store.heap().is_killed();
            let (memory, ledger) = store.region().fds();
            let fds = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
            drop(store);
            let ([memory, ledger], disk) = (fds, Arc::new(device));
            let region = Region::attach(memory, ledger, disk, clock.clone(), config(BUDGET_BYTES));
            let store = store_on(region.unwrap(), &clock);
            let found = contents(&store);
            let is_right = found == after || !is_done && found == before;
            assert!(is_right, "change {nth}, killed after {fuse} steps");
            // The memory behind the values is sound, too.
            assert!(run(&store, change, false));
            if is_done {
                break;
            }
        }
    }
}

#[test]
fn an_aborted_change_leaves_a_small_value_as_it_was() {
    for change in &CHANGES {
        let (store, ..) = filled(2);
        let before = contents(&store);
        assert!(!run(&store, change, true));
        assert_eq!(contents(&store), before);
    }
}

#[test]
fn a_change_of_a_small_value_makes_little_more_dirty_than_what_changes() {
    // The values have 4 KiB; in the last two cases some members move.
    for (change, most) in CHANGES.iter().zip([320, 320, 8_192, 640, 3_072, 256, 512, 256]) {
        let (store, ..) = filled(3);
        let before = store.region().used_bytes();
        assert!(run(&store, change, false));
        let dirty_bytes = store.region().used_bytes() - before;
        assert!(dirty_bytes <= most, "{dirty_bytes} B, {most} at most");
    }
}

#[test]
fn a_value_that_one_operation_changes_often_takes_memory_once_for_each_size() {
    let (store, ..) = filled(4);
    let free_bytes = store.stats().free_bytes;
    let all = |tx: &mut Tx<'_>| {
        for number in 0..400u32 {
            tx.hash_set(Key::new(b"another"), &number.to_le_bytes(), b"value")?;
        }
        (0..399u32).try_for_each(|number| {
            tx.hash_delete(Key::new(b"another"), &number.to_le_bytes()).map(drop)
        })
    };
    store.run(Access::Key(Key::new(b"another")), all).unwrap();
    let taken_bytes = free_bytes - store.stats().free_bytes;
    // A new record for each change would take 2.4 MB.
    assert!(taken_bytes <= 640 << 10, "{taken_bytes}");
}

/// A change of one of the keys, drawn from a seed.
#[derive(Debug, Clone, Copy)]
struct Drawn {
    key: usize,
    what: u32,
    number: usize,
    len: usize,
}

const STRING: Key<'static> = Key { db: 0, bytes: b"string" };
const ALL: [Key<'static>; 6] = [HASH, INTS, LIST, SET, SORTED, STRING];

fn draw_change(random: &mut Random, key: usize) -> Drawn {
    let number = match random.random_bool(0.5) {
        true => random.random_range(0..8),
        false => random.random_range(0..140),
    };
    let len = [0, 5, 60, 300, 900, 1_900][random.random_range(0..6)];
    Drawn { key, what: random.random_range(0..40), number, len }
}

fn apply_drawn(tx: &mut Tx<'_>, drawn: &Drawn) -> Result<(), TxError> {
    let Drawn { key, what, number, len } = *drawn;
    let value = vec![b'a' + (what + number as u32) as u8 % 26; len];
    let name = format!("{number:0width$}", width = (len / 5).min(63)).into_bytes();
    let int = (number * [1, 300, 90_000][len % 3]).to_string().into_bytes();
    let end = if number % 2 == 0 { End::Back } else { End::Front };
    let kept = (0..3).contains(&what);
    match (ALL[key], what) {
        (key, 0) => tx.delete(key).map(drop),
        (key, 1..3) => tx.set_expiry(key, (what == 1).then_some(9_000_000)).map(drop),
        (HASH, 3..9) => tx.hash_delete(HASH, &name).map(drop),
        (HASH, _) => tx.hash_set(HASH, &name, &value).map(drop),
        (INTS, 3..9) => tx.set_remove_all(INTS, std::iter::once(&int[..])).map(drop),
        (INTS, 9) => tx.set_add_all(INTS, std::iter::once(&name[..])).map(drop),
        (INTS, _) => tx.set_add_all(INTS, std::iter::once(&int[..])).map(drop),
        (LIST, 3..6) => tx.list_cut(LIST, end, 1 + number as u64 % 3).map(drop),
        (LIST, 6..16) => tx.list_set(LIST, number as u64 % 12, &value).map(drop),
        (LIST, 16..20) => tx.list_remove(LIST, &value, 1, what % 2 == 0).map(drop),
        (LIST, 20..28) if tx.has(LIST) => {
            let index = number as u64 % tx.list(LIST)?.map_or(1, |list| list.len());
            tx.list_insert(LIST, index, &value)
        }
        (LIST, _) => tx.list_push(LIST, end, std::iter::once(&value[..])).map(drop),
        (SET, 3..9) => tx.set_remove_all(SET, std::iter::once(&name[..])).map(drop),
        (SET, _) => tx.set_add_all(SET, std::iter::once(&name[..])).map(drop),
        (SORTED, 3..9) => tx.sorted_remove(SORTED, &name).map(drop),
        (SORTED, _) => tx.sorted_add(SORTED, &name, f64::from(what)).map(drop),
        (key, 3..12) => tx.append(key, &value).map(drop),
        (key, 12..24) => tx.patch(key, number as u64, &value).map(drop),
        (key, _) => tx.put(key, &value, if kept { Expiry::Keep } else { Expiry::None }),
    }
}

/// Operations are carried out one after the other, most of them cut off by a death, on a store and
/// on another one that never dies. The memory is taken over, or flushed and read from the device after a power
/// cut.
#[test]
fn any_changes_in_one_operation_are_as_before_or_after_a_death() {
    for seed in 0..number("PERDURA_SEEDS").unwrap_or(6) {
        let mut random = seeded(seed);
        let clock = Arc::new(SimClock::new(1_000_000));
        let mut device = SimDevice::new(0, seed);
        let (mut store, twin) = (open(&device, &clock, BUDGET_BYTES), {
            open(&SimDevice::new(0, seed), &clock, BUDGET_BYTES)
        });
        for round in 0..150 {
            let only = random.random_bool(0.6).then(|| random.random_range(0..ALL.len()));
            let count = [1, 2, 6, 40][random.random_range(0..4)];
            let changes: Vec<_> = (0..count)
                .map(|_| {
                    let key = only.unwrap_or_else(|| random.random_range(0..ALL.len()));
                    draw_change(&mut random, key)
                })
                .collect();
            let access = || only.map_or(Access::Keys(&ALL), |key| Access::Key(ALL[key]));
            let all =
                |tx: &mut Tx<'_>| changes.iter().try_for_each(|change| apply_drawn(tx, change));
            let what = format!("seed {seed}, round {round}, {changes:?}");
            let before = contents(&twin);
            twin.run(access(), all).unwrap();
            let after = contents(&twin);
            let most = [8, 30, 120, 700][random.random_range(0..4)];
            let fuse = random.random_range(1..most);
            store.heap().kill_after(fuse);
            let outcome = store.run(access(), all);
            let is_done = outcome.is_ok();
            let (memory, ledger) = store.region().fds();
            let fds = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
            drop(store);
            let [memory, ledger] = fds;
            let region = if random.random_bool(0.5) {
                let disk = Arc::new(device.clone());
                Region::attach(memory, ledger, disk, clock.clone(), config(BUDGET_BYTES))
            } else {
                let holder = Attachment::new(memory, ledger).unwrap();
                holder.flush(&device, FlushOptions { threads: 1, unix_ms: 7 }).unwrap();
                device = device.power_cycle(seed);
                Region::open(Arc::new(device.clone()), clock.clone(), config(BUDGET_BYTES))
            };
            store = store_on(region.unwrap(), &clock);
            let found = contents(&store);
            let is_right = found == after || !is_done && found == before;
            assert!(is_right, "{what}, killed after {fuse} steps, done {is_done}");
            if found == before {
                store.run(access(), all).unwrap();
                assert!(contents(&store) == after, "{what}, then again");
            }
            if random.random_bool(0.1) {
                store.region().checkpoint().unwrap();
            }
        }
    }
}

/// Records of an attempt that ended for want of budget are kept for the next attempt, which must not
/// therefore write a record for each change.
#[test]
fn many_changes_in_one_operation_take_little_memory_though_the_budget_was_short_at_first() {
    let (store, ..) = filled(5);
    for number in 0..2_000u32 {
        if store.region().used_bytes() > BUDGET_BYTES - 2_000 {
            break;
        }
        store.put(Key::new(&number.to_le_bytes()), &[1; 600]).unwrap();
    }
    let (key, mut attempts, free_bytes) = (Key::new(b"another"), 0, store.stats().free_bytes);
    let all = |tx: &mut Tx<'_>| {
        attempts += 1;
        (0..8_000u32).try_for_each(|number| {
            let field = (number % 300).to_le_bytes();
            tx.hash_set(key, &field, &number.to_le_bytes()).map(drop)
        })
    };
    store.run(Access::Key(key), all).unwrap();
    let taken_bytes = free_bytes - store.stats().free_bytes;
    assert!((2..20).contains(&attempts) && taken_bytes <= 1 << 20, "{attempts}, {taken_bytes} B");
}

#[test]
fn a_value_that_grows_and_shrinks_in_one_operation_leaves_no_large_slot_to_a_small_value() {
    let (store, ..) = filled(6);
    let free_bytes = store.stats().free_bytes;
    for number in 0..1_500u32 {
        let bytes = number.to_le_bytes();
        let key = Key::new(&bytes);
        let grows_and_shrinks = |tx: &mut Tx<'_>| {
            (0..50).try_for_each(|number| tx.hash_set(key, &name(number), b"").map(drop))?;
            (1..50).try_for_each(|number| tx.hash_delete(key, &name(number)).map(drop))
        };
        let string = Key { db: 1, ..key };
        let shrinks = |tx: &mut Tx<'_>| {
            let mut lengths = (300..3_000).step_by(500).rev();
            lengths.try_for_each(|len| tx.put(string, &vec![1; len], Expiry::None))
        };
        store.run(Access::Key(key), grows_and_shrinks).unwrap();
        store.run(Access::Key(string), shrinks).unwrap();
    }
    let taken_bytes = free_bytes - store.stats().free_bytes;
    assert!(taken_bytes <= 2 << 20, "{taken_bytes}");
}

#[test]
fn a_list_that_loses_elements_at_its_front_is_not_written_anew_each_time() {
    let (store, ..) = filled(7);
    let elements: Vec<_> = (0..100).map(name).collect();
    let cut = || store.run(Access::Key(LIST), |tx| tx.list_cut(LIST, End::Front, 1)).unwrap();
    let put = |tx: &mut Tx<'_>| tx.list_put(LIST, elements.iter().map(Vec::as_slice), Expiry::None);
    store.run(Access::Key(LIST), put).unwrap();
    assert_eq!(cut(), 1);
    store.region().checkpoint().unwrap();
    let before = store.region().used_bytes();
    (0..20).for_each(|_| assert_eq!(cut(), 1));
    let dirty_bytes = store.region().used_bytes() - before;
    assert!(dirty_bytes <= 512, "{dirty_bytes} B");
}
