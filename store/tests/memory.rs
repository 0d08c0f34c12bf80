//! The memory that a key takes beside its own bytes; docs/measuring/store.md has the arithmetic.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use std::sync::Arc;

use perdura_media::{SimClock, SimDevice};
use perdura_region::{Config, Region};
use perdura_store::{Access, End, Heap, Key, Store, StoreOptions};

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

/// Bytes of Redis 7.2.6 for an element of a hundred, with jemalloc, as docs/measuring/memory.md has
/// them: of a list, a set, a hash, a sorted set, with elements or values of 8 and of 64 B.
const REDIS: [[f64; 2]; 4] = [[11.1, 72.5], [11.1, 72.5], [21.3, 82.8], [18.8, 82.8]];

#[test]
fn collections_of_a_hundred_elements_take_no_more_than_in_redis() {
    const KEYS: u32 = 300;
    for (kind, most) in REDIS.iter().enumerate() {
        for (bytes, most) in [8, 64].into_iter().zip(most) {
            let (store, _) = store();
            let used_bytes = store.used_bytes();
            for element in 0..100 {
                let name = format!("{:x<bytes$}", format!("e{element:07}"));
                for key in 0..KEYS {
                    let key = format!("key:{key:012}");
                    let (key, name) = (Key::new(key.as_bytes()), name.as_bytes());
                    let field = format!("f{element:07}");
                    let one = || std::iter::once(name);
                    let done = store.run(Access::Key(key), |tx| match kind {
                        0 => tx.list_push(key, End::Back, one()).map(drop),
                        1 => tx.set_add_all(key, one()).map(drop),
                        2 => tx.hash_set(key, field.as_bytes(), name).map(drop),
                        _ => tx.sorted_add(key, name, f64::from(element)).map(drop),
                    });
                    done.unwrap();
                }
            }
            let cost = (store.used_bytes() - used_bytes) as f64 / f64::from(KEYS * 100);
            // What slots leave unused of their runs is counted here, and is not by Redis.
            assert!(cost <= *most * 1.02, "{cost:.1} B of {most}: kind {kind}, {bytes} B");
        }
    }
}
