use std::sync::Arc;

use perdura_dirty::geometry::BLOCK_BYTES;
use perdura_media::{SimClock, SimDevice};

use crate::testing::write;
use crate::{Config, Region};

const BLOCKS: u64 = 256;
const SEGMENT_BYTES: u64 = 1 << 20;

fn open(device: &SimDevice, heat: Vec<u8>) -> Region {
    let config = Config {
        segment_bytes: Some(SEGMENT_BYTES),
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        defer_load: true,
        heat,
        ..Config::new(BLOCKS * BLOCK_BYTES, 32 * BLOCK_BYTES)
    };
    Region::open(Arc::new(device.clone()), Arc::new(SimClock::new(1_000)), config).unwrap()
}

fn loaded(region: &Region) -> Vec<u64> {
    let lanes = &region.running().backed.tracked.lanes;
    (0..BLOCKS).filter(|block| !lanes.is_unloaded(*block)).collect()
}

fn value(block: u64) -> u8 {
    (block % 251) as u8 + 1
}

/// An image of which each block was written once, in the order of the blocks.
fn filled() -> SimDevice {
    let device = SimDevice::new(0, 1);
    let region = open(&device, Vec::new());
    for block in 0..BLOCKS {
        write(&region, block * BLOCK_BYTES, &[value(block); BLOCK_BYTES as usize]);
        if block % 8 == 7 {
            region.checkpoint().unwrap();
        }
    }
    region.close(1).unwrap();
    device
}

#[test]
fn the_segments_with_hot_blocks_are_loaded_first_and_all_the_others_after_them() {
    let device = filled();
    for hot in [10, 100, 200, 250] {
        let heat: Vec<u8> = (0..BLOCKS).map(|block| u8::from(block == hot) * 200).collect();
        let region = open(&device, heat);
        assert!(loaded(&region).is_empty());
        assert!(region.load_next().unwrap());
        let first = loaded(&region);
        assert!(first.contains(&hot), "{hot} is hot; loaded: {first:?}");
        assert!(first.len() < 40, "one segment: {first:?}");
        region.load_all().unwrap();
        assert_eq!(loaded(&region).len() as u64, BLOCKS);
        for block in 0..BLOCKS {
            assert_eq!(region.peek(block * BLOCK_BYTES) as u8, value(block), "block {block}");
        }
    }
}

#[test]
fn of_two_hot_segments_the_hotter_one_is_loaded_first() {
    let device = filled();
    for (hotter, hot) in [(20, 230), (230, 20)] {
        let mut heat = vec![0; BLOCKS as usize];
        (heat[hotter as usize], heat[hot as usize]) = (120, 90);
        let region = open(&device, heat);
        region.load_next().unwrap();
        assert!(loaded(&region).contains(&hotter) && !loaded(&region).contains(&hot));
        region.load_next().unwrap();
        assert!(loaded(&region).contains(&hot));
    }
}

#[test]
fn heat_of_another_size_orders_and_loses_nothing() {
    let device = filled();
    for heat in [vec![9; 3], vec![1; 4 * BLOCKS as usize]] {
        let region = open(&device, heat);
        region.load_all().unwrap();
        assert_eq!(loaded(&region).len() as u64, BLOCKS);
    }
}

#[test]
fn what_was_used_is_hot_in_the_next_run_too() {
    let device = SimDevice::new(0, 1);
    let region = open(&device, Vec::new());
    (0..1000).for_each(|_| write(&region, 7 * BLOCK_BYTES, &[1; 64]));
    let lane = region.lock(crate::LaneId(0));
    (0..1000).for_each(|_| lane.note_access(9 * BLOCK_BYTES));
    drop(lane);
    let heat = region.heat();
    let hot: Vec<usize> = (0..heat.len()).filter(|block| heat[*block] > 0).collect();
    assert_eq!((heat.len() as u64, hot), (BLOCKS, vec![7, 9]));
    region.close(1).unwrap();
    drop(region);
    assert_eq!(open(&device, heat.clone()).heat(), heat);
}
