use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use perdura_media::{SimClock, SimDevice};

use crate::testing::write;
use crate::{Config, LaneId, Region};
use perdura_dirty::geometry::BLOCK_BYTES;
use perdura_dirty::planted::Planted;
use perdura_image::format::FRAME_COMMIT;

#[test]
fn an_idle_region_is_committed_though_a_lane_keeps_credit() {
    let config = Config {
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        ..Config::new(64 * BLOCK_BYTES, 32 * BLOCK_BYTES)
    };
    let device = Arc::new(SimDevice::new(0, 1));
    let region = Region::open(device, Arc::new(SimClock::new(1_000)), config).unwrap();
    let is_committed = || region.running().any_cleaner().is_committed(&region.running().backed);
    for value in 1..4 {
        region.lock(LaneId(0)).store(4096, value).unwrap();
        assert!(!is_committed());
        region.checkpoint().unwrap();
        assert!(region.used_bytes() > 0, "no credit was kept: this test shows nothing");
        assert!(is_committed() && region.is_committed());
    }
    region.lock(LaneId(0)).store(8192, 1).unwrap();
    region.commit_group().unwrap();
    assert!(!is_committed(), "a group commit frees no segments; a checkpoint must follow");
    region.running().backed.tracked.reclaim_all_credit();
    assert_eq!(region.used_bytes(), 0);
    assert!(!region.is_committed(), "no slot covers what a group commit has made durable");
    region.checkpoint().unwrap();
    region.commit_group().unwrap();
    assert!(!is_committed(), "a frame was written, though nothing changed");
}

#[test]
fn each_opening_of_an_image_is_another_incarnation() {
    let config = || Config {
        thread: false,
        checkpoint_every: None,
        ..Config::new(64 * BLOCK_BYTES, 32 * BLOCK_BYTES)
    };
    let mut device = SimDevice::new(0, 1);
    for life in 1..4 {
        let clock = Arc::new(SimClock::new(1_000));
        let region = Region::open(Arc::new(device.clone()), clock, config()).unwrap();
        let ledger = &region.running().backed.memory.ledger;
        assert_eq!(ledger.incarnation().load(Acquire), life);
        drop(region);
        device = device.power_cycle(1);
    }
}

#[test]
fn a_group_commit_makes_durable_what_was_cleaned_before_it_too() {
    let lost = |planted| {
        let is_lost = |seed: &u64| {
            let config = || Config {
                lanes: Some(1),
                thread: false,
                checkpoint_every: None,
                planted,
                ..Config::new(64 * BLOCK_BYTES, 32 * BLOCK_BYTES)
            };
            let device = SimDevice::new(0, *seed);
            let clock = || Arc::new(SimClock::new(1_000));
            let region = Region::open(Arc::new(device.clone()), clock(), config()).unwrap();
            write(&region, BLOCK_BYTES, &[1; 20_000]);
            // The cleaned frame is on its way or written, but not flushed.
            region.running().any_cleaner().clean(&region.running().backed, BLOCK_BYTES).unwrap();
            assert!(device.unflushed_bytes() > 0);
            write(&region, 2 * BLOCK_BYTES, &[2; 100]);
            region.commit_group().unwrap();
            let after_the_cut = device.power_cycle(*seed);
            let region = Region::open(Arc::new(after_the_cut), clock(), config()).unwrap();
            let lane = region.lock(LaneId(0));
            lane.bytes(BLOCK_BYTES, 20_000) != [1; 20_000]
                || lane.bytes(2 * BLOCK_BYTES, 100) != [2; 100]
        };
        (0..20).filter(is_lost).count()
    };
    assert_eq!(lost(Planted::None), 0);
    assert!(lost(Planted::SingleAlways) > 0);
}

