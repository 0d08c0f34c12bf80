//! Every change that makes room wakes the threads that wait for room: none sleeps for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use perdura_media::{Clock, RealClock, SimDevice};
use perdura_region::{BLOCK_BYTES, BUDGET_MIN_BYTES, Config, LaneId, Region};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use rustix::thread::futex;

/// A clock whose waits end only by a wake-up, so that a thread whose wake-up is lost sleeps for
/// ever.
struct Patient;

impl Clock for Patient {
    fn now_ns(&self) -> u64 {
        RealClock.now_ns()
    }
    fn unix_ms(&self) -> u64 {
        RealClock.unix_ms()
    }
    fn thread_cpu_ns(&self) -> u64 {
        RealClock.thread_cpu_ns()
    }
    fn sleep_ns(&self, duration_ns: u64) {
        RealClock.sleep_ns(duration_ns);
    }
    fn wait_change(&self, word: &AtomicU32, seen: u32, _longest: Duration) {
        let _ = futex::wait(word, futex::Flags::PRIVATE, seen, None);
    }
}

const THREADS: u64 = 6;
const LANES: u16 = 4;
const BLOCKS: u64 = 64;
/// Far longer than the writers need, so that a slow machine does not count as a thread that sleeps.
const LONGEST: Duration = Duration::from_secs(300);

fn write(region: &Region, seed: u64, writes: u64) {
    let mut random = Random::seed_from_u64(seed);
    for _ in 0..writes {
        let block = random.random_range(0..BLOCKS);
        let len = [64, 1024, 40_000][random.random_range(0..3)];
        let offset = block * BLOCK_BYTES + random.random_range(0..(BLOCK_BYTES - len) / 64) * 64;
        let lane = LaneId((block % u64::from(LANES)) as u16);
        let mut credit = 0;
        loop {
            let mut held = region.lock_with(lane, std::mem::take(&mut credit));
            let Err(need) = held.announce(offset, len) else { break };
            drop(held);
            credit = region.satisfy(need).unwrap();
        }
    }
}

fn open(seed: u64) -> Arc<Region> {
    let config = Config {
        lanes: Some(LANES),
        thread: false,
        checkpoint_every: None,
        ..Config::new(BLOCKS * BLOCK_BYTES, BUDGET_MIN_BYTES)
    };
    let device = Arc::new(SimDevice::new(0, seed));
    let region = Arc::new(Region::open(device, Arc::new(Patient), config).unwrap());
    for block in 0..BLOCKS {
        region.assign_block(block, LaneId((block % u64::from(LANES)) as u16));
    }
    region
}

#[test]
fn writers_that_wait_for_each_other_and_for_no_clock_all_come_through() {
    for seed in 0..4 {
        let region = open(seed);
        let (done, finished) = channel();
        for thread in 0..THREADS {
            let (region, done) = (Arc::clone(&region), done.clone());
            std::thread::spawn(move || {
                write(&region, seed * THREADS + thread, 3_000);
                let _ = done.send(());
            });
        }
        for thread in 0..THREADS {
            let outcome = finished.recv_timeout(LONGEST);
            assert!(outcome.is_ok(), "seed {seed}: {} writers sleep for good", THREADS - thread);
        }
        assert!(region.stats().stalls > 100, "this test shows nothing");
    }
}

/// Changes the budget beside writers until they are done.
fn change_budget(region: &Region, seed: u64, writers: &AtomicU64) {
    let mut random = Random::seed_from_u64(seed);
    while writers.load(Ordering::Relaxed) > 0 {
        region.set_budget(BUDGET_MIN_BYTES << random.random_range(0..3)).unwrap();
        assert!(region.used_bytes_max() <= region.budget_bytes(), "seed {seed}");
    }
}

#[test]
fn a_budget_that_is_changed_beside_writers_waits_for_no_clock() {
    for seed in 0..2 {
        let region = open(seed);
        let (done, finished) = channel();
        let writers = Arc::new(AtomicU64::new(THREADS));
        for thread in 0..=THREADS {
            let (region, done, writers) = (Arc::clone(&region), done.clone(), Arc::clone(&writers));
            std::thread::spawn(move || {
                let seed = seed * THREADS + thread;
                if thread == THREADS {
                    change_budget(&region, seed, &writers);
                } else {
                    write(&region, seed, 1_000);
                    writers.fetch_sub(1, Ordering::Relaxed);
                }
                let _ = done.send(());
            });
        }
        for thread in 0..=THREADS {
            let outcome = finished.recv_timeout(LONGEST);
            assert!(
                outcome.is_ok(),
                "seed {seed}: {} threads sleep for good",
                THREADS + 1 - thread
            );
        }
    }
}
