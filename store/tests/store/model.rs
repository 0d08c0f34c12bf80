//! The store against an oracle: same operations, same contents; also after close, attach and
//! reopening.

use std::sync::Arc;

use crate::harness::*;
use perdura_media::sim::SimDevice;
use perdura_media::{Clock, SimClock};
use perdura_region::Region;
use perdura_store::{Access, Key, Store};
use rand::Rng;

fn check(store: &Store, model: &Model, clock: &SimClock, what: &str) {
    let expected = live(model, clock.unix_ms());
    assert_same(&contents(store), &expected, what);
    for db in 0..2 {
        let found: Vec<_> = store.range(db, b"key:3").collect();
        let strings = expected.iter().filter_map(|((in_db, key), (value, _))| match &**value {
            Value::String(value) if *in_db == db => Some((key.clone(), value.clone())),
            _ => None,
        });
        let wanted: Vec<_> =
            strings.filter(|(key, _)| key.as_slice() >= b"key:3".as_slice()).collect();
        assert!(found == wanted, "{what}: range over database {db}");
        assert_eq!(
            store.random_key(db).is_some(),
            expected.keys().any(|(in_db, _)| *in_db == db),
            "{what}: random key"
        );
    }
}

fn life(seed: u64, budget_bytes: u64, steps: usize) {
    let what = format!(
        "seed {seed}, budget {budget_bytes}; replay: PERDURA_SEED={seed} \
         PERDURA_BUDGET={budget_bytes} \
         cargo test -p perdura-store --test store model::replay"
    );
    let device = SimDevice::new(0, seed);
    let clock = Arc::new(SimClock::new(1_000_000));
    let mut random = seeded(seed);
    let mut model = Model::new();
    let mut store = open(&device, &clock, budget_bytes);
    for round in 0..4 {
        for number in 0..steps {
            if number % 100 == 50 {
                store.rebuild_next().unwrap();
            }
            let step = draw(&mut random, clock.unix_ms());
            apply(&store, &step).unwrap_or_else(|error| panic!("{what}: {step:?}: {error}"));
            apply_to_model(&mut model, &step, clock.unix_ms());
            clock.advance_ns(3_000_000);
            let region = store.region();
            assert!(region.used_bytes_max() <= region.budget_bytes(), "{what}");
        }
        check(&store, &model, &clock, &what);
        // Only shards that were searched are swept.
        while store.rebuild_next().unwrap() {}
        store.expire_some(10_000).unwrap();
        let keys = store.len(0) + store.len(1);
        assert_eq!(keys, live(&model, clock.unix_ms()).len() as u64, "{what}: counts");
        let free_before = store.stats().free_bytes;
        store = if round % 2 == 0 {
            let (memory, ledger) = store.region().fds();
            let fds = (memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap());
            drop(store);
            let (device, clock2) = (Arc::new(device.clone()), clock.clone());
            let region = Region::attach(fds.0, fds.1, device, clock2, config(budget_bytes));
            deferred_on(region.unwrap(), &clock)
        } else {
            store.region().close(2).unwrap();
            drop(store);
            let (device, clock2) = (Arc::new(device.clone()), clock.clone());
            deferred_on(Region::open(device, clock2, config(budget_bytes)).unwrap(), &clock)
        };
        if seed % 2 == 1 {
            // The steps to come meet shards that are not rebuilt.
            continue;
        }
        check(&store, &model, &clock, &what);
        let stats = store.stats();
        assert!(stats.free_bytes >= free_before, "{what}: memory leaked");
        assert_eq!(stats.keys, live(&model, clock.unix_ms()).len() as u64, "{what}");
    }
    store.flush_all().unwrap();
    while store.rebuild_next().unwrap() {}
    store.heap().reclaim();
    let empty = open(&SimDevice::new(0, 1), &clock, budget_bytes).stats().free_bytes;
    assert_eq!(store.stats().free_bytes, empty, "{what}: memory leaked");
}

#[test]
fn any_operations_agree_with_the_oracle() {
    for seed in 0..number("PERDURA_SEEDS").unwrap_or(6) {
        life(seed, 1 << 20, 700);
    }
}

#[test]
fn a_tiny_budget_changes_nothing_but_speed() {
    for seed in 100..100 + number("PERDURA_SEEDS").unwrap_or(3) {
        life(seed, 256 << 10, 300);
    }
}

#[test]
fn a_patch_that_meets_the_end_of_the_budget_halfway_is_run_again() {
    let device = SimDevice::new(0, 1);
    let clock = Arc::new(SimClock::new(1_000_000));
    let store = open(&device, &clock, 128 << 10);
    let names: Vec<_> = (0..24).map(|number| format!("key:{number}").into_bytes()).collect();
    let mut values = vec![vec![0; 15_000]; names.len()];
    names.iter().zip(&values).for_each(|(name, value)| store.put(Key::new(name), value).unwrap());
    let mut random = seeded(1);
    for round in 1..400 {
        let (which, offset) = (random.random_range(0..names.len()), random.random_range(0..9_000));
        let (key, piece) = (Key::new(&names[which]), vec![round as u8; 5_700]);
        store.run(Access::Key(key), |tx| tx.patch(key, offset as u64, &piece)).unwrap();
        values[which][offset..offset + piece.len()].copy_from_slice(&piece);
        assert!(store.get(key) == Some(values[which].clone()), "round {round}");
    }
}

#[test]
fn replay_one_life_from_the_environment() {
    if let (Some(seed), Some(budget_bytes)) = (number("PERDURA_SEED"), number("PERDURA_BUDGET")) {
        life(seed, budget_bytes, if budget_bytes < 1 << 20 { 300 } else { 700 });
    }
}
