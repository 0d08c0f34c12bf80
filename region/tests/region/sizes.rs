//! Unusual geometries: segments of several frames, and so many segments that a grain's location
//! takes four bytes.

use std::sync::Arc;

use perdura_media::SimClock;
use perdura_media::sim::SimDevice;
use perdura_region::{BLOCK_BYTES, Config, Geometry, LaneId, OpenError, REGION_MIN_BYTES, Region};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

const REGION_BYTES: u64 = 16 << 20;
const LANE: LaneId = LaneId(0);

fn config(segment_bytes: u64, reserved_bytes: u64) -> Config {
    Config {
        segment_bytes: Some(segment_bytes),
        reserved_bytes: Some(reserved_bytes),
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        ..Config::new(REGION_BYTES, 12 << 20)
    }
}

fn write(region: &Region, offset: u64, bytes: &[u8]) {
    let mut credit = 0;
    loop {
        let mut lane = region.lock_with(LANE, credit);
        let Err(need) = lane.write(offset, bytes) else { return };
        drop(lane);
        credit = region.satisfy(need).unwrap();
    }
}

/// Writes, cuts the power, flushes and takes memory over. After each step, memory and image have
/// what was written.
fn keeps_what_is_written(segment_bytes: u64, reserved_bytes: u64) {
    let (device, clock) = (Arc::new(SimDevice::new(0, 1)), Arc::new(SimClock::new(1_000)));
    let config = || config(segment_bytes, reserved_bytes);
    let mut random = Random::seed_from_u64(segment_bytes);
    let mut model = vec![0u8; REGION_BYTES as usize];
    let mut region = Region::open(device.clone(), clock.clone(), config()).unwrap();
    for round in 0..12 {
        for _ in 0..3_000 {
            let len = random.random_range(1..3_000);
            let at = random.random_range(0..REGION_BYTES - len);
            let at = if random.random_bool(0.5) { at / 8 } else { at };
            let bytes = vec![random.random::<u8>(); len as usize];
            model[at as usize..(at + len) as usize].copy_from_slice(&bytes);
            write(&region, at, &bytes);
        }
        if round % 2 == 0 {
            region.checkpoint().unwrap();
            assert!(region.stats().frames >= 4, "round {round}: {:?}", region.stats());
        }
        if round % 3 == 1 {
            // The process is killed with frames in the buffers, and another one takes the memory
            // over.
            let (memory, ledger) = region.fds();
            let [memory, ledger] = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
            drop(region);
            let taken = Region::attach(memory, ledger, device.clone(), clock.clone(), config());
            region = taken.unwrap();
        } else if round % 3 == 2 {
            region.close(2).unwrap();
            drop(region);
            region = Region::open(device.clone(), clock.clone(), config()).unwrap();
        }
        let lane = region.lock(LANE);
        for block in 0..REGION_BYTES / BLOCK_BYTES {
            let at = (block * BLOCK_BYTES) as usize;
            let expected = &model[at..at + BLOCK_BYTES as usize];
            assert!(
                lane.bytes(at as u64, expected.len()) == expected,
                "round {round}, block {block}"
            );
        }
    }
}

#[test]
fn a_segment_of_several_frames() {
    let geometry = Geometry::new(64 << 20, 6, Some(4 << 20), 20).unwrap();
    assert_eq!(geometry.frame_limit(), 1 << 20);
    keeps_what_is_written(4 << 20, 64 << 20);
}

#[test]
fn more_segments_than_two_bytes_count() {
    let geometry = Geometry::new(1 << 30, 6, Some(64 << 10), 20).unwrap();
    assert!(geometry.segments_max > u32::from(u16::MAX));
    keeps_what_is_written(64 << 10, 1 << 30);
}

#[test]
fn only_growing_writes_anything_and_its_size_is_durable_at_once() {
    let device = SimDevice::new(0, 1);
    let open = |device: &SimDevice| {
        let clock = Arc::new(SimClock::new(1_000));
        Region::open(Arc::new(device.clone()), clock, config(64 << 10, 2 * REGION_BYTES)).unwrap()
    };
    let region = open(&device);
    let before = region.stats();
    for bytes in [REGION_BYTES, REGION_BYTES - 1, 1] {
        region.grow(bytes).unwrap();
        assert_eq!((region.len_bytes(), region.stats()), (REGION_BYTES, before));
    }
    for bytes in [2 * REGION_BYTES + 1, u64::MAX / 2] {
        assert!(region.grow(bytes).is_err());
        assert_eq!((region.len_bytes(), region.stats()), (REGION_BYTES, before));
    }
    region.grow(REGION_BYTES + 1).unwrap();
    let len_bytes = REGION_BYTES + BLOCK_BYTES;
    assert_eq!(region.len_bytes(), len_bytes);
    write(&region, len_bytes - 100, &[7; 100]);
    region.commit_group().unwrap();
    let region = open(&device.power_cycle(1));
    assert_eq!(region.len_bytes(), len_bytes);
    region.grow(2 * REGION_BYTES).unwrap();
    assert_eq!(region.len_bytes(), 2 * REGION_BYTES);
    assert_eq!(region.lock(LANE).bytes(len_bytes - 100, 100), [7; 100]);
}

#[test]
fn a_size_beyond_what_was_reserved_is_refused_and_nothing_is_lost() {
    let device = SimDevice::new(0, 1);
    let clock = Arc::new(SimClock::new(1_000));
    let config = |bytes| Config { region_bytes: bytes, ..config(64 << 10, 2 * REGION_BYTES) };
    let region = Region::open(Arc::new(device.clone()), clock.clone(), config(REGION_BYTES));
    let region = region.unwrap();
    write(&region, 5, &[7; 100]);
    region.checkpoint().unwrap();
    write(&region, 50, &[8; 100]);
    let too_much = 2 * REGION_BYTES + 1;
    let fds = || {
        let (memory, ledger) = region.fds();
        [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap())
    };
    let (ops, kept) = (device.ops(), fds());
    for bytes in [too_much, u64::MAX / 2] {
        let [memory, ledger] = kept.each_ref().map(|fd| fd.try_clone().unwrap());
        let device = Arc::new(device.clone());
        let attached = Region::attach(memory, ledger, device, clock.clone(), config(bytes));
        let Err(OpenError::Size { asked_bytes, reserved_bytes }) = attached else {
            panic!("{:?}", attached.err());
        };
        assert_eq!(asked_bytes, bytes.next_multiple_of(BLOCK_BYTES));
        assert_eq!(reserved_bytes, 2 * REGION_BYTES);
    }
    drop(region);
    assert_eq!(device.ops(), ops, "durable operations of a refused start");
    let [memory, ledger] = kept;
    let taken = Arc::new(device.clone());
    let region =
        Region::attach(memory, ledger, taken, clock.clone(), config(2 * REGION_BYTES)).unwrap();
    assert_eq!(region.lock(LANE).bytes(50, 100), [8; 100]);
    region.close(1).unwrap();
    drop(region);
    let ops = device.ops();
    let refused = Region::open(Arc::new(device.clone()), clock.clone(), config(too_much));
    assert!(matches!(refused, Err(OpenError::Size { .. })), "{:?}", refused.err());
    assert_eq!(device.ops(), ops, "durable operations of a refused start");
    let region = Region::open(Arc::new(device), clock, config(REGION_MIN_BYTES)).unwrap();
    assert_eq!(region.len_bytes(), 2 * REGION_BYTES);
    assert_eq!(region.lock(LANE).bytes(50, 100), [8; 100]);
}
