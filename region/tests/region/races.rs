//! Races that a review found: beside a close, after a failed flush, while budgets change, and while
//! lanes grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use perdura_media::faulty::{FaultPlan, FaultyDevice};
use perdura_media::sim::SimDevice;
use perdura_media::{Device, RealClock, SimClock};
use perdura_region::{
    Attachment, BLOCK_BYTES, Config, FlushOptions, LaneId, Need, Planted, Region, RegionError,
};

const REGION_BYTES: u64 = 32 * BLOCK_BYTES;
const LANES: u16 = 4;
/// How often a test changes the budget.
const BUDGET_CHANGES: u32 = 300;

fn config() -> Config {
    Config {
        segment_bytes: Some(64 << 10),
        reserved_bytes: Some(2 * REGION_BYTES),
        lanes: Some(LANES),
        thread: false,
        checkpoint_every: None,
        planted: Planted::None,
        ..Config::new(REGION_BYTES, 256 << 10)
    }
}

fn try_open(device: &SimDevice, config: Config) -> Result<Region, perdura_region::OpenError> {
    let region = Region::open(Arc::new(device.clone()), Arc::new(SimClock::new(1_000)), config)?;
    assign(&region);
    Ok(region)
}

fn assign(region: &Region) {
    for block in 0..region.geometry().reserved_bytes / BLOCK_BYTES {
        region.assign_block(block, LaneId((block % u64::from(LANES)) as u16));
    }
}

fn write(region: &Region, offset: u64, bytes: &[u8]) -> Result<(), RegionError> {
    let mut credit = 0;
    loop {
        let lane = LaneId((offset / BLOCK_BYTES % u64::from(LANES)) as u16);
        let need: Need = match region.lock_with(lane, credit).write(offset, bytes) {
            Ok(()) => return Ok(()),
            Err(need) => need,
        };
        credit = region.satisfy(need)?;
    }
}

fn byte(region: &Region, offset: u64) -> u8 {
    region.lock(LaneId((offset / BLOCK_BYTES % u64::from(LANES)) as u16)).bytes(offset, 1)[0]
}

#[test]
fn a_group_commit_after_growth_can_be_recovered() {
    let device = SimDevice::new(0, 1);
    let region = try_open(&device, config()).unwrap();
    region.grow(2 * REGION_BYTES).unwrap();
    write(&region, REGION_BYTES + 100, &[7; 8]).unwrap();
    region.commit_group().unwrap();
    drop(region);
    let device = device.power_cycle(1);
    let region = try_open(&device, Config { region_bytes: 2 * REGION_BYTES, ..config() })
        .map_err(|e| e.to_string())
        .unwrap();
    assert_eq!(byte(&region, REGION_BYTES + 100), 7);
}

#[test]
fn an_empty_group_commit_leaves_an_image_that_opens_twice() {
    let device = SimDevice::new(0, 1);
    let region = try_open(&device, config()).unwrap();
    region.commit_group().unwrap(); // empty
    region.checkpoint().unwrap();
    write(&region, 100, &[7; 8]).unwrap();
    region.commit_group().unwrap();
    drop(region);
    let device = device.power_cycle(1);
    let region = try_open(&device, config()).map_err(|e| e.to_string()).expect("first");
    assert_eq!(byte(&region, 100), 7);
    drop(region);
    let device = device.power_cycle(1);
    let region = try_open(&device, config()).map_err(|e| e.to_string()).expect("second");
    assert_eq!(byte(&region, 100), 7);
}

#[test]
fn a_drill_where_stores_are_trapped_is_refused() {
    for kind in crate::support::modes() {
        let region = crate::support::open(&SimDevice::new(0, 1), crate::support::config(kind));
        assert!(matches!(region.drill(false, 1), Err(RegionError::Trapped { .. })), "{kind:?}");
    }
}

#[test]
fn a_flush_by_several_threads_finds_its_space() {
    for (first, threads) in [(0, 1), (1, 2), (0, 4), (1, 5)] {
        for rounds in (first..60u64).step_by(2) {
            let device = SimDevice::new(0, 1);
            let config = Config { reserved_bytes: Some(REGION_BYTES), ..config() };
            let region = try_open(&device, config).unwrap();
            // Fill the log with dead copies.
            for n in 0..(200 + rounds * 13) {
                let block = n % 32;
                write(&region, block * BLOCK_BYTES, &vec![n as u8; 48 << 10]).unwrap();
            }
            // Dirty isolated grains in one place, until the budget is nearly full.
            let mut at = 0;
            while region.used_bytes() + 8192 < region.budget_bytes() && at < 8 * BLOCK_BYTES {
                write(&region, at, &[9; 8]).unwrap();
                at += 128;
            }
            let used = region.used_bytes();
            region.close(threads).unwrap_or_else(|error| {
                panic!("threads {threads}, rounds {rounds}, {used} bytes used: {error}")
            });
        }
    }
}

