//! A device becomes slower than was proven: less may be dirty and writers wait, until the device
//! recovers. Time is simulated, and passes only while the device works.

use std::sync::Arc;
use std::time::Duration;

use perdura_media::sim::{SimDevice, Timing};
use perdura_media::{BytesPerSecond, Clock, SimClock};
use perdura_region::{Attachment, BLOCK_BYTES, Config, LaneId, Region, RegionError, Terms};

const MIB: u64 = 1 << 20;
const REGION_BYTES: u64 = 64 * MIB;
const BUDGET_BYTES: u64 = 16 * MIB;
const PROVEN: u64 = 32 * MIB;

struct World {
    device: SimDevice,
    clock: Arc<SimClock>,
    region: Region,
    next: u64,
}

impl World {
    fn new() -> Self {
        let (device, clock) = (SimDevice::new(0, 1), Arc::new(SimClock::new(1_000)));
        let config = Config {
            reserved_bytes: Some(REGION_BYTES),
            segment_bytes: Some(256 << 10),
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            ..Config::new(REGION_BYTES, BUDGET_BYTES)
        };
        let region = Region::open(Arc::new(device.clone()), clock.clone(), config).unwrap();
        let world = Self { device, clock, region, next: 0 };
        world.runs_at(PROVEN);
        world
    }

    fn runs_at(&self, bytes_per_s: u64) {
        let timing = Timing {
            bandwidth: BytesPerSecond(bytes_per_s),
            read_latency_ns: 10_000,
            write_latency_ns: 10_000,
            flush_latency_ns: 100_000,
        };
        self.device.set_timing(Arc::clone(&self.clock), timing);
    }

    /// Terms under which the whole budget takes `seconds` to flush, without the reserve.
    fn terms(&self, seconds: f64) -> Terms {
        Terms {
            warning: Duration::from_secs_f64(seconds) + Duration::from_secs(1),
            reserve: Duration::from_secs(1),
            rate_bytes_per_s: PROVEN,
            region_bytes: REGION_BYTES,
        }
    }

    fn needs_all_of_it(&self) -> Terms {
        let flush_bytes = self.region.geometry().warned_bytes(BUDGET_BYTES);
        self.terms(flush_bytes as f64 / PROVEN as f64)
    }

    /// Dirties `bytes`, and waits for room where needed.
    fn write(&mut self, bytes: u64) -> Result<(), RegionError> {
        for _ in 0..bytes / 4096 {
            let offset = self.next % REGION_BYTES;
            self.next += 4096;
            let mut credit = 0;
            loop {
                let mut lane = self.region.lock_with(LaneId(0), credit);
                let Err(need) = lane.write(offset, &[7; 4096]) else { break };
                drop(lane);
                credit = self.region.satisfy(need)?;
            }
            assert!(self.region.used_bytes() <= BUDGET_BYTES);
        }
        Ok(())
    }

    /// Writes and makes checkpoints for so many seconds.
    fn run(&mut self, seconds: u64) {
        let until_ns = self.clock.now_ns() + seconds * 1_000_000_000;
        while self.clock.now_ns() < until_ns {
            let room_bytes = self.region.budget_now_bytes();
            self.write(room_bytes.min(8 * MIB)).unwrap();
            self.region.checkpoint().unwrap();
        }
    }
}

