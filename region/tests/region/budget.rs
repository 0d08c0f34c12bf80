//! The budget, proven from outside: while writers are held, memory differs from the image by no
//! more than the budget, and only where the ledger says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use perdura_image::inspect::{Believe, image_bytes};
use perdura_media::sim::SimDevice;
use perdura_media::{BlockBuf, Device, RealClock};
use perdura_region::{BLOCK_BYTES, Config, LaneId, Planted, PolicyKind, Region};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const REGION_BYTES: u64 = 256 * BLOCK_BYTES;
const LANES: u16 = 8;
const WRITERS: u64 = 3;

/// Ends the writers, even when an assertion fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn lane_of(block: u64) -> LaneId {
    LaneId((block % u64::from(LANES)) as u16)
}

fn open(device: &SimDevice, budget_bytes: u64, policy: PolicyKind, planted: Planted) -> Region {
    let config = Config {
        segment_bytes: Some(64 << 10),
        reserved_bytes: Some(REGION_BYTES),
        lanes: Some(LANES),
        checkpoint_every: Some(Duration::from_millis(20)),
        policy,
        planted,
        ..Config::new(REGION_BYTES, budget_bytes)
    };
    let region = Region::open(Arc::new(device.clone()), Arc::new(RealClock), config).unwrap();
    (0..REGION_BYTES / BLOCK_BYTES).for_each(|block| region.assign_block(block, lane_of(block)));
    region
}

fn write(region: &Region, random: &mut Random) {
    // The writes are skewed: most of them go to a tenth of the blocks.
    let blocks = REGION_BYTES / BLOCK_BYTES;
    let hot = random.random_range(0..10) < 8;
    let block = random.random_range(0..if hot { blocks / 10 } else { blocks });
    let len = [8u64, 64, 1088, 4096][random.random_range(0..4)];
    let offset = block * BLOCK_BYTES + random.random_range(0..BLOCK_BYTES - len);
    let byte = random.random();
    let mut credit = 0;
    loop {
        let mut guard = region.lock_with(lane_of(block), credit);
        match guard.announced_mut(offset, len as usize, None) {
            Ok(bytes) => return bytes.fill(byte),
            Err(need) => {
                drop(guard);
                credit = region.satisfy(need).unwrap();
            }
        }
    }
}

/// Bytes of grains in which memory and image differ, while every writer is held.
fn differing_bytes(region: &Region, device: &SimDevice) -> (u64, u64) {
    let guards: Vec<_> = (0..LANES).map(|lane| region.lock(LaneId(lane))).collect();
    let used_bytes = region.used_bytes();
    let durable = device.snapshot_durable();
    let copy = SimDevice::new(durable.len() as u64, 0);
    let mut aligned = BlockBuf::zeroed(durable.len());
    aligned.copy_from_slice(&durable);
    copy.write_at(0, &aligned).unwrap();
    let image = image_bytes(&copy, Believe::EveryFrame, None).unwrap();
    let mut differing = 0;
    for block in 0..REGION_BYTES / BLOCK_BYTES {
        let at = (block * BLOCK_BYTES) as usize;
        let memory = guards[usize::from(lane_of(block).0)].bytes(at as u64, BLOCK_BYTES as usize);
        for (here, there) in memory.chunks(64).zip(image[at..at + BLOCK_BYTES as usize].chunks(64))
        {
            differing += if here == there { 0 } else { 64 };
        }
    }
    (differing, used_bytes)
}

/// Runs writers, holds them now and then, and compares memory with the image. Returns whether the
/// promise held every time.
fn holds(seed: u64, budget_bytes: u64, policy: PolicyKind, planted: Planted, halve: bool) -> bool {
    let device = SimDevice::new(0, seed);
    let region = open(&device, budget_bytes, policy, planted);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (region, stop) = (&region, &stop);
            scope.spawn(move || {
                let mut random = Random::seed_from_u64(seed * 100 + writer);
                while !stop.load(Ordering::Relaxed) {
                    write(region, &mut random);
                }
            });
        }
        let stop_at_end = StopAtEnd(&stop);
        let mut kept = true;
        for round in 0..12 {
            std::thread::sleep(Duration::from_millis(15));
            if halve && round == 6 {
                region.set_budget(budget_bytes / 2).unwrap();
            }
            let limit = region.budget_bytes();
            kept &= region.used_bytes_max() <= limit;
            let (differing, used) = differing_bytes(&region, &device);
            kept &= differing <= used && used <= limit;
        }
        drop(stop_at_end);
        kept
    })
}

#[test]
fn memory_never_differs_from_the_image_by_more_than_the_budget() {
    for (seed, percent) in [(1, 2), (2, 11), (3, 46)] {
        let budget_bytes = (REGION_BYTES * percent / 100).max(128 << 10);
        assert!(
            holds(seed, budget_bytes, PolicyKind::ClockPro, Planted::None, false),
            "{percent} %"
        );
    }
}

#[test]
fn every_policy_keeps_the_budget() {
    for (seed, policy) in (10..).zip(PolicyKind::ALL) {
        assert!(holds(seed, REGION_BYTES / 9, policy, Planted::None, false), "{}", policy.name());
    }
}

#[test]
fn a_budget_cut_in_half_under_load_holds_when_the_call_returns() {
    assert!(holds(20, REGION_BYTES / 9, PolicyKind::ClockPro, Planted::None, true));
}

#[test]
fn bytes_that_are_not_accounted_are_found() {
    assert!(!holds(
        30,
        REGION_BYTES / 9,
        PolicyKind::ClockPro,
        Planted::OpenBeforeAccounting,
        false
    ));
}

#[test]
fn bytes_called_clean_when_only_copied_are_found() {
    let found = (31..36).any(|seed| {
        !holds(seed, REGION_BYTES / 9, PolicyKind::ClockPro, Planted::CleanAtCopy, false)
    });
    assert!(found);
}

#[test]
fn the_most_bytes_in_use_are_remembered_until_the_budget_is_set() {
    let config = Config {
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        ..Config::new(REGION_BYTES, 16 * BLOCK_BYTES)
    };
    let device = Arc::new(SimDevice::new(0, 1));
    let region = Region::open(device, Arc::new(RealClock), config).unwrap();
    let dirty = |bytes: usize| {
        let mut credit = 0;
        while let Err(need) = region.lock_with(LaneId(0), credit).write(0, &vec![1; bytes]) {
            credit = region.satisfy(need).unwrap();
        }
        region.used_bytes()
    };
    let most = dirty(300_000);
    assert!(most >= 300_000 && region.used_bytes_max() >= most);
    region.checkpoint().unwrap();
    let less = dirty(100);
    assert!((100..most).contains(&less), "{less}");
    assert!((most..=region.budget_bytes()).contains(&region.used_bytes_max()));
    region.set_budget(12 * BLOCK_BYTES).unwrap();
    assert!((less..most).contains(&region.used_bytes_max()), "{}", region.used_bytes_max());
}