/// Runs `act` on a region while each lane in turn is held. It must wait for that lane, with the
/// lanes before it held, before it ends the epoch or writes anything.
#[track_caller]
fn assert_waits_for_each_lane(what: &str, act: impl Fn(&Region) + Sync) {
    const LANES: u16 = 3;
    for held in 0..LANES {
        let config = Config {
            lanes: Some(LANES),
            thread: false,
            checkpoint_every: None,
            ..Config::new(64 * BLOCK_BYTES, 32 * BLOCK_BYTES)
        };
        let device = SimDevice::new(0, 1);
        let clock = Arc::new(SimClock::new(1_000));
        let region = Region::open(Arc::new(device.clone()), clock, config).unwrap();
        for lane in 0..LANES {
            region.assign_block(lane.into(), LaneId(lane));
        }
        let (ledger, lanes) = {
            let backed = &region.running().backed;
            (&backed.memory.ledger, &backed.tracked.lanes)
        };
        let before = (ledger.epoch().load(Acquire), device.ops());
        std::thread::scope(|scope| {
            let guard = region.lock(LaneId(held));
            let acting = scope.spawn(|| act(&region));
            while !lanes.lock(LaneId(held)).is_waited_for() {
                assert!(!acting.is_finished(), "{what} did not wait for lane {held}");
                std::thread::yield_now();
            }
            let now = (ledger.epoch().load(Acquire), device.ops());
            assert_eq!(now, before, "{what} began before it held lane {held}");
            for lane in 0..u64::from(held) {
                let free = lanes.try_lock_owner_of(lane * BLOCK_BYTES);
                assert!(free.is_none(), "{what} let lane {lane} go before it held lane {held}");
            }
            drop(guard);
        });
    }
}

#[test]
fn whatever_ends_an_epoch_or_flushes_holds_every_lane() {
    assert_waits_for_each_lane("a checkpoint", |region| region.checkpoint().unwrap());
    assert_waits_for_each_lane("a group commit", |region| region.commit_group().unwrap());
    assert_waits_for_each_lane("a drill", |region| _ = region.drill(false, 1).unwrap());
    assert_waits_for_each_lane("a close", |region| _ = region.close(1).unwrap());
}

/// After a kill the numbers of frames may have a gap, and a process that attaches may have enlarged
/// the region. No commit records either of these, so a group commit must not count on one.
#[test]
fn the_first_group_commit_of_a_process_that_attached_is_found_after_a_power_cut() {
    for (lost_numbers, blocks) in [(1, 8), (0, 12)] {
        let config = |blocks| Config {
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            reserved_bytes: Some(12 * BLOCK_BYTES),
            ..Config::new(blocks * BLOCK_BYTES, 4 * BLOCK_BYTES)
        };
        let device = SimDevice::new(0, 1);
        let clock = || Arc::new(SimClock::new(1_000));
        let region = Region::open(Arc::new(device.clone()), clock(), config(8)).unwrap();
        region.running().backed.memory.ledger.next_seq().fetch_add(lost_numbers, AcqRel);
        let (memory, ledger) = region.fds();
        let [memory, ledger] = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
        drop(region);
        let shared = Arc::new(device.clone());
        let region = Region::attach(memory, ledger, shared, clock(), config(blocks)).unwrap();
        let offset = blocks * BLOCK_BYTES - 100;
        write(&region, offset, &[7; 100]);
        region.commit_group().unwrap();
        let after_the_cut = Arc::new(device.power_cycle(1));
        let region = Region::open(after_the_cut, clock(), config(8)).unwrap();
        assert_eq!(region.lock(LaneId(0)).bytes(offset, 100), [7; 100], "{lost_numbers} {blocks}");
    }
}

/// A cut was made, and the drain has not begun. Whatever the writer does then, the commit has the
/// data as they were at the cut.
#[test]
fn what_is_dropped_or_changed_while_its_epoch_closes_is_in_the_commit_all_the_same() {
    let config = || Config {
        segment_bytes: Some(64 << 10),
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        ..Config::new(64 * BLOCK_BYTES, 32 * BLOCK_BYTES)
    };
    type Act = fn(&Region);
    let acts: [Act; 3] = [
        |region| region.lock(LaneId(0)).drop_dirty(0, 8192),
        |region| write(region, 100, &[2; 5000]),
        |region| {
            write(region, 0, &[3; 8192]);
            region.lock(LaneId(0)).drop_dirty(0, 8192);
        },
    ];
    for (number, act) in acts.into_iter().enumerate() {
        let device = SimDevice::new(0, 1);
        let clock = || Arc::new(SimClock::new(1_000));
        let region = Region::open(Arc::new(device.clone()), clock(), config()).unwrap();
        write(&region, 0, &[1; 8192]);
        let ledger = &region.running().backed.memory.ledger;
        ledger.closing().store(1, Release);
        ledger.epoch().fetch_add(1, AcqRel);
        act(&region);
        let mut cleaner = region.running().any_cleaner();
        cleaner.finish_closing_epoch(&region.running().backed, FRAME_COMMIT).unwrap();
        drop(cleaner);
        let device = device.power_cycle(1);
        drop(region);
        let region = Region::open(Arc::new(device), clock(), config()).unwrap();
        assert_eq!(region.lock(LaneId(0)).bytes(0, 8192), [1; 8192], "act {number}");
    }
}
