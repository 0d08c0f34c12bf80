//! Victim policies beside each other: SSD bytes per user byte and the writer's time, on one stream of writes.
//!
//! `cargo run --release -p perdura-region --example policies -- [MiB] [updates]`, on the file system of
//! `PERDURA_BENCH_DIR` (default: the working directory). Whole records of 1 KiB, Zipf 0.99, one writer,
//! barrier mode; the same seeded stream for all. Checkpoints are off, so that cleaning is all that writes, or
//! every second. The emergency flush at the end is not counted.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{device, median, places};
use perdura_media::RealClock;
use perdura_region::{BLOCK_BYTES, Config, LaneId, PolicyKind, Region};

const RECORD_BYTES: usize = 1024;
const ROUNDS: usize = 3;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (mib, updates): (u64, u64) = (number(256), number(2_000_000));
    let region_bytes = mib << 20;
    let stream = places(region_bytes, updates, true, RECORD_BYTES as u64);
    println!(
        "{mib} MiB, {updates} updates of 1 KiB, Zipf 0.99; medians of {ROUNDS} interleaved rounds"
    );
    println!(
        "{:<24} {:>8} {:>12} {:>16} {:>12}",
        "", "budget", "checkpoints", "SSD B / user B", "ns an update"
    );
    for checkpoint_every in [None, Some(Duration::from_secs(1))] {
        for percent in [2, 11, 46] {
            let mut cells = vec![(Vec::new(), Vec::new()); PolicyKind::ALL.len()];
            for _ in 0..ROUNDS {
                for (policy, cell) in PolicyKind::ALL.into_iter().zip(&mut cells) {
                    let budget_bytes = region_bytes / 100 * percent;
                    let config = Config {
                        policy,
                        checkpoint_every,
                        lanes: Some(1),
                        ..Config::new(region_bytes, budget_bytes)
                    };
                    let (amplification, ns) = run(config, &stream);
                    cell.0.push(amplification);
                    cell.1.push(ns);
                }
            }
            for (policy, (amplification, ns)) in PolicyKind::ALL.into_iter().zip(cells) {
                println!(
                    "{:<24} {percent:>6} % {:>12} {:>16.3} {:>12.0}",
                    policy.name(),
                    checkpoint_every.map_or("none".into(), |every| format!("{every:?}")),
                    median(amplification),
                    median(ns)
                );
            }
        }
    }
}

/// SSD bytes per user byte, nanoseconds an update.
fn run(config: Config, stream: &[u64]) -> (f64, f64) {
    let (device, _dir) = device();
    let region = Region::open(device, Arc::new(RealClock), config).unwrap();
    for block in 0..region.len_bytes() / BLOCK_BYTES {
        region.assign_block(block, LaneId(0));
    }
    // Every page is there, and everything has been written once.
    let all: Vec<u64> = (0..region.len_bytes()).step_by(RECORD_BYTES).collect();
    update(&region, &all);
    region.checkpoint().unwrap();
    let before = region.stats();
    let began = Instant::now();
    update(&region, stream);
    let ns = began.elapsed().as_nanos() as f64 / stream.len() as f64;
    let written = region.stats().device_bytes - before.device_bytes;
    (written as f64 / (stream.len() * RECORD_BYTES) as f64, ns)
}

fn update(region: &Region, stream: &[u64]) {
    let mut record = [0u8; RECORD_BYTES];
    for (value, place) in stream.iter().enumerate() {
        record[..8].copy_from_slice(&(value as u64).to_le_bytes());
        let mut credit = 0;
        loop {
            let mut lane = region.lock_with(LaneId(0), credit);
            let need = match lane.write(*place, &record) {
                Ok(()) => break,
                Err(need) => need,
            };
            drop(lane);
            credit = region.satisfy(need).unwrap();
        }
    }
}
