//! The memory that a key takes beside its own bytes; docs/measuring/store.md has the arithmetic.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::Arc;

use perdura_media::{SimClock, SimDevice};
use perdura_region::{Config, Region};
use perdura_store::{Access, Heap, Key, Store, StoreOptions};

const KEY_BYTES: u64 = 16;
/// The ledger's bytes for a 64 B grain: its location (2 B), a bit in each of two bitmaps, and two
/// bits of heat.
const LEDGER_SHARE: f64 = (2.0 + 4.0 / 8.0) / 64.0;

fn store() -> (Store, u64) {
    let region_bytes = 512 << 20;
    // Few lanes: each has blocks of its own begun, which counts for nothing with millions of keys.
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
    (store, free_bytes)
}

/// Bytes of memory and ledger for each key of a store that grows, at each of these numbers of keys,
/// which ascend.
fn bytes_a_key(keys: &[u64], value_bytes: u64) -> Vec<f64> {
    let (store, free_bytes) = store();
    let (mut count, value) = (0, vec![1; value_bytes as usize]);
    let mut grow = |keys: u64| {
        while count < keys {
            store.put(Key::new(format!("user{count:012}").as_bytes()), &value).unwrap();
            count += 1;
        }
        let used_bytes = (free_bytes - store.stats().free_bytes) as f64;
        used_bytes * (1.0 + LEDGER_SHARE) / keys as f64
    };
    keys.iter().map(|keys| grow(*keys)).collect()
}

#[test]
fn a_kilobyte_costs_a_quarter_more_at_most() {
    for value_bytes in [1000, 1024] {
        let data = (KEY_BYTES + value_bytes) as f64;
        let cost = bytes_a_key(&[200_000], value_bytes)[0];
        assert!(cost <= data * 1.25, "{cost:.0} B for {data} B");
    }
}

/// Beyond key and value, in the worst case (a record of 65 B, so 49 B of key and value): 8 B of
/// header; 31 B to the next size (32, 64, 80, 96, 128, 144, 160 B); 12.7 to 13.2 B of index, for
/// entries of 8 B lie seven to a bucket of 64 B and every other bucket in split order is half as
/// full as those not split yet, and at most a sixteenth of the buckets' 9 B more, made ahead of
/// need; 2.5 B of ledger for each grain of 64 B: 8 + 31 + 13.8 + 4.3 = 57.
const MOST_BEYOND: f64 = 60.0;

#[test]
fn a_small_key_costs_sixty_bytes_at_most_wherever_the_index_is_in_its_growth() {
    // The shortest, those that round up most, and the longest.
    for value_bytes in [8, 9, 73, 128] {
        // A doubling, and where a table has just doubled.
        let keys = [64, 66, 90, 120].map(|parts| parts << 12);
        for (keys, cost) in keys.into_iter().zip(bytes_a_key(&keys, value_bytes)) {
            let beyond = cost - (KEY_BYTES + value_bytes) as f64;
            assert!(
                beyond <= MOST_BEYOND,
                "{beyond:.1} B beyond {value_bytes} B and its key, {keys} keys"
            );
        }
    }
}

#[test]
fn a_hash_with_a_table_grows_in_small_steps() {
    let (store, _) = store();
    let key = Key::new(b"large");
    for field in 0..20_000u32 {
        let name = format!("field{field:08}");
        store.run(Access::Key(key), |tx| tx.hash_set(key, name.as_bytes(), b"12345678")).unwrap();
        if field % 997 == 996 {
            let bytes = store.read(key, |entry| entry.unwrap().memory_bytes()) as f64;
            // A field of 32 B; a list takes more of a small table.
            let beyond = bytes / f64::from(field + 1) - 21.0;
            assert!(beyond <= 30.0, "{beyond:.1} B beyond each of {field} fields");
        }
    }
}
