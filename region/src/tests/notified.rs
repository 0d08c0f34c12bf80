use std::sync::Arc;

use perdura_dirty::extent::Extent;
use perdura_dirty::{Blocked, RegionError};
use perdura_image::Pump;
use perdura_media::{DeviceError, RealClock, SimDevice};

use crate::{BLOCK_BYTES, Config, LaneId, Need, Region, TrackingKind, TrapKind};

const TRAP: TrackingKind = TrackingKind::Trap(TrapKind::Auto);

fn open(tracking: TrackingKind) -> Region {
    let config = Config {
        tracking,
        lanes: Some(1),
        thread: tracking == TRAP,
        checkpoint_every: None,
        ..Config::new(64 * BLOCK_BYTES, 8 * BLOCK_BYTES)
    };
    Region::open(Arc::new(SimDevice::new(0, 1)), Arc::new(RealClock), config).unwrap()
}

/// Whether `act` notifies the threads that wait for budget.
fn notifies(region: &Region, act: impl FnOnce()) -> bool {
    let budget = &region.running().backed.memory.budget;
    let seen = budget.version();
    act();
    budget.version() != seen
}

#[test]
fn the_release_of_the_cleaner_notifies_waiters_but_no_faults() {
    for (tracking, expected) in [(TrackingKind::Barrier, true), (TRAP, false)] {
        let region = open(tracking);
        let running = region.running();
        assert_eq!(notifies(&region, || drop(running.any_cleaner())), expected, "{tracking:?}");
        assert!(!notifies(&region, || running.any_cleaner().release_in_vain()), "{tracking:?}");
    }
}

#[test]
fn the_release_of_a_lane_notifies_who_waits_for_it_if_budget_was_taken_under_it() {
    let region = open(TrackingKind::Barrier);
    let taken = |region: &Region| {
        let credit_bytes = region.satisfy(Need::Room { bytes: 64 }).unwrap();
        let used_bytes = region.used_bytes();
        let lane = region.lock_with(LaneId(0), credit_bytes);
        let is_notified = notifies(region, || drop(lane));
        assert_eq!(region.used_bytes(), used_bytes, "bytes that are given back notify, too");
        is_notified
    };
    assert!(!taken(&region), "nobody waits for lanes");
    let waiting = region.running().backed.memory.budget.wait_for_lanes();
    assert!(taken(&region));
    assert!(!notifies(&region, || drop(region.lock(LaneId(0)))), "nothing was taken");
    assert!(!notifies(&region, || drop(region.lock_with(LaneId(0), 0))), "nothing was taken");
    drop(waiting);
    assert!(!taken(&region), "the wait is over");
}

#[test]
fn a_checkpoint_notifies_in_trap_mode_too() {
    let region = open(TRAP);
    assert!(notifies(&region, || region.checkpoint().unwrap()));
}

#[test]
fn the_end_of_a_prepared_write_notifies() {
    let region = open(TRAP);
    let prepared = region.trapped().unwrap().prepare_write(0..4096).unwrap();
    assert!(notifies(&region, || drop(prepared)));
}

#[test]
fn a_checkpoint_that_waits_for_prepared_writes_hears_of_their_end_and_of_faults_that_wait() {
    let region = open(TRAP);
    let tracker = region.running().backed.tracked.pages().unwrap();
    let is_heard = |act: &mut dyn FnMut()| {
        let seen = tracker.prepared.news.version();
        act();
        tracker.prepared.news.version() != seen
    };
    for blocked in [Blocked::Room, Blocked::Crowded] {
        assert!(is_heard(&mut || tracker.ask(0, blocked)), "{blocked:?}");
    }
    let mut prepared = region.trapped().unwrap().prepare_write(0..4096).ok();
    tracker.prepared.begin_shut();
    assert!(!tracker.prepared.is_empty());
    assert!(is_heard(&mut || drop(prepared.take())));
    assert!(tracker.prepared.is_empty());
    tracker.prepared.reopen();
    assert!(is_heard(&mut || region.refuse_writers()));
}

#[test]
fn a_close_does_not_wait_for_a_prepared_write_that_a_checkpoint_waits_for() {
    let region = open(TRAP);
    let tracker = region.running().backed.tracked.pages().unwrap();
    let prepared = region.trapped().unwrap().prepare_write(0..4096).unwrap();
    let (closing, closed) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| region.checkpoint());
        // Once the gate is shut, the checkpoint has the cleaner and waits.
        while tracker.prepared.enter().is_some() {
            std::thread::yield_now();
        }
        scope.spawn(|| closing.send(region.close(1)));
        let in_time = closed.recv_timeout(std::time::Duration::from_secs(10));
        drop(prepared);
        in_time.expect("the final flush waits for a peer").unwrap();
        let refused = checkpoint.join().unwrap();
        assert!(matches!(refused, Err(RegionError::Closed)), "{refused:?}");
    });
}

#[test]
fn a_failure_and_a_close_notify() {
    let region = open(TrackingKind::Barrier);
    assert!(notifies(&region, || region.refuse_writers()));
    let memory = &region.running().backed.memory;
    assert!(notifies(&region, || assert!(memory.fail("planted"))));
    let error = DeviceError::Io {
        op: "write",
        offset_bytes: 0,
        len_bytes: 4096,
        source: std::io::ErrorKind::Other.into(),
    };
    assert!(notifies(&region, || drop(memory.latch(&error))));
}

#[test]
fn a_change_of_the_budget_notifies_once_it_is_in_force_or_given_up() {
    let region = open(TRAP);
    for budget_bytes in [4 * BLOCK_BYTES, 16 * BLOCK_BYTES] {
        assert!(notifies(&region, || region.set_budget(budget_bytes).unwrap()));
    }
    let budget = &region.running().backed.memory.budget;
    assert!(!notifies(&region, || budget.begin_shrink(BLOCK_BYTES)), "nobody gains by that");
    assert!(notifies(&region, || budget.abandon_change()));
}

#[test]
fn frame_buffers_that_come_free_notify_before_the_cleaner_is_released() {
    let region = open(TrackingKind::Barrier);
    let backed = &region.running().backed;
    let mut cleaner = region.running().any_cleaner();
    for is_single in [false, true] {
        let mut appender = backed.log.appender.lock();
        // Without charged bytes, as in a frame of compaction, none are given back.
        let run = Extent { grain: 0, len: 1 };
        appender.append(&backed.memory.ledger, &backed.memory.map, run, false).unwrap();
        appender.close_frame(&backed.memory.ledger, 0);
        drop(appender);
        let outlet = &mut cleaner.outlet;
        let is_notified = notifies(&region, || match is_single {
            true => assert!(outlet.write_single(backed).unwrap()),
            false => _ = outlet.pump(backed, Pump::Durable).unwrap(),
        });
        assert!(is_notified, "as a write of its own: {is_single}");
    }
}