#[test]
fn a_slower_device_shrinks_what_may_be_dirty_and_a_recovered_one_gives_it_back() {
    assert!(REGION_BYTES.is_multiple_of(BLOCK_BYTES));
    let mut world = World::new();
    world.region.watch_rate(&world.needs_all_of_it()).unwrap();
    world.run(8);
    assert_eq!(world.region.budget_now_bytes(), BUDGET_BYTES);
    let stats = world.region.stats();
    assert!(stats.rate_samples > 8, "{stats:?}");
    assert!(stats.observed_rate_bytes_per_s > PROVEN / 10 * 9, "{stats:?}");

    world.runs_at(PROVEN / 4);
    world.run(24);
    let observed = world.region.stats().observed_rate_bytes_per_s;
    assert!(observed.abs_diff(PROVEN / 4) < PROVEN / 40, "{observed} B/s");
    let limit_bytes = world.region.budget_now_bytes();
    assert!((MIB..BUDGET_BYTES / 4).contains(&limit_bytes), "{limit_bytes} B");
    // The bytes that may be dirty are flushed in time at the lower rate.
    let geometry = world.region.geometry();
    let needed_bytes = geometry.flush_bytes(limit_bytes) + geometry.redo_bytes(BUDGET_BYTES);
    let needed_s = needed_bytes as f64 / (PROVEN / 4) as f64;
    let given_s = geometry.warned_bytes(BUDGET_BYTES) as f64 / PROVEN as f64;
    assert!(needed_s <= given_s * 1.05, "{needed_s} s of {given_s} s");
    // Writers wait now where they did not wait before.
    let stalls = world.region.stats().stalls;
    for _ in 0..BUDGET_BYTES / MIB {
        world.write(MIB).unwrap();
        assert!(world.region.used_bytes() <= limit_bytes);
    }
    assert!(world.region.stats().stalls > stalls);
    // The budget in force is unchanged.
    assert_eq!(world.region.budget_bytes(), BUDGET_BYTES);

    world.runs_at(3 * PROVEN);
    world.run(6);
    assert_eq!(world.region.budget_now_bytes(), BUDGET_BYTES);
    assert_eq!(world.region.stats().observed_rate_bytes_per_s, PROVEN);
}

#[test]
fn a_slower_device_is_found_out_though_a_guard_asks_for_a_short_queue() {
    let mut world = World::new();
    world.region.watch_rate(&world.needs_all_of_it()).unwrap();
    let guard = guard_of(&world.region);
    world.run(8);
    let before = world.region.stats();
    assert_eq!(before.short_queue_frames, 0);
    guard.ask_for_short_queue(true);
    world.run(8);
    let stats = world.region.stats();
    let (short, all) = (stats.short_queue_frames, stats.frames - before.frames);
    assert!(short > all / 10 * 9, "{short} of {all} frames one at a time");
    assert_eq!(world.region.budget_now_bytes(), BUDGET_BYTES);
    world.runs_at(PROVEN / 4);
    world.run(24);
    assert!((MIB..BUDGET_BYTES / 4).contains(&world.region.budget_now_bytes()));
    world.runs_at(PROVEN);
    world.run(24);
    assert_eq!(world.region.budget_now_bytes(), BUDGET_BYTES);
    let short = world.region.stats().short_queue_frames;
    world.run(4);
    assert!(world.region.stats().short_queue_frames > short, "the device is fast again");
    let commits = guard.group_commits();
    world.region.commit_group().unwrap();
    assert_eq!(guard.group_commits(), commits + 1);
}

/// A region whose frames may have 1 MiB, and its guard.
fn wide(device: &SimDevice) -> (Region, Attachment) {
    let config = Config {
        segment_bytes: Some(4 * MIB),
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        ..Config::new(REGION_BYTES, BUDGET_BYTES)
    };
    let clock = Arc::new(SimClock::new(1_000));
    let region = Region::open(Arc::new(device.clone()), clock, config).unwrap();
    let guard = guard_of(&region);
    (region, guard)
}

fn guard_of(region: &Region) -> Attachment {
    let (memory, ledger) = region.fds();
    let [memory, ledger] = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
    Attachment::new(memory, ledger).unwrap()
}

#[test]
fn frames_of_a_short_queue_are_small_after_a_drill_too() {
    let device = SimDevice::new(0, 1);
    let (region, guard) = wide(&device);
    let frame_bytes = || {
        let before = region.stats();
        for block in 0..8 * MIB / BLOCK_BYTES {
            let mut lane = region.lock(LaneId(0));
            lane.write(block * BLOCK_BYTES, &[3; BLOCK_BYTES as usize]).unwrap();
            drop(lane);
        }
        region.checkpoint().unwrap();
        let stats = region.stats();
        (stats.device_bytes - before.device_bytes) / (stats.frames - before.frames)
    };
    assert!(frame_bytes() > MIB / 2, "{} B a frame", frame_bytes());
    guard.ask_for_short_queue(true);
    // The first frame may have been begun before.
    frame_bytes();
    assert!(frame_bytes() <= 300 << 10, "{} B a frame", frame_bytes());
    region.drill(false, 1).unwrap();
    frame_bytes();
    assert!(frame_bytes() <= 300 << 10, "{} B a frame after a drill", frame_bytes());
}