#[test]
fn a_trapped_flush_by_several_threads_finds_its_space() {
    use crate::support::*;
    let kind = modes()[0];
    for threads in [1, 2, 4] {
        for rounds in 0..30u64 {
            let device = SimDevice::new(0, 1);
            let region = crate::support::open(&device, crate::support::config(kind));
            let base = region.trapped().unwrap().as_ptr() as usize;
            for n in 0..(2000 + rounds * 97) {
                store(base, n % 1024 * 4096, n + 1);
            }
            let used = region.used_bytes();
            region.close(threads).unwrap_or_else(|error| {
                panic!("threads {threads}, rounds {rounds}, {used} bytes used: {error}")
            });
        }
    }
}

#[test]
fn a_refused_budget_changes_nothing() {
    let device = SimDevice::new(0, 1);
    let region = try_open(&device, config()).unwrap();
    write(&region, 0, &[1; 1000]).unwrap();
    let budget_bytes = region.budget_bytes();
    region.set_budget(1 << 30).unwrap_err();
    assert_eq!(region.budget_bytes(), budget_bytes);
    for n in 0..64 {
        write(&region, n % 32 * BLOCK_BYTES, &[2; 8192]).unwrap();
    }
    assert!(region.used_bytes_max() <= budget_bytes);
}

#[test]
fn a_checkpoint_that_waited_for_a_close_does_nothing_trapped() {
    use crate::support::*;
    for round in 0..40 {
        let device = SimDevice::new(0, round);
        let kind = modes()[0];
        let region = crate::support::open(&device, crate::support::config(kind));
        let base = region.trapped().unwrap().as_ptr() as usize;
        let stop = AtomicBool::new(false);
        let mut result = String::new();
        std::thread::scope(|scope| {
            let mut others = Vec::new();
            for _ in 0..4 {
                others.push(scope.spawn(|| {
                    loop {
                        if let Err(e) = region.checkpoint() {
                            return e.to_string();
                        }
                        if stop.load(Ordering::Relaxed) {
                            return "ok".into();
                        }
                    }
                }));
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
            for page in 0..60 {
                store(base, page * 4096, 42);
            }
            region.close(1).unwrap();
            for other in others {
                result += &other.join().unwrap();
            }
        });
        drop(region);
        let region = crate::support::open(&device, crate::support::config(kind));
        let base = region.trapped().unwrap().as_ptr() as usize;
        for page in 0..60 {
            assert_eq!(
                load(base, page * 4096),
                42,
                "round {round} page {page} origin {:?} other {result}",
                region.origin()
            );
        }
    }
}

#[test]
fn a_failed_flush_can_be_repeated() {
    for rounds in 0..40u64 {
        let device = SimDevice::new(0, 1);
        let region =
            try_open(&device, Config { reserved_bytes: Some(REGION_BYTES), ..config() }).unwrap();
        for n in 0..(200 + rounds * 13) {
            write(&region, n % 32 * BLOCK_BYTES, &vec![n as u8; 48 << 10]).unwrap();
        }
        let mut at = 0;
        while region.used_bytes() + 8192 < region.budget_bytes() && at < 16 * BLOCK_BYTES {
            write(&region, at, &[9; 8]).unwrap();
            at += 128;
        }
        let (m, l) = region.fds();
        let (m, l) = (m.try_clone_to_owned().unwrap(), l.try_clone_to_owned().unwrap());
        drop(region);
        let holder = Attachment::new(m, l).unwrap();
        let flush = |device: &dyn Device, unix_ms| {
            holder.flush(device, FlushOptions { threads: 1, unix_ms })
        };
        for attempt in 0..4 {
            // Redoing frames flushes the device once; the flush of the data fails.
            let plan = Arc::new(FaultPlan::new());
            plan.fail_flush(2);
            let faulty = FaultyDevice::new(device.clone(), plan, Arc::new(RealClock));
            let error = flush(&faulty, attempt).unwrap_err();
            // An attempt leaves the space in the log that it took to the next one.
            assert!(
                matches!(error, RegionError::Latched { .. }),
                "rounds {rounds}, attempt {attempt}: {error}"
            );
        }
        flush(&device, 9).unwrap_or_else(|error| panic!("rounds {rounds}: {error}"));
    }
}

#[test]
fn a_dirty_set_in_one_claim_finds_its_space() {
    use perdura_region::TrackingKind;
    let kind = crate::support::modes()[0];
    for threads in [1, 4] {
        for rounds in 0..6u64 {
            let device = SimDevice::new(0, 1);
            let region_bytes = 512 * BLOCK_BYTES;
            let config = Config {
                segment_bytes: Some(256 << 10),
                reserved_bytes: Some(region_bytes),
                checkpoint_every: None,
                log_percent: 125,
                tracking: TrackingKind::Trap(kind),
                ..Config::new(region_bytes, 15 << 20)
            };
            let region = crate::support::open(&device, config);
            let base = region.trapped().unwrap().as_ptr() as usize;
            for n in 0..(14_000 + rounds * 974) {
                crate::support::store(base, n % 8192 * 4096, n + 1);
            }
            for n in 0..3800 {
                crate::support::store(base, n * 4096, n + 7);
            }
            let used = region.used_bytes();
            region.close(threads).unwrap_or_else(|error| {
                panic!("threads {threads}, rounds {rounds}, {used} bytes used: {error}")
            });
        }
    }
}

#[test]
fn an_image_flushed_at_the_second_attempt_opens() {
    let mut bad = Vec::new();
    for seed in 0..20u64 {
        let device = SimDevice::new(0, seed);
        let region = try_open(&device, config()).unwrap();
        for n in 0..20 {
            write(&region, n % 32 * BLOCK_BYTES, &vec![n as u8; 48 << 10]).unwrap();
        }
        let (m, l) = region.fds();
        let (m, l) = (m.try_clone_to_owned().unwrap(), l.try_clone_to_owned().unwrap());
        drop(region);
        let holder = Attachment::new(m, l).unwrap();
        let plan = Arc::new(FaultPlan::new());
        plan.fail_flush(2);
        let faulty = FaultyDevice::new(device.clone(), plan, Arc::new(RealClock));
        holder.flush(&faulty, FlushOptions { threads: 1, unix_ms: 1 }).unwrap_err();
        // The data of the failed flush are gone, as after EIO from fdatasync.
        let repaired = device.power_cycle(seed);
        holder.flush(&repaired, FlushOptions { threads: 1, unix_ms: 2 }).unwrap();
        if let Err(e) = try_open(&repaired, config()) {
            bad.push(e.to_string());
        }
    }
    assert!(bad.is_empty(), "{} of 20: {:?}", bad.len(), bad.first());
}

/// Runs `change` while three threads write.
fn beside_writers(region: &Region, change: impl FnOnce() + Send) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for first in 0..3u64 {
            let stop = &stop;
            scope.spawn(move || {
                let mut n = first * 7;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    write(region, n * 7919 % 500 * 4096, &[n as u8; 4000]).unwrap();
                }
            });
        }
        // Caught, so that the writers end and the test fails at once.
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(change));
        stop.store(true, Ordering::Relaxed);
        changed.unwrap();
    });
}

