//! Nanoseconds an operation, one thread, against a sharded hash map in DRAM in the same run.
//!
//! `cargo run --release -p perdura-store --example bench -- [records] [operations] [budget_percent]`, on the
//! file system of `PERDURA_BENCH_DIR` (default `/tmp`).
//!
//! 16 B keys, 1 KiB values, plain Zipf 0.99 over the records. A: half reads, half updates; C: reads. With
//! `PERDURA_BENCH_CHECKPOINT_S` seconds between checkpoints (default 1; 0: none). What went to the SSD is shown
//! beside what the user wrote in the updates.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use perdura_media::RealClock;
use perdura_media::file::{Direct, Engine, FileDevice, OpenMode};
use perdura_region::{Config, Region};
use perdura_store::{Heap, Key, Store, StoreOptions};
use rand::distr::Distribution;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const VALUE_BYTES: usize = 1024;
const SHARDS: usize = 64;
const SEED: u64 = 42;

struct Shards(Vec<Mutex<HashMap<Vec<u8>, Vec<u8>>>>, std::hash::RandomState);

impl Shards {
    fn of(&self, key: &[u8]) -> &Mutex<HashMap<Vec<u8>, Vec<u8>>> {
        &self.0[self.1.hash_one(key) as usize % SHARDS]
    }
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"user000000000000";
    // Scattered, so that neighbours in rank are not neighbours in memory.
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    key[4..12].copy_from_slice(&scattered.to_le_bytes());
    key
}

fn measure(name: &str, keys: &[u64], mut op: impl FnMut(usize, [u8; 16])) -> f64 {
    let began = Instant::now();
    for (index, number) in keys.iter().enumerate() {
        op(index, key(*number));
    }
    let ns = began.elapsed().as_nanos() as f64 / keys.len() as f64;
    println!("{name:<28} {ns:8.0} ns/op");
    ns
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = |index: usize, default: u64| {
        std::env::args().nth(index).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (records, operations) = (argument(1, 1_000_000), argument(2, 2_000_000));
    let region_bytes = (records * 1500).max(64 << 20);
    let budget_bytes = region_bytes / 100 * argument(3, 100).max(1);
    let dir = tempfile::tempdir_in(std::env::var("PERDURA_BENCH_DIR").unwrap_or("/tmp".into()))?;
    let create = OpenMode::Create { capacity_bytes: 1 << 20 };
    let device = FileDevice::open(&dir.path().join("image"), create, Engine::Auto, Direct::Auto)?;
    let clock = Arc::new(RealClock);
    let config = Config {
        reserved_bytes: Some(region_bytes * 2),
        checkpoint_every: checkpoint_every()?,
        ..Config::new(region_bytes, budget_bytes)
    };
    let region = Region::open(Arc::new(device), clock.clone(), config)?;
    let store = Store::open(Heap::open(region)?, clock, StoreOptions::default())?;
    let map = (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect();
    let map = Shards(map, std::hash::RandomState::new());

    let mut random = Random::seed_from_u64(SEED);
    let zipf = rand_distr::Zipf::new(records as f64, 0.99)?;
    let drawn: Vec<u64> = (0..operations).map(|_| zipf.sample(&mut random) as u64 - 1).collect();
    let coin: Vec<bool> = (0..operations).map(|_| random.random()).collect();
    let all: Vec<u64> = (0..records).collect();
    let mut value = vec![7u8; VALUE_BYTES];
    println!("{records} records, {operations} operations, budget {} MiB", budget_bytes >> 20);

    measure("map    load", &all, |_, key| {
        map.of(&key).lock().insert(key.to_vec(), value.clone());
    });
    measure("store  load", &all, |_, key| {
        if let Err(error) = store.put(Key::new(&key), &value) {
            panic!("{error}");
        }
    });
    let read_map = |key: &[u8]| {
        let sum = map.of(key).lock().get(key).map_or(0, |value| sum(value));
        black_box(sum);
    };
    let read_store = |key: &[u8]| {
        let sum = store
            .read(Key::new(key), |entry| entry.and_then(|entry| entry.string()).map_or(0, sum));
        black_box(sum);
    };
    let before = store.region().stats();
    for _ in 0..2 {
        let base = measure("map    C", &drawn, |_, key| read_map(&key));
        let ours = measure("store  C", &drawn, |_, key| read_store(&key));
        println!("{:<28} {:8.2} of the map's throughput", "C", base / ours);
        let base = measure("map    A", &drawn, |index, key| {
            if coin[index] {
                return read_map(&key);
            }
            value[0] = index as u8;
            map.of(&key).lock().insert(key.to_vec(), value.clone());
        });
        let ours = measure("store  A", &drawn, |index, key| {
            if coin[index] {
                return read_store(&key);
            }
            value[0] = index as u8;
            if let Err(error) = store.put(Key::new(&key), &value) {
                panic!("{error}");
            }
        });
        println!("{:<28} {:8.2} of the map's throughput", "A", base / ours);
    }
    let stats = store.region().stats();
    let user_bytes = 2 * coin.iter().filter(|read| !**read).count() * (16 + VALUE_BYTES);
    let share = |after: u64, before: u64| (after - before) as f64 / user_bytes as f64;
    println!(
        "SSD bytes per user byte {:.3}: cleaned {:.3}, drained {:.3}, captured {:.3}, compacted {:.3}",
        share(stats.device_bytes, before.device_bytes),
        share(stats.cleaned_bytes, before.cleaned_bytes),
        share(stats.drained_bytes, before.drained_bytes),
        share(stats.captured_bytes, before.captured_bytes),
        share(stats.compacted_bytes, before.compacted_bytes),
    );
    println!("stalls {} of {} ms", stats.stalls, stats.stall_ns / 1_000_000);
    Ok(())
}

fn checkpoint_every() -> Result<Option<Duration>, std::num::ParseIntError> {
    let seconds = match std::env::var("PERDURA_BENCH_CHECKPOINT_S") {
        Ok(text) => text.parse()?,
        Err(_) => 1,
    };
    Ok((seconds > 0).then(|| Duration::from_secs(seconds)))
}

/// Touches the value as a reader would. Kept out of line, so that both sides run the same code.
#[inline(never)]
fn sum(value: &[u8]) -> u64 {
    let (words, _) = value.as_chunks::<8>();
    words.iter().fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}
