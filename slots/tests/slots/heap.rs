//! The heap by itself: undo over long logs, memory that comes back.

use std::sync::Arc;

use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::{Config, Region};
use perdura_slots::{Heap, HeapError, LANE_ROOT_BYTES, LaneId, LaneSet, Need, Op, Stop};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

pub const REGION_BYTES: u64 = 8 << 20;
pub const LANE: LaneId = LaneId(1);
pub const LANES: [LaneId; 2] = [LaneId(0), LaneId(1)];

pub fn config(lanes: u16) -> Config {
    Config {
        segment_bytes: Some(64 << 10),
        reserved_bytes: Some(REGION_BYTES),
        lanes: Some(lanes),
        thread: false,
        checkpoint_every: None,
        ..Config::new(REGION_BYTES, 2 << 20)
    }
}

pub fn region(device: &SimDevice, lanes: u16) -> Region {
    Region::open(Arc::new(device.clone()), Arc::new(SimClock::new(1)), config(lanes)).unwrap()
}

fn attach(heap: Heap, device: &SimDevice) -> Heap {
    let (memory, ledger) = heap.region().fds();
    let fds = (memory.try_clone_to_owned().unwrap(), ledger.try_clone_to_owned().unwrap());
    drop(heap);
    let (device, clock) = (Arc::new(device.clone()), Arc::new(SimClock::new(1)));
    rebuilt(Region::attach(fds.0, fds.1, device, clock, config(3)).unwrap())
}

/// A heap whose only object, if any, is named by the first root word of each lane.
pub fn rebuilt(region: Region) -> Heap {
    let heap = Heap::open(region).unwrap();
    let roots = LANES.map(|lane| heap.lane_roots(lane));
    heap.rebuild(|lane, marks| match lane.load(roots[usize::from(lane.id().0)]) {
        0 => Ok::<(), HeapError>(()),
        object => marks.mark(object),
    })
    .unwrap();
    heap
}

