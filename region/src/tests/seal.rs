use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

use perdura_media::{SimClock, SimDevice};

use crate::testing::write;
use crate::{Config, LaneId, Region};
use perdura_dirty::SegmentState;
use perdura_dirty::extent::Extent;
use perdura_dirty::geometry::BLOCK_BYTES;
use perdura_dirty::policy::pace::QUEUE_DEPTH;
use perdura_dirty::promise::Terms;
use perdura_image::{Compression, Packer, Pump};

const BLOCKS: u64 = 32;

fn config(compression: Compression) -> Config {
    Config {
        segment_bytes: Some(64 << 10),
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        compression,
        ..Config::new(BLOCKS * BLOCK_BYTES, BLOCKS * BLOCK_BYTES)
    }
}

fn open(device: &SimDevice, compression: Compression) -> Region {
    let clock = Arc::new(SimClock::new(1_000));
    Region::open(Arc::new(device.clone()), clock, config(compression)).unwrap()
}

fn fill_all(region: &Region) {
    for block in 0..BLOCKS {
        write(region, block * BLOCK_BYTES, &[block as u8 + 1; BLOCK_BYTES as usize]);
    }
}

fn is_filled(region: &Region) -> bool {
    let lane = region.lock(LaneId(0));
    (0..BLOCKS).all(|block| {
        let bytes = lane.bytes(block * BLOCK_BYTES, BLOCK_BYTES as usize);
        bytes.iter().all(|byte| *byte == block as u8 + 1)
    })
}

fn used_segments(region: &Region) -> usize {
    let ledger = &region.running().backed.memory.ledger;
    let segments = ledger.segments().load(Relaxed) as u32;
    (0..segments).filter(|number| ledger.segment(*number).state() == SegmentState::Used).count()
}

#[test]
fn segments_that_compressed_frames_leave_room_in_are_gone_on_with() {
    let used = |compression| {
        let device = SimDevice::new(0, 1);
        let region = open(&device, compression);
        fill_all(&region);
        region.checkpoint().unwrap();
        let used = used_segments(&region);
        // Segments are moved and freed while others are still being filled.
        for round in 0..40u64 {
            for block in (0..BLOCKS).filter(|block| block % 5 == round % 5) {
                write(&region, block * BLOCK_BYTES, &[block as u8 + 1; 40_000]);
            }
            region.checkpoint().unwrap();
        }
        region.close(1).unwrap();
        drop(region);
        assert!(is_filled(&open(&device, compression)));
        used
    };
    let (plain, packed) = (used(Compression::Off), used(Compression::Lz4));
    assert!(packed * 3 < plain * 2, "{packed} segments, {plain} without compression");
}

#[test]
fn nothing_more_is_compressed_once_the_final_flush_waits() {
    let device = SimDevice::new(0, 1);
    let region = open(&device, Compression::Lz4);
    let backed = &region.running().backed;
    fill_all(&region);
    for is_closed in [false, true] {
        if is_closed {
            region.refuse_writers();
        }
        let before = region.stats();
        let run = Extent { grain: 0, len: 512 };
        backed
            .log
            .appender
            .lock()
            .append(&backed.memory.ledger, &backed.memory.map, run, false)
            .unwrap();
        backed.log.appender.lock().close_frame(&backed.memory.ledger, 0);
        region.running().any_cleaner().outlet.pump(backed, Pump::Durable).unwrap();
        let after = region.stats();
        assert_eq!(after.compressed_frames > before.compressed_frames, !is_closed);
        assert_eq!(after.compression_in_bytes > before.compression_in_bytes, !is_closed);
    }
}

