//! Small collections that change in place in their record: killed at every step they are as before
//! or as after, an aborted operation leaves nothing, and a change makes only its own bytes dirty.

use std::sync::Arc;

use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::Region;
use perdura_store::{Access, End, Expiry, Key, Store, Tx, TxError};

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