#[test]
fn two_that_change_the_budget_leave_it_kept() {
    let device = SimDevice::new(0, 1);
    let region = try_open(&device, config()).unwrap();
    beside_writers(&region, || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..BUDGET_CHANGES {
                    region.set_budget(400 << 10).unwrap();
                }
            });
            for _ in 0..BUDGET_CHANGES {
                region.set_budget(128 << 10).unwrap();
                // Nobody lowers the budget between the two readings.
                let used = region.used_bytes();
                let budget = region.budget_bytes();
                assert!(used <= budget, "{used} bytes used of {budget}");
            }
        });
    });
}

#[test]
fn a_budget_shrunk_beside_writers_is_kept() {
    let device = SimDevice::new(0, 1);
    let region = try_open(&device, config()).unwrap();
    beside_writers(&region, || {
        for _ in 0..BUDGET_CHANGES {
            region.set_budget(400 << 10).unwrap();
            region.set_budget(200 << 10).unwrap();
            let most = region.used_bytes_max();
            assert!(most <= 200 << 10, "{most} bytes used");
        }
    });
}

#[test]
fn a_checkpoint_that_waited_for_a_close_does_nothing() {
    let device = SimDevice::new(0, 1);
    let region = Arc::new(try_open(&device, config()).unwrap());
    let (tx, rx) = std::sync::mpsc::channel();
    for _ in 0..4 {
        let (region, tx) = (region.clone(), tx.clone());
        std::thread::spawn(move || {
            while region.checkpoint().is_ok() {}
            tx.send(()).unwrap();
        });
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    region.close(1).unwrap();
    for n in 0..4 {
        rx.recv_timeout(std::time::Duration::from_secs(5))
            .map_err(|_| format!("{n} of 4 came back"))
            .unwrap();
    }
}

#[test]
fn a_drill_beside_writers_that_wait_loses_no_count() {
    for seed in 0..4 {
        let device = SimDevice::new(0, seed);
        let region = try_open(&device, Config { thread: true, ..config() }).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (region, stop) = (&region, &stop);
                scope.spawn(move || {
                    let mut n = thread;
                    while !stop.load(Ordering::Relaxed) {
                        n += 3;
                        let offset = n * 4096 * 7 % REGION_BYTES / 4096 * 4096;
                        write(region, offset, &[n as u8; 4096]).unwrap();
                    }
                });
            }
            for _ in 0..10 {
                region.drill(true, 1).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        region.checkpoint().unwrap();
        // Only credit that idle lanes keep is left on the account. Setting the budget takes it
        // back.
        assert!(region.used_bytes() <= u64::from(LANES) * 4096, "{} bytes", region.used_bytes());
        assert!(region.used_bytes_max() <= region.budget_bytes());
    }
}