#[test]
fn a_kill_before_the_mark_leaves_a_frame_that_is_written_as_it_was() {
    for is_marked in [false, true] {
        let device = SimDevice::new(0, 1);
        let region = open(&device, Compression::Lz4);
        let backed = &region.running().backed;
        fill_all(&region);
        region.running().any_cleaner().clean(backed, 200_000).unwrap();
        region.running().any_cleaner().outlet.pump(backed, Pump::Durable).unwrap();
        // One more frame is closed, and compressed but for the last store.
        let run = Extent { grain: 0, len: 512 };
        backed
            .log
            .appender
            .lock()
            .append(&backed.memory.ledger, &backed.memory.map, run, false)
            .unwrap();
        backed.log.appender.lock().close_frame(&backed.memory.ledger, 0);
        let number = *backed.log.appender.lock().closed.back().unwrap();
        let buffer = backed.memory.ledger.buffer(number);
        let raw = perdura_image::raw_bytes(&buffer);
        Packer::default().pack(backed, &buffer);
        let packed = buffer.packed().unwrap();
        assert!(packed.stored_bytes < raw && packed.kept_bytes == packed.stored_bytes);
        let segment = backed.memory.ledger.segment(buffer.segment().load(Relaxed) as u32);
        let used = segment.used_bytes().load(Relaxed);
        assert_eq!(used, buffer.segment_offset().load(Relaxed) + packed.kept_bytes);
        if !is_marked {
            buffer.set_packed(None);
        }
        let (memory, ledger) = region.fds();
        let [memory, ledger] = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
        drop(region);
        let clock = Arc::new(SimClock::new(1_000));
        let config = config(Compression::Lz4);
        let region =
            Region::attach(memory, ledger, Arc::new(device.clone()), clock, config).unwrap();
        assert!(is_filled(&region));
        region.close(1).unwrap();
        drop(region);
        assert!(is_filled(&open(&device, Compression::Lz4)), "marked: {is_marked}");
    }
}

#[test]
fn a_frame_with_another_behind_it_keeps_its_place() {
    let device = SimDevice::new(0, 1);
    let region = open(&device, Compression::Lz4);
    let backed = &region.running().backed;
    fill_all(&region);
    region.checkpoint().unwrap();
    let mut numbers = Vec::new();
    for grain in [0, 1024] {
        let mut appender = backed.log.appender.lock();
        let run = Extent { grain, len: 256 };
        appender.append(&backed.memory.ledger, &backed.memory.map, run, false).unwrap();
        appender.close_frame(&backed.memory.ledger, 0);
        numbers.push(*appender.closed.back().unwrap());
    }
    let [first, second] =
        [numbers[0], numbers[1]].map(|number| backed.memory.ledger.buffer(number));
    assert_eq!(first.segment().load(Relaxed), second.segment().load(Relaxed));
    let raw = perdura_image::raw_bytes(&first);
    Packer::default().pack(backed, &first);
    let packed = first.packed().unwrap();
    assert!(packed.stored_bytes < raw);
    assert_eq!(packed.kept_bytes, raw, "the second lies behind");
    region.running().any_cleaner().outlet.pump(backed, Pump::Durable).unwrap();
    region.checkpoint().unwrap();
    region.close(1).unwrap();
    drop(region);
    assert!(is_filled(&open(&device, Compression::Lz4)));
}

/// More frames than the device takes at once.
#[test]
fn whatever_was_closed_is_on_the_device_when_it_is_to_be_durable() {
    let device = SimDevice::new(0, 1);
    let region = open(&device, Compression::Off);
    let backed = &region.running().backed;
    let ledger = &backed.memory.ledger;
    for block in 0..BLOCKS {
        write(&region, block * BLOCK_BYTES, &[1; 4096]);
    }
    region.checkpoint().unwrap();
    let mut appender = backed.log.appender.lock();
    for block in 0..QUEUE_DEPTH as u64 + 2 {
        let run = Extent { grain: block * BLOCK_BYTES / 64, len: 4 };
        appender.append(ledger, &backed.memory.map, run, false).unwrap();
        appender.close_frame(ledger, 0);
    }
    assert_eq!(appender.closed.len(), QUEUE_DEPTH + 2);
    drop(appender);
    let outlet = &mut region.running().any_cleaner().outlet;
    outlet.pump(backed, Pump::Durable).unwrap();
    assert!(!outlet.is_busy() && backed.log.appender.lock().closed.is_empty());
}

