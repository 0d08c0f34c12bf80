//! Operations that the budget stops, and those that are undone when it is used up.

use std::sync::Arc;

use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::{Config, Region};
use perdura_slots::{Heap, LaneSet, Op, Stop};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use crate::heap::{LANE, LANES, config, rebuilt, run, state};

/// To put bytes back takes budget if they were not dirty any more. The only dirty data that could
/// be cleaned for it belong to the same lane.
#[test]
fn an_overwrite_is_undone_where_its_lane_has_used_up_the_budget() {
    const UNDONE: usize = 16 << 10;
    const OBJECT_BYTES: u64 = 256 << 10;
    let small = || Config { budget_bytes: 128 << 10, ..config(3) };
    let mut has_survived = false;
    for steps in 1..20 {
        let device = SimDevice::new(0, steps);
        let (disk, clock) = (Arc::new(device.clone()), Arc::new(SimClock::new(1)));
        let heap = rebuilt(Region::open(disk.clone(), clock.clone(), small()).unwrap());
        let mut first = heap.begin(LaneSet::One(LANE), 0);
        let object = first.alloc(LANE, OBJECT_BYTES).unwrap();
        first.store(LANE, heap.lane_roots(LANE), object).unwrap();
        first.fill(LANE, object, UNDONE, None).unwrap().fill(1);
        first.commit().unwrap();
        heap.region().checkpoint().unwrap();
        heap.kill_after(steps);
        let mut second = heap.begin(LaneSet::One(LANE), 0);
        has_survived = second.overwrite(LANE, object, &[2; UNDONE]).is_ok();
        drop(second);
        // Every grain behind the bytes becomes dirty, until none fits.
        let mut held = heap.region().lock(LANE);
        let mut grains = (object + UNDONE as u64..object + OBJECT_BYTES).step_by(64);
        assert!(grains.any(|grain| held.write(grain, &[3; 64]).is_err()), "{steps} steps");
        drop(held);

        let (memory, ledger) = heap.region().fds();
        let fds = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
        drop(heap);
        let [memory, ledger] = fds;
        let heap = rebuilt(Region::attach(memory, ledger, disk, clock, small()).unwrap());
        let bytes = heap.lock(LANE).bytes(object, UNDONE).to_vec();
        assert!(bytes == [1; UNDONE], "killed after {steps} steps");
        if has_survived {
            break;
        }
    }
    assert!(has_survived, "an overwrite takes fewer steps");
}

/// Part of a range was announced when the budget ran out: it was not changed, and is not put back.
#[test]
fn an_overwrite_that_the_budget_stops_is_undone() {
    let device = SimDevice::new(0, 8);
    let small = Config { budget_bytes: 256 << 10, ..config(3) };
    let clock = Arc::new(SimClock::new(1));
    let heap = rebuilt(Region::open(Arc::new(device.clone()), clock, small).unwrap());
    let object = run(&heap, |op| {
        let object = op.alloc(LANE, 600_000)?;
        op.store(LANE, heap.lane_roots(LANE), object)?;
        Ok(object)
    })
    .unwrap();
    let image = |heap: &Heap| heap.lock(LANE).bytes(object, 600_000).to_vec();
    let mut random = Random::seed_from_u64(8);
    let mut stopped = 0;
    for _ in 0..300 {
        let before = image(&heap);
        let mut op = heap.begin(LaneSet::Many(&LANES), 0);
        let at = random.random_range(0..400_000);
        let bytes = vec![random.random(); random.random_range(1..100_000)];
        match op.overwrite(LANE, object + at as u64, &bytes) {
            Ok(()) => {
                op.commit().unwrap();
                let mut expected = before;
                expected[at..at + bytes.len()].copy_from_slice(&bytes);
                assert!(image(&heap) == expected);
            }
            Err(Stop::Need(need)) => {
                drop(op);
                assert!(image(&heap) == before);
                drop(heap.lock_with(LANE, heap.region().satisfy(need).unwrap()));
                stopped += 1;
            }
            Err(stop) => panic!("{stop:?}"),
        }
    }
    assert!((20..280).contains(&stopped), "{stopped} of 300 stopped");
}

/// The log has room for some of what the undo slot keeps when the budget is used up.
#[test]
fn an_operation_that_the_budget_stops_on_the_way_from_the_slot_to_the_log_is_undone() {
    const BUDGET_BYTES: u64 = 128 << 10;
    let small = || Config { budget_bytes: BUDGET_BYTES, ..config(3) };
    let mut stopped = 0;
    for left in (64..8 << 10).step_by(320) {
        let (device, clock) = (Arc::new(SimDevice::new(0, 1)), Arc::new(SimClock::new(1)));
        let heap = rebuilt(Region::open(device.clone(), clock.clone(), small()).unwrap());
        let at = heap.lane_roots(LANE) + 64;
        run(&heap, |op| {
            let object = op.alloc(LANE, 256 << 10)?;
            op.store(LANE, heap.lane_roots(LANE), object)?;
            op.overwrite(LANE, at, &[1; 3_000])
        })
        .unwrap();
        let before = state(&heap);
        let object = heap.lock(LANE).load(heap.lane_roots(LANE));
        // Dirty grains of an object leave `left` bytes of the budget.
        let mut held = heap.region().lock(LANE);
        for grain in (object..).step_by(64) {
            if heap.region().used_bytes() + left > BUDGET_BYTES || held.announce(grain, 64).is_err()
            {
                break;
            }
        }
        drop(held);
        let change = |op: &mut Op<'_>| {
            (0..5).try_for_each(|nth| op.overwrite(LANE, at + nth * 500, &[2; 990]))
        };
        let mut op = heap.begin(LaneSet::One(LANE), 0);
        let outcome = change(&mut op);
        if outcome.is_ok() {
            op.commit().unwrap();
            continue;
        }
        drop(op);
        stopped += 1;
        assert!(state(&heap) == before, "{left} bytes left");
        // What the log was to have must not come to life behind the next operation.
        run(&heap, |op| op.overwrite(LANE, at, &[3; 100])).unwrap();
        let before = state(&heap);
        let (memory, ledger) = heap.region().fds();
        let [memory, ledger] = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
        drop(heap);
        let heap = rebuilt(Region::attach(memory, ledger, device, clock, small()).unwrap());
        assert!(state(&heap) == before, "{left} bytes left, taken over");
        run(&heap, change).unwrap();
    }
    assert!(stopped > 5, "{stopped}");
}