/// Runs an operation until it needs nothing; `None` if the heap played dead.
pub fn run<R>(heap: &Heap, mut f: impl FnMut(&mut Op<'_>) -> Result<R, Stop>) -> Option<R> {
    let (mut credit, mut ask) = (0, 64 << 10);
    loop {
        let mut op = heap.begin(LaneSet::Many(&LANES), credit);
        match f(&mut op).and_then(|value| op.commit().map(|()| value)) {
            Ok(value) => return Some(value),
            Err(Stop::Killed) => return None,
            Err(Stop::Need(Need::Room { bytes })) => {
                ask = bytes.max(ask * 2);
                credit = heap.region().satisfy(Need::Room { bytes: ask }).unwrap();
            }
            Err(stop) => panic!("{stop:?}"),
        }
    }
}

fn words(heap: &Heap, lane: LaneId) -> Vec<u8> {
    let roots = heap.lane_roots(lane);
    heap.lock(lane).bytes(roots + 64, (LANE_ROOT_BYTES - 64) as usize).to_vec()
}

pub fn state(heap: &Heap) -> [Vec<u8>; 2] {
    LANES.map(|lane| words(heap, lane))
}

/// Stores words and bytes in the root areas of both lanes, `count` times.
fn scribble(heap: &Heap, op: &mut Op<'_>, random: &mut Random, count: usize) -> Result<(), Stop> {
    for _ in 0..count {
        let lane = LANES[random.random_range(0..2)];
        let at = heap.lane_roots(lane) + 64 + random.random_range(0..400) * 8;
        if random.random_bool(0.7) {
            op.store(lane, at, random.random())?;
        } else {
            let bytes: Vec<u8> =
                (0..random.random_range(1..700)).map(|_| random.random()).collect();
            op.overwrite(lane, at + 3, &bytes)?;
        }
    }
    Ok(())
}

#[test]
fn long_logs_are_undone_exactly_wherever_they_are_cut() {
    let mut fuse = 1;
    let mut rounds = 0;
    while fuse < 20_000 {
        let device = SimDevice::new(0, fuse);
        let heap = rebuilt(region(&device, 3));
        let mut random = Random::seed_from_u64(fuse);
        run(&heap, |op| scribble(&heap, op, &mut random, 20)).unwrap();
        let before = state(&heap);
        heap.kill_after(fuse);
        let survived = run(&heap, |op| scribble(&heap, op, &mut random, 2_000)).is_some();
        let heap = attach(heap, &device);
        if survived {
            assert_ne!(state(&heap), before);
            break;
        }
        assert_eq!(state(&heap), before, "killed after {fuse}");
        // What the long log left behind must not come to life with the next, short one.
        heap.kill_after(9);
        assert!(run(&heap, |op| scribble(&heap, op, &mut random, 50)).is_none());
        let heap = attach(heap, &device);
        assert_eq!(state(&heap), before, "killed after {fuse}, then again");
        fuse += 1 + fuse / 6;
        rounds += 1;
    }
    assert!(rounds > 30, "only {rounds} rounds");
}

#[test]
fn a_dropped_operation_leaves_no_trace_and_no_leak() {
    let device = SimDevice::new(0, 1);
    let heap = rebuilt(region(&device, 3));
    let mut random = Random::seed_from_u64(1);
    let (before, free) = (state(&heap), heap.stats().free_bytes);
    for round in 0..50 {
        let mut op = heap.begin(LaneSet::Many(&LANES), 0);
        for _ in 0..20 {
            let bytes = random.random_range(1..200_000);
            let Ok(object) = op.alloc(LANE, bytes) else { break };
            if op.fill(LANE, object, bytes.min(2_000) as usize, None).is_err() {
                break;
            }
        }
        let outcome = scribble(&heap, &mut op, &mut random, 1_200);
        assert!(outcome.is_ok() || matches!(outcome, Err(Stop::Need(_))));
        drop(op);
        assert_eq!(state(&heap), before, "round {round}");
        heap.region().checkpoint().unwrap();
    }
    heap.reclaim();
    assert_eq!(heap.stats().free_bytes, free);
}

/// A short log after a long one that committed: the long one's chain must be gone from memory, too.
#[test]
fn a_committed_chain_is_not_followed_again() {
    let device = SimDevice::new(0, 2);
    let heap = rebuilt(region(&device, 3));
    let mut random = Random::seed_from_u64(2);
    run(&heap, |op| scribble(&heap, op, &mut random, 1_500)).unwrap();
    let before = state(&heap);
    heap.kill_after(40);
    assert!(run(&heap, |op| scribble(&heap, op, &mut random, 500)).is_none());
    assert_eq!(state(&attach(heap, &device)), before);
}

#[test]
fn objects_keep_apart_and_memory_comes_back() {
    let device = SimDevice::new(0, 3);
    let heap = rebuilt(region(&device, 3));
    let free = heap.stats().free_bytes;
    let mut random = Random::seed_from_u64(3);
    let mut objects: Vec<(u64, u64)> = Vec::new();
    for _ in 0..3_000 {
        if random.random_bool(0.55) || objects.is_empty() {
            let bytes = match random.random_range(0..10) {
                0 => random.random_range(1..150_000),
                1..4 => random.random_range(1..20_000),
                _ => random.random_range(1..1_500),
            };
            let mut op = heap.begin(LaneSet::One(LANE), 0);
            match op.alloc(LANE, bytes) {
                Ok(object) => {
                    let end = object + op.lane(LANE).usable_bytes(object);
                    let shares = bytes < 256 && !(end - object).is_multiple_of(64);
                    assert!(object % if shares { 16 } else { 64 } == 0 && end >= object + bytes);
                    let apart = objects.iter().all(|(from, to)| end <= *from || object >= *to);
                    assert!(apart, "{object:#x} overlaps another object");
                    objects.push((object, end));
                    op.commit().unwrap();
                }
                Err(Stop::Need(_)) => {
                    drop(op);
                    heap.region().checkpoint().unwrap();
                }
                Err(Stop::OutOfMemory { .. }) => {}
                Err(Stop::Killed) => unreachable!(),
            }
        } else {
            let (object, _) = objects.swap_remove(random.random_range(0..objects.len()));
            let mut op = heap.begin(LaneSet::One(LANE), 0);
            op.free(object);
            op.commit().unwrap();
        }
    }
    for (object, _) in objects {
        heap.lock(LANE).free_unreached(object);
    }
    heap.region().checkpoint().unwrap();
    heap.reclaim();
    assert_eq!(heap.stats().free_bytes, free);
}

/// Empty runs are kept for the next objects of their size, but only a few of them.
#[test]
fn runs_that_were_emptied_go_back_by_themselves_once_they_are_many() {
    const BYTES: u64 = 20_000;
    let device = SimDevice::new(0, 3);
    let heap = rebuilt(region(&device, 3));
    let free = || heap.stats().free_bytes;
    let all_bytes = free();
    let mut op = heap.begin(LaneSet::One(LANE), 0);
    let objects: Vec<u64> = (0..200).map(|_| op.alloc(LANE, BYTES).unwrap()).collect();
    op.commit().unwrap();
    let used_bytes = all_bytes - free();
    assert!(used_bytes >= 200 * BYTES);
    // A sixth of the runs is not worth a search of all free slots.
    let few = objects.len() / 6;
    objects[..few].iter().for_each(|object| heap.lock(LANE).free_unreached(*object));
    assert_eq!(all_bytes - free(), used_bytes);
    objects[few..].iter().for_each(|object| heap.lock(LANE).free_unreached(*object));
    let kept_bytes = all_bytes - free();
    assert!((1..used_bytes / 4).contains(&kept_bytes), "{kept_bytes} of {used_bytes} are kept");
    let mut op = heap.begin(LaneSet::One(LANE), 0);
    op.alloc(LANE, BYTES).unwrap();
    op.commit().unwrap();
    assert_eq!(all_bytes - free(), kept_bytes, "no kept run was used");
}

/// Objects that grow together leave no runs behind in the classes that they have outgrown.
#[test]
fn runs_of_outgrown_classes_go_back_when_another_class_needs_one() {
    const BLOCK_BYTES: u64 = 64 << 10;
    let device = SimDevice::new(0, 5);
    let heap = rebuilt(region(&device, 3));
    let free = || heap.stats().free_bytes;
    let all_bytes = free();
    let mut objects: Vec<u64> = Vec::new();
    for grains in 1..=16 {
        for nth in 0..256 {
            let mut op = heap.begin(LaneSet::One(LANE), 0);
            let grown = op.alloc(LANE, grains * 64).unwrap();
            op.commit().unwrap();
            match objects.get_mut(nth) {
                Some(object) => {
                    heap.lock(LANE).free_unreached(*object);
                    *object = grown;
                }
                None => objects.push(grown),
            }
        }
    }
    // The objects fill four blocks; the runs that the last ones left came after the last refill.
    let used_bytes = all_bytes - free();
    assert!(used_bytes <= 7 * BLOCK_BYTES, "{} blocks are held", used_bytes / BLOCK_BYTES);
}

/// A lane has few objects of most sizes: together they lie in few blocks. What is free in these is
/// the lane's after a start, too.
#[test]
fn objects_of_many_sizes_share_blocks_and_the_rest_of_a_block_is_found_again() {
    let device = SimDevice::new(0, 6);
    let heap = rebuilt(region(&device, 3));
    let all_bytes = heap.stats().free_bytes;
    let sizes = (1..=32).map(|grains| grains * 64);
    let objects: Vec<u64> =
        sizes.map(|bytes| run(&heap, |op| op.alloc(LANE, bytes)).unwrap()).collect();
    let used_bytes = all_bytes - heap.stats().free_bytes;
    // Before runs were shorter than blocks, this was 32 blocks.
    assert!(used_bytes <= 7 * (64 << 10), "{used_bytes}");
    heap.region().close(1).unwrap();
    drop(heap);
    let heap = Heap::open(region(&device, 3)).unwrap();
    let free_bytes = heap.stats().free_bytes;
    let spans_bytes = heap.free_slot_bytes();
    assert!(free_bytes == all_bytes - used_bytes && spans_bytes > 0, "{spans_bytes}");
    heap.rebuild(|lane, marks| {
        let reached = objects.iter().filter(|_| lane.id() == LANE);
        reached.copied().try_for_each(|object| marks.mark(object))
    })
    .unwrap();
    // A run of one span for objects of another size comes from the blocks that there are.
    run(&heap, |op| op.alloc(LANE, 16)).unwrap();
    assert_eq!(heap.stats().free_bytes, free_bytes);
    objects.into_iter().for_each(|object| heap.lock(LANE).free_unreached(object));
    heap.reclaim();
    assert_eq!(heap.stats().free_bytes, all_bytes - (64 << 10));
}

#[test]
fn small_objects_share_grains_and_keep_their_bytes() {
    for seed in 0..8 {
        let device = SimDevice::new(0, seed);
        let mut random = Random::seed_from_u64(seed);
        let heap = rebuilt(region(&device, 3));
        let mut objects: Vec<(u64, Vec<u8>)> = Vec::new();
        for step in 0..4_000 {
            if random.random_bool(0.6) || objects.is_empty() {
                let bytes = vec![random.random::<u8>(); random.random_range(1..240)];
                let object = run(&heap, |op| {
                    let object = op.alloc(LANE, bytes.len() as u64)?;
                    op.fill(LANE, object, bytes.len(), None)?.copy_from_slice(&bytes);
                    Ok(object)
                });
                objects.push((object.unwrap(), bytes));
            } else {
                let (object, _) = objects.swap_remove(random.random_range(0..objects.len()));
                heap.lock(LANE).free_unreached(object);
            }
            if step % 400 == 0 {
                heap.region().checkpoint().unwrap();
            }
        }
        heap.region().close(1).unwrap();
        drop(heap);
        let heap = Heap::open(region(&device, 3)).unwrap();
        // In any order, and each once.
        objects.reverse();
        heap.rebuild(|lane, marks| {
            let reached = objects.iter().filter(|_| lane.id() == LANE);
            reached.map(|(object, _)| *object).try_for_each(|object| marks.mark(object))
        })
        .unwrap();
        let held = heap.lock(LANE);
        for (object, bytes) in &objects {
            assert_eq!(held.bytes(*object, bytes.len()), bytes, "seed {seed}, {object:#x}");
        }
        drop(held);
        // What is free is given out, and nothing else.
        let taken: Vec<u64> =
            (0..1_000).map(|_| run(&heap, |op| op.alloc(LANE, 20)).unwrap()).collect();
        assert!(taken.iter().all(|new| {
            objects.iter().all(|(old, bytes)| new + 32 <= *old || *new >= old + bytes.len() as u64)
        }));
    }
}

#[test]
fn what_small_objects_shared_is_not_dirty_any_more_when_their_run_goes_back() {
    let device = SimDevice::new(0, 1);
    let heap = rebuilt(region(&device, 3));
    heap.region().checkpoint().unwrap();
    let dirty_bytes = || heap.region().used_bytes();
    let before = dirty_bytes();
    for bytes in [20, 70, 90, 140, 200] {
        let objects: Vec<u64> = (0..5_000)
            .map(|_| {
                let filled = run(&heap, |op| {
                    let object = op.alloc(LANE, bytes)?;
                    op.fill(LANE, object, bytes as usize, None)?.fill(1);
                    Ok(object)
                });
                filled.unwrap()
            })
            .collect();
        let full = dirty_bytes();
        assert!(full > before + 100_000, "{bytes} B: {full}");
        objects.into_iter().for_each(|object| heap.lock(LANE).free_unreached(object));
        heap.reclaim();
        // What is kept of a lane's begun runs, and the table of spans.
        let left = dirty_bytes() - before;
        assert!(left <= 2 * 65_536 + 4_096, "{bytes} B: {left} B of {full} left");
    }
}

/// The search is still to come and will find the object free. Its dirty grains cease to count now.
#[test]
fn what_is_freed_before_the_search_for_free_memory_is_not_dirty_any_more() {
    for bytes in [40_000, 200_000] {
        let device = SimDevice::new(0, 1);
        let heap = rebuilt(region(&device, 3));
        let object = run(&heap, |op| op.alloc(LANE, bytes)).unwrap();
        heap.region().close(1).unwrap();
        drop(heap);
        let heap = Heap::open(region(&device, 3)).unwrap();
        let before = heap.region().used_bytes();
        heap.lock(LANE).write_unreached(object, &vec![1; bytes as usize]).unwrap();
        assert!(heap.region().used_bytes() >= before + bytes);
        let free_bytes = heap.stats().free_bytes;
        heap.lock(LANE).free_unreached(object);
        assert_eq!(heap.stats().free_bytes, free_bytes, "the search has been made already");
        // What the lane keeps as credit, and the last grain.
        let left = heap.region().used_bytes() - before;
        assert!(left <= bytes / 2, "{left} B of {bytes} are dirty");
    }
}

#[test]
fn roots_are_named_and_last() {
    let device = SimDevice::new(0, 4);
    let heap = rebuilt(region(&device, 3));
    assert_eq!(heap.root("a"), None);
    // Names of all lengths, which begin alike.
    let name = |number: usize| "abcdefghijklmnopqrstuvwx"[..1 + number % 24].to_owned();
    for number in 0..24 {
        heap.set_root(&name(number), number as u64).unwrap();
    }
    for number in 24..32 {
        heap.set_root(&format!("root {number}"), number).unwrap();
    }
    heap.set_root("root 27", 77).unwrap();
    assert!(matches!(heap.set_root("b", 1), Err(HeapError::RootsFull { .. })));
    heap.region().close(1).unwrap();
    drop(heap);
    let heap = rebuilt(region(&device, 3));
    assert_eq!((heap.root("root 27"), heap.root("root 31")), (Some(77), Some(31)));
    assert!((0..24).all(|number| heap.root(&name(number)) == Some(number as u64)));
}

#[test]
fn roots_whose_names_begin_alike_keep_apart() {
    const NAMES: [&str; 5] =
        ["a word of", "a word o", "a word of a", "a word of another", "a word of another word ."];
    let device = SimDevice::new(0, 4);
    let heap = rebuilt(region(&device, 3));
    for (name, value) in NAMES.iter().zip(1..) {
        assert_eq!(heap.root(name), None, "{name:?} is found before it is set");
        heap.set_root(name, value).unwrap();
    }
    heap.set_root(NAMES[2], 33).unwrap();
    heap.region().close(1).unwrap();
    drop(heap);
    let heap = rebuilt(region(&device, 3));
    assert_eq!(NAMES.map(|name| heap.root(name)), [1, 2, 33, 4, 5].map(Some));
}

/// One word needs no log as long as no other change follows. The states allowed after a kill are
/// the one before and the one after all stores.
#[test]
fn a_word_that_waits_for_the_commit_counts_with_whatever_follows() {
    // Whether a store waits for the commit, and the number of its word: even ones are in one lane,
    // odd ones in the other.
    let cases: [&[(bool, usize)]; 6] = [
        &[(true, 0)],
        &[(true, 0), (true, 0), (true, 0)],
        &[(true, 0), (true, 1), (true, 0)],
        &[(true, 0), (false, 1), (true, 2)],
        &[(false, 0), (true, 1), (true, 2)],
        &[(true, 1), (false, 1), (false, 0), (true, 1)],
    ];
    for stores in cases {
        for fuse in 1.. {
            let device = SimDevice::new(0, 1);
            let heap = rebuilt(region(&device, 3));
            let roots = LANES.map(|lane| heap.lane_roots(lane));
            let place = |word: usize| (LANES[word % 2], roots[word % 2] + 64 + word as u64 * 8);
            heap.kill_after(fuse);
            let done = run(&heap, |op| {
                for (value, (waits, word)) in (1..).zip(stores) {
                    let (lane, at) = place(*word);
                    match waits {
                        true => op.store_last(lane, at, value)?,
                        false => op.store(lane, at, value)?,
                    }
                }
                Ok(())
            });
            let mut after = [0; 3];
            (1..).zip(stores).for_each(|(value, (_, word))| after[*word] = value);
            let heap = attach(heap, &device);
            let found = [0, 1, 2].map(|word| {
                let (lane, at) = place(word);
                heap.lock(lane).load(at)
            });
            let is_right = found == after || done.is_none() && found == [0; 3];
            assert!(is_right, "{stores:?}, killed after {fuse}: {found:?}");
            if done.is_some() {
                break;
            }
        }
    }
}
