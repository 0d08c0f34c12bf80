//! The store cut off at every step: inside operations, and by power cuts at every durable
//! operation.

use std::sync::Arc;

use crate::harness::*;
use perdura_media::sim::SimDevice;
use perdura_media::{Clock, SimClock};
use perdura_region::{Region, RegionError};
use perdura_store::{Heap, Store, StoreError, StoreOptions};
use rand::Rng;

const BUDGET_BYTES: u64 = 512 << 10;

fn attach(store: Store, device: &SimDevice, clock: &Arc<SimClock>) -> Store {
    let (memory, ledger) = store.region().fds();
    let fds = (memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap());
    drop(store);
    let region =
        Region::attach(fds.0, fds.1, Arc::new(device.clone()), clock.clone(), config(BUDGET_BYTES));
    store_on(region.unwrap(), clock)
}

/// Runs `step`, killed after `fuse` steps of the heap. Returns whether it got through before.
fn killed_inside(seed: u64, prepare: usize, fuse: u64, by_power: bool) -> bool {
    let what = format!(
        "seed {seed}, {prepare} steps, killed after {fuse}, power {by_power}; replay: \
         PERDURA_SEED={seed} PERDURA_PREPARE={prepare} PERDURA_FUSE={fuse} \
         cargo test -p perdura-store --test store crash::replay"
    );
    let device = SimDevice::new(0, seed);
    let clock = Arc::new(SimClock::new(1_000_000));
    let mut random = seeded(seed);
    let mut model = Model::new();
    let store = open(&device, &clock, BUDGET_BYTES);
    let empty_bytes = store.stats().free_bytes;
    for _ in 0..prepare {
        let step = draw(&mut random, clock.unix_ms());
        apply(&store, &step).unwrap();
        apply_to_model(&mut model, &step, clock.unix_ms());
    }
    let step = draw(&mut random, clock.unix_ms());
    let before = model.clone();
    apply_to_model(&mut model, &step, clock.unix_ms());
    store.heap().kill_after(fuse);
    let outcome = apply(&store, &step);
    let got_through = match outcome {
        Ok(()) => !store.heap().is_killed(),
        Err(StoreError::Killed) => false,
        Err(error) => panic!("{what}: {step:?}: {error}"),
    };
    let was_acknowledged = outcome.is_ok();
    let mut store = if by_power {
        // The holder flushes what the dead process left; then the machine goes down.
        store.region().close(1).unwrap();
        drop(store);
        open(&device.power_cycle(seed ^ fuse), &clock, BUDGET_BYTES)
    } else {
        attach(store, &device, &clock)
    };
    let now_ms = clock.unix_ms();
    let found = contents(&store);
    let (before, after) = (live(&before, now_ms), live(&model, now_ms));
    if was_acknowledged || found != before {
        assert_same(&found, &after, &format!("{what}: {step:?}"));
    }
    // It goes on working, and nothing has leaked.
    let mut model = found;
    for _ in 0..20 {
        let step = draw(&mut random, now_ms);
        apply(&store, &step).unwrap_or_else(|error| panic!("{what}: later {step:?}: {error}"));
        apply_to_model(&mut model, &step, now_ms);
    }
    assert_same(&contents(&store), &live(&model, now_ms), &format!("{what}: later"));
    if !by_power {
        store.region().checkpoint().unwrap();
        store = attach(store, &device, &clock);
        assert_same(&contents(&store), &live(&model, now_ms), &format!("{what}: again"));
    }
    store.flush_all().unwrap();
    store.heap().reclaim();
    assert_eq!(store.stats().free_bytes, empty_bytes, "{what}: memory leaked");
    got_through
}

#[test]
fn an_operation_killed_at_any_step_is_whole_or_absent() {
    let mut random = seeded(77);
    for seed in 0..number("PERDURA_SEEDS").unwrap_or(40) {
        let prepare = random.random_range(20..200);
        let mut fuse = 1;
        // Every step where there are few; then in growing strides.
        while !killed_inside(seed, prepare, fuse, fuse % 5 == 0) {
            fuse += 1 + fuse / 12;
        }
    }
}

