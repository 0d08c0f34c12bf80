//! Devices under a store on simulated devices, without threads.
#![allow(clippy::unwrap_used)] // a test's own failure

use std::collections::BTreeMap;
use std::sync::Arc;

use perdura_media::{Clock, LoneClock, RealClock, SimDevice};
use perdura_region::{Config, Region};
use perdura_store::{Access, Heap, Key, Store, StoreError, StoreOptions, Unreadable};

use super::*;

const MIB: u64 = 1 << 20;

struct World {
    store: Arc<Store>,
    devices: Arc<Devices>,
    mover: Mover,
    clock: Arc<LoneClock>,
}

fn config(region_bytes: u64) -> Config {
    Config {
        segment_bytes: Some(256 << 10),
        lanes: Some(std::env::var("L").map_or(8, |l| l.parse().unwrap())),
        thread: false,
        checkpoint_every: None,
        ..Config::new(region_bytes, 4 * MIB)
    }
}

fn named(number: usize, device: Arc<dyn perdura_media::Device>, limit_bytes: u64) -> Named {
    Named { place: format!("device {number}"), device, limit_bytes }
}

fn policy() -> Policy {
    Policy { segment_bytes: MIB, ..Policy::default() }
}

fn open(image: &SimDevice, region_bytes: u64, named: Vec<Named>) -> World {
    let clock = Arc::new(LoneClock::new(1_700_000_000_000));
    let region = Region::open(Arc::new(image.clone()), clock.clone(), config(region_bytes));
    let heap = Heap::open(region.unwrap()).unwrap();
    let devices = Devices::open(&heap, named, clock.clone(), policy(), false).unwrap();
    let options = StoreOptions::default();
    let store = Store::open_with_far(heap, clock.clone(), options, devices.clone()).unwrap();
    let mover = Mover::new(devices.clone());
    World { store: Arc::new(store), devices, mover, clock }
}

fn new_world(region_bytes: u64, devices: &[SimDevice]) -> World {
    let named = devices.iter().enumerate();
    let named = named.map(|(n, device)| named_sim(n, device)).collect();
    open(&SimDevice::new(0, 1), region_bytes, named)
}

fn named_sim(number: usize, device: &SimDevice) -> Named {
    named(number, Arc::new(device.clone()), u64::MAX)
}

fn three() -> Vec<SimDevice> {
    (0..3).map(|seed| SimDevice::new(0, seed)).collect()
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn value(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (number as usize * 31 + at) as u8).collect()
}

impl World {
    /// Writes a value, with the mover's help where memory is used up.
    fn put(&mut self, number: u32, value: &[u8]) -> Result<(), StoreError> {
        for _ in 0..40 {
            match self.store.put(Key::new(&key(number)), value) {
                Err(StoreError::OutOfMemory { .. }) => {
                    let (moved, outcome) = self.mover.step(&self.store, true);
                    outcome.unwrap();
                    assert!(moved.bytes > 0, "{number}: nothing was moved");
                }
                done => return done,
            }
        }
        panic!("no memory after 40 steps: {:?}", self.devices.status());
    }

    fn get(&self, number: u32) -> Option<Vec<u8>> {
        self.store.get(Key::new(&key(number)))
    }

    fn steps(&mut self, count: u32) {
        (0..count).for_each(|_| self.mover.step(&self.store, false).1.unwrap());
    }
}

#[test]
fn data_several_times_as_large_as_memory_are_served() {
    let devices = three();
    let mut world =
        new_world(std::env::var("M").map_or(16, |l| l.parse().unwrap()) * MIB, &devices);
    let count = std::env::var("C").map_or(64_000, |l| l.parse().unwrap());
    for number in 0..count {
        world.put(number, &value(number, 1000)).unwrap();
    }
    let mut x = 1u64;
    for _ in 0..2 * count {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let number = (x >> 33) as u32 % count;
        world.put(number, &value(number, 1000)).unwrap();
    }
    for number in (0..count).step_by(7) {
        assert_eq!(world.get(number), Some(value(number, 1000)), "{number}");
    }
    let status = world.devices.status();
    let live: u64 = status.devices.iter().map(|device| device.live_bytes).sum();
    let used: u64 = status.devices.iter().map(|device| device.used_bytes).sum();
    assert!(live > 48 * MIB && used < live * 3 / 2, "{status:#?}");
    let written: u64 = status.devices.iter().map(|device| device.written_bytes).sum();
    assert!(written < 2 * u64::from(count) * 1000, "{written} bytes written");
}

#[test]
fn a_flood_of_writes_waits_for_the_mover_and_is_never_refused() {
    let clock: Arc<dyn Clock> = Arc::new(RealClock);
    let region_bytes = 64 * MIB;
    let config = Config { lanes: None, ..Config::new(region_bytes, region_bytes) };
    let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock.clone(), config);
    let heap = Heap::open(region.unwrap()).unwrap();
    let named = three().iter().enumerate().map(|(n, device)| named_sim(n, device)).collect();
    let devices = Devices::open(&heap, named, clock.clone(), policy(), false).unwrap();
    let options = StoreOptions::default();
    let store = Store::open_with_far(heap, clock, options, devices.clone()).unwrap();
    let (store, mover) = (Arc::new(store), Mover::new(devices.clone()));
    mover.start(Arc::downgrade(&store)).unwrap();
    let mut x = 1u64;
    for round in 0..600_000 {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let number = (x >> 33) as u32 % 250_000;
        let name = format!("key:{number:012}").into_bytes();
        if let Err(error) = store.put(Key::new(&name), &value(number, 1000)) {
            let stats = store.stats();
            panic!(
                "{round}: {error}; {stats:?}, slots {}; {:#?}",
                store.heap().free_slot_bytes(),
                devices.status()
            );
        }
    }
}
