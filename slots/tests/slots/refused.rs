//! Regions, lanes and offsets that a heap refuses.

use std::sync::Arc;

use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::{Config, Region};
use perdura_slots::{Heap, HeapError, LaneId, LaneSet};

use crate::heap::{LANE, REGION_BYTES, config, rebuilt, region, run};

#[test]
fn a_heap_of_another_version_is_refused() {
    const AT_VERSION: u64 = 8;
    let device = SimDevice::new(0, 9);
    rebuilt(region(&device, 3)).region().close(1).unwrap();
    for version in [2, 3, 0] {
        let bare = region(&device, 3);
        bare.lock(LaneId(0)).store(AT_VERSION, version).unwrap();
        let refused = Heap::open(bare).map(drop).unwrap_err();
        assert!(
            matches!(refused, HeapError::Version { found, supported: 1 } if found == version),
            "version {version}: {refused}"
        );
    }
}

#[test]
fn another_number_of_lanes_is_refused() {
    let device = SimDevice::new(0, 5);
    rebuilt(region(&device, 3)).region().close(1).unwrap();
    let refused = Heap::open(region(&device, 4)).map(drop);
    assert!(matches!(refused, Err(HeapError::Lanes { stored: 3, found: 4 })));
}

#[test]
fn a_region_of_something_else_is_refused() {
    let device = SimDevice::new(0, 6);
    let bare = region(&device, 3);
    bare.lock(LaneId(0)).write(0, b"something else").unwrap();
    assert!(matches!(Heap::open(bare).map(drop), Err(HeapError::NotAHeap { .. })));
}

#[test]
fn a_mark_of_what_is_no_object_is_refused() {
    let device = SimDevice::new(0, 7);
    let heap = rebuilt(region(&device, 3));
    let object = run(&heap, |op| {
        let object = op.alloc(LANE, 1_000)?;
        op.store(LANE, heap.lane_roots(LANE), object)?;
        Ok(object)
    });
    heap.region().close(1).unwrap();
    drop(heap);
    let heap = Heap::open(region(&device, 3)).unwrap();
    let wrong = object.unwrap() + 64;
    let refused = heap.rebuild(|lane, marks| match lane.id() {
        LANE => marks.mark(wrong),
        _ => Ok::<(), HeapError>(()),
    });
    assert!(matches!(refused, Err(HeapError::NoObject { lane: LANE, offset }) if offset == wrong));
}

#[test]
fn lanes_that_are_not_named_once_and_ascending_are_refused() {
    let device = SimDevice::new(0, 1);
    let heap = rebuilt(region(&device, 3));
    for lanes in [[LaneId(1), LaneId(0)], [LaneId(1), LaneId(1)]] {
        let begun = std::panic::AssertUnwindSafe(|| drop(heap.begin(LaneSet::Many(&lanes), 0)));
        assert!(std::panic::catch_unwind(begun).is_err(), "{lanes:?}");
    }
}

#[test]
fn a_region_without_room_or_lanes_for_a_heap_is_refused_with_what_it_needs() {
    let open = |blocks: u64, lanes: u16| {
        let bytes = blocks * (64 << 10);
        let small = Config {
            lanes: Some(lanes),
            reserved_bytes: Some(REGION_BYTES),
            ..Config { region_bytes: bytes, ..config(lanes) }
        };
        let (device, clock) = (Arc::new(SimDevice::new(0, 1)), Arc::new(SimClock::new(1)));
        Heap::open(Region::open(device, clock, small).unwrap()).map(drop)
    };
    // The tables of 8 MiB take one block, each of five lanes takes one, and one is for objects.
    for blocks in 4..7 {
        let Err(HeapError::TooSmall { region_bytes, needed_bytes }) = open(blocks, 6) else {
            panic!("{blocks} blocks")
        };
        assert_eq!((region_bytes, needed_bytes), (blocks * (64 << 10), 7 * (64 << 10)));
    }
    open(7, 6).unwrap();
    assert!(matches!(open(7, 1), Err(HeapError::TooFewLanes { lanes: 1 })));
}