/// Runs steps, checkpoints and group commits until the power fails at durable operation `cut`.
/// Returns the operations of the whole run.
fn cut_power(seed: u64, cut: u64) -> u64 {
    let what = format!(
        "seed {seed}, cut {cut}; replay: PERDURA_SEED={seed} PERDURA_CUT={cut} \
         cargo test -p perdura-store --test store crash::replay"
    );
    let device = SimDevice::new(0, seed);
    let clock = Arc::new(SimClock::new(1_000_000));
    let mut random = seeded(seed);
    let mut model = Model::new();
    let store = open(&device, &clock, BUDGET_BYTES);
    device.cut_after(device.ops().saturating_add(cut));
    let mut allowed = vec![model.clone()];
    // States between two commits asked for: allowed only if the region committed for want of space.
    let mut between = Vec::new();
    let (mut asked, at_start) = (0, store.region().stats().checkpoints);
    for _ in 0..250 {
        let step = draw(&mut random, clock.unix_ms());
        match apply(&store, &step) {
            Ok(()) => {
                apply_to_model(&mut model, &step, clock.unix_ms());
                between.push(model.clone());
            }
            Err(StoreError::NotDurable(RegionError::Latched { .. })) => break,
            Err(error) => panic!("{what}: {step:?}: {error}"),
        }
        if random.random_bool(0.06) {
            allowed.push(model.clone());
            let is_group = random.random_bool(0.5);
            asked += u64::from(!is_group);
            let committed =
                if is_group { store.region().commit_group() } else { store.region().checkpoint() };
            if committed.is_err() {
                break;
            }
            allowed.drain(..allowed.len() - 1);
            between.clear();
        }
    }
    if store.region().stats().checkpoints > at_start + asked {
        allowed.append(&mut between);
    }
    let ops = device.ops();
    drop(store);
    let device = device.power_cycle(seed.rotate_left(17) ^ cut);
    let store = reopen(&device, &clock);
    let now_ms = clock.unix_ms();
    let found = contents(&store);
    let is_allowed = allowed.iter().any(|state| live(state, now_ms) == found);
    assert!(is_allowed, "{what}: none of {} allowed states", allowed.len());
    let mut model = found;
    for _ in 0..20 {
        let step = draw(&mut random, now_ms);
        apply(&store, &step).unwrap_or_else(|error| panic!("{what}: later {step:?}: {error}"));
        apply_to_model(&mut model, &step, now_ms);
    }
    assert_same(&contents(&store), &live(&model, now_ms), &what);
    store.region().close(1).unwrap();
    drop(store);
    assert_same(&contents(&reopen(&device, &clock)), &live(&model, now_ms), &what);
    ops
}

fn reopen(device: &SimDevice, clock: &Arc<SimClock>) -> Store {
    let region =
        Region::open(Arc::new(device.clone()), clock.clone(), config(BUDGET_BYTES)).unwrap();
    Store::open(Heap::open(region).unwrap(), clock.clone(), StoreOptions::default()).unwrap()
}

#[test]
fn a_power_cut_leaves_the_last_commit() {
    for seed in 0..number("PERDURA_SEEDS").unwrap_or(3) {
        let ops = cut_power(seed, u64::MAX);
        let step = (ops / 40).max(1);
        for cut in (0..ops).step_by(step as usize) {
            cut_power(seed, cut);
        }
    }
}

#[test]
fn replay_one_case_from_the_environment() {
    let Some(seed) = number("PERDURA_SEED") else { return };
    if let (Some(prepare), Some(fuse)) = (number("PERDURA_PREPARE"), number("PERDURA_FUSE")) {
        killed_inside(seed, prepare as usize, fuse, fuse % 5 == 0);
    }
    if let Some(cut) = number("PERDURA_CUT") {
        cut_power(seed, cut);
    }
}
