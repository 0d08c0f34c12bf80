//! Stores that trap, in schedules that a seed draws: two threads that just store, the cleaner, and
//! a thread that makes checkpoints.
//!
//! The fault of a store is served on its own thread by a signal handler, which nothing may unwind
//! out of. So nobody is killed. When all threads have ended, a holder flushes, and the image must
//! have every byte that is in memory.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};

use perdura_dirty::schedule;
use perdura_media::{FaultPlan, RealClock, SimDevice};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::turns::Turns;
use super::{BLOCKS, Forward, copy, seeds};
use crate::tests::beside::device::{Beside, Writer};
use crate::{
    Attachment, BLOCK_BYTES, Config, FlushOptions, Planted, Region, TrackingKind, TrapKind,
};

const REGION_BYTES: u64 = BLOCKS * BLOCK_BYTES;
const PAGE_BYTES: u64 = 4096;
/// Stores of one thread.
const STORES: u32 = 250;
/// Most stores go to one of these pages.
const PAGES: u64 = 12;
/// Pages that are cleaned at once, though the budget has room for all: where it has none, stores
/// wait for the device, and seldom meet a page that was just released.
const CLEANED_PAGES: u64 = 4;

fn settings(seed: u64, kind: TrapKind, planted: Planted) -> Config {
    Config {
        segment_bytes: Some(64 << 10),
        checkpoint_every: None,
        log_percent: 300,
        seed,
        planted,
        tracking: TrackingKind::Trap(kind),
        ..Config::new(REGION_BYTES, REGION_BYTES)
    }
}

fn stores(region: &Region, seed: u64) {
    let mut random = Random::seed_from_u64(seed);
    let words = region.running().backed.memory.map.words(0, (REGION_BYTES / 8) as usize);
    for _ in 0..STORES {
        schedule::point();
        let pages = if random.random_ratio(7, 8) { PAGES } else { REGION_BYTES / PAGE_BYTES };
        let page = random.random_range(0..pages);
        let place = (page * PAGE_BYTES + random.random_range(0..PAGE_BYTES)) / 8;
        words[place as usize].store(random.random(), SeqCst);
    }
}

/// Runs one schedule. Panics if something was lost.
fn run(seed: u64, kind: TrapKind, planted: Planted) {
    let mut random = Random::seed_from_u64(seed);
    let device = SimDevice::new(0, seed);
    let writer = Writer::default();
    let beside = Beside::new(device.clone(), Arc::new(FaultPlan::default()), writer.clone());
    let turns = Turns::new(random.random(), u64::MAX, Box::new(|| {}));
    let clock = Arc::new(Forward(turns));
    // A region that traps is refused without its thread, whose part one of the four takes here.
    let config = Config { thread: false, ..settings(seed, kind, planted) };
    let region = Arc::new(Region::create(Arc::new(beside), clock, config).unwrap());
    *writer.lock() = Some(Box::new(|_| schedule::point()));
    let left = Arc::new(AtomicU64::new(2));
    let seeds: [u64; 2] = random.random();
    let threads = std::array::from_fn(|number| -> Box<dyn FnOnce() + Send> {
        let (region, left) = (Arc::clone(&region), Arc::clone(&left));
        Box::new(move || {
            told(seed, kind, planted, || match number {
                0 | 1 => {
                    stores(&region, seeds[number]);
                    left.fetch_sub(1, SeqCst);
                }
                2 => {
                    while left.load(SeqCst) > 0 {
                        let backed = &region.running().backed;
                        let mut cleaner = region.running().any_cleaner();
                        cleaner.tick(backed, false).unwrap();
                        cleaner.clean(backed, CLEANED_PAGES * PAGE_BYTES).unwrap();
                        drop(cleaner);
                        schedule::point();
                    }
                }
                _ => {
                    while left.load(SeqCst) > 0 {
                        region.checkpoint().unwrap();
                        (0..2_000).for_each(|_| schedule::point());
                    }
                }
            });
        })
    });
    turns.run(threads);
    *writer.lock() = None;
    let memory = &region.running().backed.memory;
    let expected = memory.map.words(0, (REGION_BYTES / 8) as usize);
    let holder = Attachment::new(copy(&memory.file), copy(memory.ledger.memory())).unwrap();
    holder.flush(&device, FlushOptions { threads: 1, unix_ms: 7 }).unwrap();
    let device = Arc::new(device.power_cycle(random.random()));
    let clock = Arc::new(RealClock);
    let found = Region::open(device, clock, settings(seed, kind, Planted::None)).unwrap();
    let found = found.running().backed.memory.map.words(0, (REGION_BYTES / 8) as usize);
    let differs = found
        .iter()
        .zip(expected)
        .position(|(found, expected)| found.load(Relaxed) != expected.load(Relaxed));
    assert_eq!(differs, None, "a store was not flushed");
}

/// Runs a thread of a schedule. Its panic is told at once: the other threads, which it ends, may be
/// in signal handlers, and then the program is aborted.
fn told(seed: u64, kind: TrapKind, planted: Planted, f: impl FnOnce()) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(f)) else { return };
    let text = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
    let test = "cargo test -p perdura-region --lib tests::schedules::trapped";
    let told =
        format!("{text}\nin {kind:?} with {planted:?}; replay: PERDURA_SEED={seed} {test}\n");
    let _ = std::io::stderr().write_all(told.as_bytes());
    resume_unwind(panic);
}

/// The ways of trapping that serve a fault on its own thread. The second is not granted everywhere.
fn kinds() -> impl Iterator<Item = TrapKind> {
    let is_granted = |kind: &TrapKind| {
        let (device, clock) = (Arc::new(SimDevice::new(0, 0)), Arc::new(RealClock));
        *kind == TrapKind::Mprotect
            || Region::open(device, clock, settings(0, *kind, Planted::None)).is_ok()
    };
    [TrapKind::Mprotect, TrapKind::UffdSigbus].into_iter().filter(is_granted)
}

#[test]
fn stores_cleaner_and_checkpoint_lose_nothing_in_any_schedule() {
    for kind in kinds() {
        for seed in seeds() {
            told(seed, kind, Planted::None, || run(seed, kind, Planted::None));
        }
    }
}

#[test]
fn pages_that_cease_to_be_dirty_after_their_release_are_caught_by_a_schedule() {
    for bug in Planted::SCHEDULED_TRAPPED {
        let is_caught = |seed: &u64| {
            let ended = catch_unwind(AssertUnwindSafe(|| run(*seed, TrapKind::Mprotect, bug)));
            ended.is_err_and(|panic| {
                let text = panic.downcast_ref::<String>().map_or("", String::as_str);
                text.contains("a store was not flushed") || text.contains("is clean")
            })
        };
        let caught = (0..super::SEEDS).find(is_caught);
        println!("{}: caught by seed {caught:?}", bug.name());
        assert!(caught.is_some(), "{} is not caught", bug.name());
    }
}
