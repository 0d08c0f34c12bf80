use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use perdura_media::{SimClock, SimDevice};

use crate::testing::write;
use crate::{Config, LaneId, Region};
use perdura_dirty::geometry::BLOCK_BYTES;
use perdura_dirty::{Ledger, SegmentState};

const BLOCKS: u64 = 64;

fn config() -> Config {
    Config {
        segment_bytes: Some(64 << 10),
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        ..Config::new(BLOCKS * BLOCK_BYTES, 8 * BLOCK_BYTES)
    }
}

fn open(device: &SimDevice) -> Region {
    Region::open(Arc::new(device.clone()), Arc::new(SimClock::new(1_000)), config()).unwrap()
}

fn value(step: u64) -> u8 {
    (step % 251) as u8 + 1
}

fn commit(region: &Region, step: u64) {
    let offset = step * 7_919 % (BLOCKS * 64) * 1024;
    write(region, offset, &[value(step); 1024]);
    region.commit_group().unwrap();
}

fn zeroed(ledger: &Ledger) -> Option<u32> {
    (0..ledger.segments().load(Acquire) as u32)
        .find(|number| ledger.segment(*number).state() == SegmentState::Zeroed)
}

/// Commits until a segment has got some of its zeros and is not free any more.
fn half_zeroed(region: &Region) -> (u32, u64) {
    let ledger = &region.running().backed.memory.ledger;
    for step in 0.. {
        commit(region, step);
        if let Some(segment) = zeroed(ledger) {
            return (segment, step);
        }
    }
    unreachable!()
}

#[test]
fn what_commits_go_to_was_written_before_and_enough_is_left_to_the_flush() {
    let device = SimDevice::new(0, 1);
    let region = open(&device);
    let backed = &region.running().backed;
    let written = |n| backed.memory.ledger.segment(n).was_written();
    let mut opened = Vec::new();
    for step in 0..2_000 {
        let free: Vec<u32> = backed.log.appender.lock().free_segments.iter().copied().collect();
        let left = free.iter().filter(|n| written(**n)).count();
        commit(&region, step);
        let taken = free
            .into_iter()
            .filter(|n| backed.memory.ledger.segment(*n).state() == SegmentState::Used)
            .map(|n| (n, left));
        opened.extend(taken);
    }
    let reserve = backed.log.appender.lock().reserve_segments as usize;
    let later = opened.iter().skip_while(|(_, left)| *left <= reserve);
    assert!(later.clone().count() > opened.len() / 4, "{reserve}: {opened:?}");
    assert!(later.clone().all(|(n, left)| written(*n) && *left >= reserve), "{opened:?}");
    let stats = region.stats();
    let log_bytes = region.log_bytes();
    assert!((1..=log_bytes).contains(&stats.prezeroed_bytes), "{stats:?}");
    assert!(stats.device_bytes + stats.prezeroed_bytes >= device.written_bytes() / 10 * 9);
}

#[test]
fn without_group_commits_nothing_is_prezeroed() {
    let region = open(&SimDevice::new(0, 1));
    for step in 0..200 {
        write(&region, step * 1024, &[1; 1024]);
        region.checkpoint().unwrap();
    }
    assert_eq!(region.stats().prezeroed_bytes, 0);
}

#[test]
fn nobody_takes_a_segment_that_gets_zeros() {
    let device = SimDevice::new(0, 1);
    let region = open(&device);
    let (segment, step) = half_zeroed(&region);
    let ledger = &region.running().backed.memory.ledger;
    region.drill(true, 2).unwrap();
    assert_eq!(zeroed(ledger), Some(segment), "taken by a drill");
    // Prezeroing goes on where it was.
    for step in step + 1..step + 20 {
        commit(&region, step);
    }
    assert!(ledger.segment(segment).was_written());
    let free = region.running().backed.log.appender.lock().free_segments.clone();
    let mut once = free.iter().copied().collect::<Vec<_>>();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), free.len(), "free twice");

    let region = open(&SimDevice::new(0, 2));
    let (segment, _) = half_zeroed(&region);
    region.close(2).unwrap();
    assert_eq!(zeroed(&region.running().backed.memory.ledger), Some(segment), "taken by a flush");
}

#[test]
fn who_attaches_finds_a_segment_free_that_had_got_some_of_its_zeros() {
    let device = SimDevice::new(0, 1);
    let region = open(&device);
    let (segment, last) = half_zeroed(&region);
    let (memory, ledger) = region.fds();
    let [memory, ledger] = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
    drop(region);
    let (device, clock) = (Arc::new(device), Arc::new(SimClock::new(1_000)));
    let region = Region::attach(memory, ledger, device.clone(), clock, config()).unwrap();
    let backed = &region.running().backed;
    assert_eq!(backed.memory.ledger.segment(segment).state(), SegmentState::Free);
    assert!(backed.log.appender.lock().free_segments.contains(&segment));
    commit(&region, last + 1);
    drop(region);
    let region = open(&device.power_cycle(3));
    for step in 0..=last + 1 {
        let offset = step * 7_919 % (BLOCKS * 64) * 1024;
        assert_eq!(region.lock(LaneId(0)).bytes(offset, 1024), [value(step); 1024]);
    }
}
