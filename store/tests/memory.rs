//! What a key costs in memory beside its own bytes; docs/measuring.md has the arithmetic.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::Arc;

use perdura_media::{SimClock, SimDevice};
use perdura_region::{Config, Region};
use perdura_store::{Heap, Key, Store, StoreOptions};

const KEY_BYTES: u64 = 16;
/// What is kept of a 64 B grain: its home (4 B), a bit in each of two bitmaps, and two of heat.
const LEDGER_SHARE: f64 = (4.0 + 4.0 / 8.0) / 64.0;

/// Bytes of memory and ledger for each key.
fn bytes_a_key(keys: u64, value_bytes: usize) -> f64 {
    let region_bytes = 512 << 20;
    // Few lanes: each has a span of its own begun, which counts for nothing with millions of keys.
    let config = Config {
        lanes: Some(3),
        thread: false,
        checkpoint_every: None,
        ..Config::new(region_bytes, region_bytes)
    };
    let clock = Arc::new(SimClock::new(1));
    let device = Arc::new(SimDevice::new(0, 1));
    let heap = Heap::open(Region::open(device, clock.clone(), config).unwrap()).unwrap();
    let store = Store::open(heap, clock, StoreOptions::default()).unwrap();
    let free_bytes = store.stats().free_bytes;
    for number in 0..keys {
        let key = format!("user{number:012}");
        store.put(Key::new(key.as_bytes()), &vec![1; value_bytes]).unwrap();
    }
    let used_bytes = (free_bytes - store.stats().free_bytes) as f64;
    used_bytes * (1.0 + LEDGER_SHARE) / keys as f64
}

#[test]
fn a_kilobyte_costs_a_quarter_more_at_most() {
    for value_bytes in [1000, 1024] {
        let data = (KEY_BYTES + value_bytes) as f64;
        let cost = bytes_a_key(200_000, value_bytes as usize);
        assert!(cost <= data * 1.25, "{cost:.0} B for {data} B");
    }
}

#[test]
#[ignore]
fn table_of_costs() {
    for value_bytes in [8u64, 17, 32, 64, 65, 80, 81, 96, 113, 128] {
        let mut line = String::new();
        for tenths in [10, 11, 12, 13, 14, 16, 18, 20] {
            let keys = (1u64 << 18) * tenths / 10;
            let beyond = bytes_a_key(keys, value_bytes as usize) - (KEY_BYTES + value_bytes) as f64;
            line += &format!(" {beyond:.1}");
        }
        println!("{value_bytes}: {line}");
    }
}

#[test]
fn a_small_value_costs_its_slot_and_its_place_in_the_index() {
    // Header 16 B, key, value, rounded up to grains of 64 B; an index entry of 8 B in buckets two thirds full.
    for (value_bytes, most_beyond) in [(8, 85.0), (32, 60.0), (64, 98.0), (96, 66.0)] {
        let cost = bytes_a_key(500_000, value_bytes as usize);
        let beyond = cost - (KEY_BYTES + value_bytes) as f64;
        assert!(beyond <= most_beyond, "{beyond:.0} B beyond {value_bytes} B and the key");
    }
}
