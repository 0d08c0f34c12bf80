//! Measures the cleaner alone: nanoseconds of processor time for each record that is cleaned, and
//! for each that a checkpoint drains. Records lie scattered over the region and are dirtied by
//! another thread, so nothing about them is in a cache of the cleaner.
//!
//! `cargo run --release -p perdura-region --example cleaning_cost -- [MiB] [percent dirty]
//! [rounds]`, on the file system of `PERDURA_BENCH_DIR` (default: the working directory).
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "places are for stores of other sizes")]
mod measuring;

use std::sync::Arc;
use std::time::Instant;

use measuring::{device, median};
use perdura_media::RealClock;
use perdura_region::{BLOCK_BYTES, Config, LaneId, Region};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

/// Bytes of a record of a kilobyte with its key and header, as the store keeps it.
const RECORD_BYTES: u64 = 1088;
const RECORDS_PER_BLOCK: u64 = BLOCK_BYTES / RECORD_BYTES;
const LANES: u64 = 128;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (mib, percent, rounds): (u64, u64, u64) = (number(1024), number(10), number(8));
    let (region_bytes, budget_bytes) = (mib << 20, (mib << 20) / 100 * percent * 3 / 2);
    let config = Config {
        checkpoint_every: None,
        thread: false,
        lanes: Some(LANES as u16),
        ..Config::new(region_bytes, budget_bytes)
    };
    let (device, _dir) = device();
    let region = Region::open(device, Arc::new(RealClock), config).unwrap();
    for block in 0..region_bytes / BLOCK_BYTES {
        region.lock(LaneId(0)).adopt_block(block);
        region.assign_block(block, LaneId((block % LANES) as u16));
    }
    let records = region_bytes / BLOCK_BYTES * RECORDS_PER_BLOCK;
    let mut random = Random::seed_from_u64(1);
    let all: Vec<u64> = (0..records).collect();
    for part in all.chunks((records / 10) as usize) {
        dirty(&region, part);
        region.checkpoint().unwrap();
    }
    let (mut cleaned, mut drained) = (Vec::new(), Vec::new());
    let (mut cleaned_wall, mut drained_wall) = (Vec::new(), Vec::new());
    for round in 0..rounds * 2 {
        let count = records / 100 * percent;
        let some: Vec<u64> = (0..count).map(|_| random.random_range(0..records)).collect();
        std::thread::scope(|scope| {
            let writer = std::thread::Builder::new().name("writer".into());
            writer.spawn_scoped(scope, || dirty(&region, &some)).unwrap();
        });
        let before = region.stats();
        let (began, cpu_before) = (Instant::now(), cpu_ns());
        if round % 2 == 0 {
            region.set_budget(budget_bytes / 100).unwrap();
        } else {
            region.checkpoint().unwrap();
        }
        let (cpu, wall) = (cpu_ns() - cpu_before, began.elapsed().as_nanos() as u64);
        let after = region.stats();
        region.set_budget(budget_bytes).unwrap();
        let bytes = after.cleaned_bytes - before.cleaned_bytes + after.drained_bytes
            - before.drained_bytes
            + after.compacted_bytes
            - before.compacted_bytes;
        let copied = bytes as f64 / RECORD_BYTES as f64;
        let (cpus, walls) = match round % 2 {
            0 => (&mut cleaned, &mut cleaned_wall),
            _ => (&mut drained, &mut drained_wall),
        };
        cpus.push(cpu as f64 / copied);
        walls.push(wall as f64 / copied);
    }
    println!("{mib} MiB, {percent} % dirty, {rounds} rounds of each, {RECORD_BYTES} B a record");
    for (name, cpus, walls) in
        [("cleaned", cleaned, cleaned_wall), ("drained", drained, drained_wall)]
    {
        println!(
            "{name}: {:.0} ns of processor time a record ({:.0} to {:.0}), {:.0} ns of time",
            median(cpus.clone()),
            cpus.iter().copied().fold(f64::INFINITY, f64::min),
            cpus.iter().copied().fold(0.0, f64::max),
            median(walls),
        );
    }
}

fn dirty(region: &Region, records: &[u64]) {
    let bytes = [7; RECORD_BYTES as usize];
    for record in records {
        let (block, slot) = (record / RECORDS_PER_BLOCK, record % RECORDS_PER_BLOCK);
        let place = block * BLOCK_BYTES + slot * RECORD_BYTES;
        let mut credit = 0;
        loop {
            let mut lane = region.lock_with(LaneId((block % LANES) as u16), credit);
            let Err(need) = lane.write(place, &bytes) else { break };
            drop(lane);
            credit = region.satisfy(need).unwrap();
        }
    }
}

/// Processor time of this thread, nanoseconds.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}
