use std::sync::Arc;

use perdura_media::{SimClock, SimDevice};

use crate::testing::write;
use crate::{Config, LaneId, Region};
use perdura_dirty::geometry::BLOCK_BYTES;
use perdura_dirty::planted::Planted;

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
        assert!(is_committed());
    }
    region.lock(LaneId(0)).store(8192, 1).unwrap();
    region.commit_group().unwrap();
    assert!(!is_committed(), "a group commit frees no segments; a checkpoint must follow");
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
