//! Runs of slots that are frozen while they are emptied, and the reserve for that.

use perdura_media::sim::SimDevice;
use perdura_slots::{Heap, LaneSet, Stop};

use crate::heap::{LANE, rebuilt, region};

/// Takes slots of `bytes` in lane 1 until memory is used up.
fn take_all(heap: &Heap, bytes: u64) -> Vec<u64> {
    let mut all = Vec::new();
    let mut credit = 0;
    loop {
        let mut op = heap.begin(LaneSet::One(LANE), credit);
        match op.alloc(LANE, bytes).and_then(|slot| op.commit().map(|()| slot)) {
            Ok(slot) => all.push(slot),
            Err(Stop::Need(need)) => credit = heap.region().satisfy(need).unwrap(),
            Err(Stop::OutOfMemory { .. }) => return all,
            Err(stop) => panic!("{stop:?}"),
        }
    }
}

fn free_all(heap: &Heap, slots: impl Iterator<Item = u64>) {
    let mut lane = heap.lock(LANE);
    slots.for_each(|slot| lane.free_unreached(slot));
}

#[test]
fn no_slot_of_a_frozen_run_is_handed_out_and_none_is_lost() {
    let heap = rebuilt(region(&SimDevice::new(0, 1), 3));
    let all = take_all(&heap, 1000);
    let run = heap.run_from(all[0]).unwrap();
    assert_eq!((run.lane, run.slot_bytes), (LANE, 1024));
    let of_run = |slot: &u64| run.slots().any(|other| other == *slot);
    let (inside, outside): (Vec<u64>, Vec<u64>) = all.iter().copied().partition(of_run);
    assert_eq!(run.used as usize, inside.len());
    // Half of the run and half of the others are freed; only the others are handed out.
    free_all(&heap, inside.iter().copied().step_by(2));
    assert!(heap.lock(LANE).freeze_run(&run));
    assert!(!heap.lock(LANE).freeze_run(&run), "it is frozen already");
    free_all(&heap, outside.iter().copied().step_by(2));
    let again = take_all(&heap, 1000);
    assert_eq!(again.len(), outside.len().div_ceil(2));
    assert!(!again.iter().any(of_run));
    // A run that is still used is as it was.
    assert!(!heap.lock(LANE).thaw_run(&run));
    assert_eq!(take_all(&heap, 1000).len(), inside.len().div_ceil(2));
    // An empty one is free for objects of any size.
    assert!(heap.lock(LANE).freeze_run(&run));
    free_all(&heap, inside.iter().copied());
    assert!(take_all(&heap, 1000).is_empty());
    assert!(heap.lock(LANE).thaw_run(&run));
    assert!(!heap.lock(LANE).has_run(&run), "it has gone back to the pool");
    assert_eq!(take_all(&heap, 200).len() as u64, run.len_bytes / 208);
    assert!(take_all(&heap, 1000).is_empty());
}

#[test]
fn the_newest_run_can_be_frozen_with_the_slots_that_were_never_handed_out() {
    let heap = rebuilt(region(&SimDevice::new(0, 1), 3));
    let mut op = heap.begin(LaneSet::One(LANE), 0);
    let slot = op.alloc(LANE, 1000).unwrap();
    op.commit().unwrap();
    let (run, free_bytes) = (heap.run_from(slot).unwrap(), heap.free_slot_bytes());
    assert!(heap.lock(LANE).freeze_run(&run));
    // Only the rest of the block is left.
    assert_eq!(heap.free_slot_bytes(), (64 << 10) - run.len_bytes);
    assert!(!heap.lock(LANE).thaw_run(&run));
    assert_eq!(heap.free_slot_bytes(), free_bytes);
}

#[test]
fn the_reserve_is_for_those_who_may_use_it() {
    let heap = rebuilt(region(&SimDevice::new(0, 1), 3));
    heap.set_reserve(3 * (64 << 10));
    take_all(&heap, 1000);
    let mut op = heap.begin(LaneSet::One(LANE), 0);
    assert!(matches!(op.alloc(LANE, 5000), Err(Stop::OutOfMemory { free_bytes: 0, .. })));
    op.use_reserve();
    op.alloc(LANE, 5000).unwrap();
}