#[test]
fn who_takes_memory_over_keeps_a_full_queue_until_a_guard_asks() {
    let device = SimDevice::new(0, 1);
    let (region, guard) = wide(&device);
    guard.ask_for_short_queue(true);
    let (memory, ledger) = region.fds();
    let [memory, ledger] = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
    drop(region);
    let config = Config {
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        ..Config::new(REGION_BYTES, BUDGET_BYTES)
    };
    let clock = Arc::new(SimClock::new(1_000));
    let region = Region::attach(memory, ledger, Arc::new(device), clock, config).unwrap();
    region.lock(LaneId(0)).write(0, &[3; BLOCK_BYTES as usize]).unwrap();
    region.checkpoint().unwrap();
    let stats = region.stats();
    assert!(stats.frames > 0 && stats.short_queue_frames == 0, "{stats:?}");
}

#[test]
fn a_device_far_away_keeps_its_full_queue_nearly_all_the_time() {
    let mut world = World::new();
    world.region.watch_rate(&world.needs_all_of_it()).unwrap();
    // A single write of 256 KiB takes 48 ms, so that one at a time reach 5 MiB/s of 32.
    let timing = Timing {
        bandwidth: BytesPerSecond(PROVEN),
        read_latency_ns: 10_000,
        write_latency_ns: 40_000_000,
        flush_latency_ns: 100_000,
    };
    world.device.set_timing(Arc::clone(&world.clock), timing);
    let guard = guard_of(&world.region);
    let mut written = |is_asked| {
        guard.ask_for_short_queue(is_asked);
        let before = world.region.stats().device_bytes;
        world.run(40);
        world.region.stats().device_bytes - before
    };
    let full = written(false);
    let short = written(true);
    assert!(short > full / 10 * 8, "{short} B with a neighbour, {full} B without");
}

#[test]
fn a_slower_device_that_still_keeps_the_promise_changes_nothing() {
    let mut world = World::new();
    world.region.watch_rate(&world.terms(10.0)).unwrap();
    world.runs_at(PROVEN / 4);
    world.run(24);
    assert!(world.region.stats().observed_rate_bytes_per_s < PROVEN / 3);
    assert_eq!(world.region.budget_now_bytes(), BUDGET_BYTES);
}

#[test]
fn a_short_slowness_changes_nothing_and_nothing_is_watched_without_a_promise() {
    let mut world = World::new();
    world.region.watch_rate(&world.needs_all_of_it()).unwrap();
    for _ in 0..4 {
        world.runs_at(PROVEN / 4);
        world.run(8);
        assert_eq!(world.region.budget_now_bytes(), BUDGET_BYTES);
        world.runs_at(PROVEN);
        world.run(4);
        assert_eq!(world.region.budget_now_bytes(), BUDGET_BYTES);
    }
    let mut world = World::new();
    world.runs_at(PROVEN / 4);
    world.run(24);
    assert_eq!(world.region.stats().rate_samples, 0);
    assert_eq!(world.region.budget_now_bytes(), BUDGET_BYTES);
}

#[test]
fn more_at_once_than_the_device_can_flush_in_time_is_refused_with_the_figure() {
    let mut world = World::new();
    world.region.watch_rate(&world.needs_all_of_it()).unwrap();
    world.runs_at(PROVEN / 20);
    world.run(200);
    let limit_bytes = world.region.budget_now_bytes();
    assert_eq!(limit_bytes, MIB, "an operation must be able to proceed");
    let need = perdura_region::Need::Room { bytes: 2 * MIB };
    let refused = world.region.satisfy(need).unwrap_err();
    assert!(matches!(refused, RegionError::BeyondBudget { budget_bytes: MIB, .. }), "{refused}");
    // So little is outstanding now that the device is never busy for long. Its recovery is noticed
    // all the same.
    world.runs_at(3 * PROVEN);
    for _ in 0..100 {
        let room_bytes = world.region.budget_now_bytes();
        world.write(room_bytes.min(8 * MIB)).unwrap();
        world.region.checkpoint().unwrap();
        // Nobody writes for a while, which must not count as a slow device.
        world.clock.sleep_ns(500_000_000);
    }
    assert_eq!(world.region.budget_now_bytes(), BUDGET_BYTES);
}
