//! Measures the cost of tracking writes: nanoseconds for each first write to a page and for each
//! store, untracked, announced and trapped, in one run. Each figure is the median of pairs, in
//! which the mode and its untracked baseline take turns.
//!
//! `cargo run --release -p perdura-region --example tracking_cost -- [MiB] [stores] [mode]`, on the
//! file system of `PERDURA_BENCH_DIR` (default: the working directory), with checkpoints every
//! second.
#![allow(clippy::unwrap_used)]

mod measuring;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use measuring::{device, median, places};
use perdura_media::RealClock;
use perdura_region::{
    BLOCK_BYTES, Config, LaneId, OpenError, Region, SetupError, TrackingKind, TrapKind,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const PAGE: u64 = 4096;
const PAIRS: usize = 3;
const BUDGETS_PERCENT: [u64; 4] = [2, 11, 46, 100];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (mib, stores): (u64, u64) = (number(256), number(1_000_000));
    let region_bytes = mib << 20;
    let uniform = places(region_bytes, stores, false, 8);
    let zipf = places(region_bytes, stores, true, 8);
    println!("{mib} MiB, {stores} stores of 8 B, medians of {PAIRS} pairs, one writer, seed 1");
    println!(
        "{:<44} {:>6} {:>12} {:>12} {:>12}",
        "", "budget", "first write", "uniform", "Zipf 0.99"
    );
    println!("{:<44} {:>6} {:>12} {:>12} {:>12}", "", "%", "ns (base)", "ns (base)", "ns (base)");
    let only = arguments.next();
    let modes = [
        TrackingKind::Barrier,
        TrackingKind::Trap(TrapKind::UffdSigbus),
        TrackingKind::Trap(TrapKind::UffdThread),
        TrackingKind::Trap(TrapKind::Mprotect),
    ];
    for mode in modes {
        if only.as_ref().is_some_and(|only| !name(mode).contains(only)) {
            continue;
        }
        for percent in BUDGETS_PERCENT {
            let budget_bytes = region_bytes / 100 * percent;
            let first = if percent == 100 {
                paired(mode, region_bytes, budget_bytes, &one_per_page(region_bytes))
            } else {
                None
            };
            let cells = [
                first,
                paired(mode, region_bytes, budget_bytes, &uniform),
                paired(mode, region_bytes, budget_bytes, &zipf),
            ];
            let [first, uniform, zipf] = cells.map(|cell| match cell {
                Some((ns, base)) => format!("{ns:.0} ({base:.0})"),
                None => "-".into(),
            });
            println!("{:<44} {percent:>6} {first:>12} {uniform:>12} {zipf:>12}", name(mode));
        }
    }
}

fn name(mode: TrackingKind) -> String {
    match mode {
        TrackingKind::Barrier => "barrier (64 B grains)".into(),
        TrackingKind::Trap(kind) => format!("trap {kind:?} (4 KiB grains)"),
    }
}

/// Nanoseconds for each store in the mode and in plain memory, medians of pairs. `None` means that
/// the system refuses the mode.
fn paired(
    mode: TrackingKind,
    region_bytes: u64,
    budget_bytes: u64,
    places: &[u64],
) -> Option<(f64, f64)> {
    let (mut tracked, mut base) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let (device, _dir) = device();
        let config = Config {
            tracking: mode,
            checkpoint_every: Some(Duration::from_secs(1)),
            lanes: Some(1),
            ..Config::new(region_bytes, budget_bytes)
        };
        let region = match Region::open(device, Arc::new(RealClock), config) {
            Ok(region) => region,
            Err(OpenError::Setup(SetupError::Tracking { .. })) => return None,
            Err(error) => panic!("{error}"),
        };
        tracked.push(match region.trapped() {
            Some(memory) => per_store(memory.as_ptr(), region_bytes, places),
            None => announced(&region, places),
        });
        let mut plain = vec![1u64; region_bytes as usize / 8];
        base.push(per_store(plain.as_mut_ptr().cast(), region_bytes, places));
    }
    Some((median(tracked), median(base)))
}

/// Every page is read first, so that no figure contains the kernel's cost of new memory.
fn per_store(base: *mut u8, region_bytes: u64, places: &[u64]) -> f64 {
    let word = |at: u64| {
        // SAFETY: `base` is valid for `region_bytes`, the places are aligned and inside, and only
        // this thread uses them.
        unsafe { &*base.add(at as usize).cast::<AtomicU64>() }
    };
    let mut sum = 0;
    for page in 0..region_bytes / PAGE {
        sum |= word(page * PAGE).load(Ordering::Relaxed);
    }
    std::hint::black_box(sum);
    let began = Instant::now();
    for (value, place) in places.iter().enumerate() {
        word(*place).store(value as u64 | 1, Ordering::Relaxed);
    }
    began.elapsed().as_nanos() as f64 / places.len() as f64
}

/// Measures like [`per_store`], by a writer that announces, and locks a lane for every store as an
/// operation of a shard does.
fn announced(region: &Region, places: &[u64]) -> f64 {
    for block in 0..region.len_bytes() / BLOCK_BYTES {
        region.assign_block(block, LaneId(0));
    }
    let guard = region.lock(LaneId(0));
    let sum = (0..region.len_bytes() / PAGE).fold(0, |sum, page| sum | guard.load(page * PAGE));
    std::hint::black_box(sum);
    drop(guard);
    let began = Instant::now();
    for (value, place) in places.iter().enumerate() {
        let mut credit = 0;
        loop {
            let need = match region.lock_with(LaneId(0), credit).store(*place, value as u64 | 1) {
                Ok(()) => break,
                Err(need) => need,
            };
            credit = region.satisfy(need).unwrap();
        }
    }
    began.elapsed().as_nanos() as f64 / places.len() as f64
}

/// Stores to a quarter of the pages in random order. That is below the threshold of cleaning, so
/// only the fault path is measured.
fn one_per_page(region_bytes: u64) -> Vec<u64> {
    let mut pages: Vec<u64> = (0..region_bytes / PAGE).map(|page| page * PAGE).collect();
    let mut random = Random::seed_from_u64(1);
    for index in (1..pages.len()).rev() {
        pages.swap(index, random.random_range(0..=index));
    }
    pages.truncate(pages.len() / 4);
    pages
}
