//! Measures the cost of capacity memory: nanoseconds for each store to capacity blocks of a trapped
//! region and to a plain allocation of the same size, in turn (medians of pairs), and the cost of
//! changing a block's kind.
//!
//! `cargo run --release -p perdura-region --example capacity_cost -- [MiB] [stores]`, on the file
//! system of `PERDURA_BENCH_DIR` (default: the working directory), with checkpoints every second.
#![allow(clippy::unwrap_used)]

mod measuring;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use measuring::{device, median, places};
use perdura_media::RealClock;
use perdura_region::{
    BLOCK_BYTES, Config, Kind, OpenError, Region, SetupError, TrackingKind, TrapKind,
};

const PAGE: u64 = 4096;
const PAIRS: usize = 5;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (mib, stores): (u64, u64) = (number(256), number(3_000_000));
    let bytes = mib << 20;
    let first = (0..bytes / PAGE).map(|page| page * PAGE).collect::<Vec<_>>();
    let in_order = (0..stores).map(|word| word * 8 % bytes).collect::<Vec<_>>();
    let loads = [
        ("first store to each page", first),
        ("uniform", places(bytes, stores, false, 8)),
        ("Zipf 0.99", places(bytes, stores, true, 8)),
        ("in order", in_order),
    ];
    println!("{mib} MiB, {stores} stores of 8 B, medians of {PAIRS} pairs, one writer, seed 1");
    println!("{:<12} {:<26} {:>12} {:>12} {:>8}", "", "", "capacity ns", "plain ns", "ratio");
    for kind in [TrapKind::UffdSigbus, TrapKind::Mprotect] {
        let (device, _dir) = device();
        let config = Config {
            tracking: TrackingKind::Trap(kind),
            checkpoint_every: Some(Duration::from_secs(1)),
            ..Config::new(2 * bytes, bytes / 8)
        };
        let region = match Region::open(device, Arc::new(RealClock), config) {
            Ok(region) => region,
            Err(error @ OpenError::Setup(SetupError::Tracking { .. })) => {
                println!("{kind:?}: {error}");
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        for (name, places) in &loads {
            let (mut capacity, mut plain) = (Vec::new(), Vec::new());
            for _ in 0..PAIRS {
                let is_first = places.len() as u64 == bytes / PAGE;
                if is_first {
                    // The block was emptied, so its pages are new.
                    region.set_kind(0..bytes / BLOCK_BYTES, Kind::Persistent).unwrap();
                }
                region.set_kind(0..bytes / BLOCK_BYTES, Kind::Capacity).unwrap();
                let mut fresh = Vec::<u64>::with_capacity(bytes as usize / 8);
                if !is_first {
                    fresh.resize(bytes as usize / 8, 1);
                }
                plain.push(per_store(fresh.as_mut_ptr().cast(), places));
                let base = region.trapped().unwrap().as_ptr();
                if !is_first {
                    per_store(base, &loads[0].1);
                }
                capacity.push(per_store(base, places));
            }
            let (capacity, plain) = (median(capacity), median(plain));
            let ratio = capacity / plain;
            println!(
                "{:<12} {name:<26} {capacity:>12.1} {plain:>12.1} {ratio:>8.2}",
                format!("{kind:?}")
            );
        }
        let blocks = bytes / BLOCK_BYTES;
        // Only a part of the blocks: each of their pages that has a copy in the image is written as
        // zeros.
        let located = blocks..blocks + blocks / 8;
        for place in (located.start * BLOCK_BYTES..located.end * BLOCK_BYTES).step_by(PAGE as usize)
        {
            per_store(region.trapped().unwrap().as_ptr(), &[place]);
        }
        region.checkpoint().unwrap();
        for (name, range, to) in [
            ("capacity to persistent", 0..blocks, Kind::Persistent),
            ("persistent, never written", 0..blocks, Kind::Capacity),
            ("persistent, in the image", located, Kind::Capacity),
        ] {
            let count = range.end - range.start;
            let began = Instant::now();
            region.set_kind(range, to).unwrap();
            let block_us = began.elapsed().as_nanos() as f64 / 1000.0 / count as f64;
            println!("{:<12} {name:<26} {block_us:>12.1} us a block changed", format!("{kind:?}"));
        }
    }
}

fn per_store(base: *mut u8, places: &[u64]) -> f64 {
    let began = Instant::now();
    for (value, place) in places.iter().enumerate() {
        // SAFETY: the places are aligned and inside the memory at `base`, which lives; only this
        // thread uses it.
        let word = unsafe { &*base.add(*place as usize).cast::<AtomicU64>() };
        word.store(value as u64 | 1, Ordering::Relaxed);
    }
    began.elapsed().as_nanos() as f64 / places.len() as f64
}