/// A region writes before anybody knows what is promised: when it is attached, and while the rate
/// is being proven. Bytes that seemed to stay on their way would make every look a slow sample.
#[test]
fn what_was_written_before_the_rate_is_watched_is_not_on_its_way_for_ever() {
    let device = SimDevice::new(0, 1);
    let region = open(&device, Compression::Off);
    let is_idle = || region.running().any_cleaner().outlet.rate.observed.is_idle();
    fill_all(&region);
    region.checkpoint().unwrap();
    assert!(!is_idle(), "nobody watches");
    let (warning, reserve) = (Duration::from_secs(10), Duration::from_secs(1));
    let (rate_bytes_per_s, region_bytes) = (1 << 30, BLOCKS * BLOCK_BYTES);
    region.watch_rate(&Terms { warning, reserve, rate_bytes_per_s, region_bytes }).unwrap();
    assert!(is_idle(), "what was written before seems to be on its way");
    fill_all(&region);
    region.checkpoint().unwrap();
    assert!(is_idle());
}

/// A drill ends the cleaner's writes without a look at its queue.
#[test]
fn what_a_drill_has_ended_is_not_on_its_way_for_ever() {
    let device = SimDevice::new(0, 1);
    let region = open(&device, Compression::Off);
    let backed = &region.running().backed;
    let (warning, reserve) = (Duration::from_secs(10), Duration::from_secs(1));
    let (rate_bytes_per_s, region_bytes) = (1 << 30, BLOCKS * BLOCK_BYTES);
    region.watch_rate(&Terms { warning, reserve, rate_bytes_per_s, region_bytes }).unwrap();
    write(&region, 0, &[1; 8192]);
    let mut appender = backed.log.appender.lock();
    for grain in [0, 64] {
        let run = Extent { grain, len: 4 };
        appender.append(&backed.memory.ledger, &backed.memory.map, run, false).unwrap();
        appender.close_frame(&backed.memory.ledger, 0);
    }
    drop(appender);
    let is_idle = || region.running().any_cleaner().outlet.rate.observed.is_idle();
    region.running().any_cleaner().outlet.pump(backed, Pump::Poll).unwrap();
    assert!(!is_idle(), "nothing was ordered");
    region.drill(false, 1).unwrap();
    assert!(is_idle());
}

/// A proof of the rate writes to free segments, and to nothing else.
#[test]
fn a_proof_leaves_everything_where_it_was() {
    for used in [8, 20, BLOCKS] {
        let device = SimDevice::new(0, 1);
        let region = open(&device, Compression::Off);
        // The segments that the first round used are free behind the second, and lie before it.
        for round in 0..2 {
            for block in 0..used {
                let byte = block as u8 + round;
                write(&region, block * BLOCK_BYTES, &[byte; BLOCK_BYTES as usize]);
            }
            region.checkpoint().unwrap();
        }
        region.prove(1 << 20, 1, &|_| ()).unwrap();
        drop(region);
        let region = open(&device.power_cycle(used), Compression::Off);
        let lane = region.lock(LaneId(0));
        for block in 0..used {
            let bytes = lane.bytes(block * BLOCK_BYTES, BLOCK_BYTES as usize);
            assert!(bytes.iter().all(|byte| *byte == block as u8 + 1), "{block} of {used}");
        }
    }
}

/// The first commit of a process that opened an image must not overwrite the newest one, which is
/// the only whole one while it is being written.
#[test]
fn commits_take_turns_across_openings() {
    let device = SimDevice::new(0, 1);
    let next = |region: &Region| region.running().backed.memory.ledger.slot_turn().load(Relaxed);
    let mut expected = 0;
    for life in 0..6_u8 {
        let region = open(&device, Compression::Off);
        // An opening commits once.
        expected ^= 1;
        assert_eq!(next(&region), expected, "life {life}");
        for round in 0..=life % 2 {
            write(&region, 0, &[life * 2 + round + 1; 64]);
            region.checkpoint().unwrap();
            expected ^= 1;
            assert_eq!(next(&region), expected, "life {life}, round {round}");
        }
    }
}
