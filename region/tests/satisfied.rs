//! Who waits for room is woken by what makes it: nobody sleeps for good.

#![allow(clippy::unwrap_used)] // a test's own failure

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::channel;
use std::time::Duration;

use perdura_media::{Clock, RealClock, SimDevice};

use perdura_region::{BLOCK_BYTES, BUDGET_MIN_BYTES, Config, LaneId, Region};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use rustix::thread::futex;

/// A clock whose waits end only when somebody ends them: a wake-up that is lost is lost for good.
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
/// Far more than the writers take; a sleeper is told from a slow machine.
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

#[test]
fn writers_that_wait_for_each_other_and_for_no_clock_all_come_through() {
    for seed in 0..4 {
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
