use std::sync::Arc;
use std::sync::atomic::Ordering::*;

use perdura_media::{SimClock, SimDevice};

use crate::testing::write;
use crate::{Config, LaneId, Region};
use perdura_dirty::geometry::{BLOCK_BYTES, COMPACTION_FRAMES};
use perdura_dirty::{BufferState, RegionError};
use perdura_image::{Compaction, Pump, Step, buffers_in_use, is_being_written};

#[test]
fn space_is_made_though_nothing_is_in_use() {
    // No lane keeps credit, so after a group commit nothing at all is in use.
    let (blocks, clock) = (512, Arc::new(SimClock::new(1_000)));
    let config = Config {
        segment_bytes: Some(64 << 10),
        lanes: Some(64),
        thread: false,
        checkpoint_every: None,
        ..Config::new(blocks * BLOCK_BYTES, 4 * BLOCK_BYTES)
    };
    let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock, config).unwrap();
    let records = blocks * 64;
    // Every segment keeps live data, until hardly any are spare.
    let all = (0..records).chain((0..8).flat_map(|halving| {
        (0..records >> (halving + 1)).map(move |record| record << (halving + 1))
    }));
    for (step, record) in all.enumerate() {
        write(&region, record * 1024, &[1; 1024]);
        if step % 54 == 53 {
            // A group commit fills about a segment.
            region.commit_group().unwrap();
            assert_eq!(region.used_bytes(), 0, "this test shows nothing");
            region.checkpoint().unwrap();
        }
    }
}

#[test]
fn a_segment_with_frames_on_their_way_is_emptied_when_they_have_arrived() {
    let config = Config {
        segment_bytes: Some(64 << 10),
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        ..Config::new(64 * BLOCK_BYTES, 32 * BLOCK_BYTES)
    };
    let clock = Arc::new(SimClock::new(1_000));
    let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock, config).unwrap();
    write(&region, 0, &[1; 65_536]);
    write(&region, BLOCK_BYTES, &[1; 65_536]);
    let backed = &region.running().backed;
    let mut cleaner = region.running().any_cleaner();
    cleaner.clean(backed, 2 * BLOCK_BYTES).unwrap();
    let current = backed.log.appender.lock().current_segment();
    let victim = (0..backed.memory.ledger.segments().load(Relaxed) as u32)
        .find(|number| Some(*number) != current && is_being_written(backed, *number))
        .expect("no frame is on its way: this test shows nothing");
    cleaner.compact(backed, victim).unwrap();
    assert_eq!(backed.memory.ledger.segment(victim).live_bytes().load(Relaxed), 0);
}

#[test]
fn the_final_flush_does_not_wait_for_space_to_be_made() {
    let (blocks, clock) = (64, Arc::new(SimClock::new(1_000)));
    let config = Config {
        segment_bytes: Some(64 << 10),
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        ..Config::new(blocks * BLOCK_BYTES, 8 * BLOCK_BYTES)
    };
    let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock, config).unwrap();
    for step in 0..4 * blocks * 64 {
        let record = step * 7_919 % (blocks * 64);
        write(&region, record * 1024, &[1]);
    }
    // More space is wanted than there is.
    let backed = &region.running().backed;
    backed.memory.ledger.budget_limit().store(4 * blocks * BLOCK_BYTES, Relaxed);
    region.refuse_writers();
    let before = region.stats();
    let refused = region.running().any_cleaner().ensure_space(backed);
    assert!(matches!(refused, Err(RegionError::Closed)), "{refused:?}");
    assert_eq!(region.stats(), before);
}

#[test]
fn compaction_has_no_more_on_its_way_than_the_warning_leaves_time_for() {
    // The frames were written for a larger budget, and are longer than those for the budget at the
    // time of compaction.
    for budget in [16 << 20, 1 << 20, 128 << 10] {
        let config = Config {
            segment_bytes: Some(1 << 20),
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            ..Config::new(16 << 20, 16 << 20)
        };
        let clock = Arc::new(SimClock::new(1_000));
        let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock, config).unwrap();
        for block in 0..128 {
            write(&region, block * BLOCK_BYTES, &[1; 65_536]);
        }
        region.checkpoint().unwrap();
        region.set_budget(budget).unwrap();
        let backed = &region.running().backed;
        let victim = (0..backed.memory.ledger.segments().load(Relaxed) as u32)
            .find(|n| backed.memory.ledger.segment(*n).live_bytes().load(Relaxed) > 900_000)
            .unwrap();
        let mut cleaner = region.running().any_cleaner();
        assert!(backed.log.appender.lock().begin_emptying(victim));
        let mut compaction = Compaction::begin(backed, victim, &mut cleaner.tables);
        loop {
            match compaction.step().unwrap() {
                Step::Moved => cleaner.limit_frames(backed).unwrap(),
                Step::Passed => {}
                Step::Blocked => _ = cleaner.outlet.pump(backed, Pump::One).unwrap(),
                Step::Emptied => break,
            }
            let unpaid: u64 = (0..backed.memory.ledger.geometry().buffers)
                .map(|number| backed.memory.ledger.buffer(number))
                .filter(|buffer| buffer.state() != BufferState::Free)
                .map(|buffer| {
                    perdura_image::frame_bytes(&buffer) - buffer.charged_bytes().load(Relaxed)
                })
                .sum();
            let reckoned = backed.memory.ledger.geometry().redo_bytes(budget);
            assert!(unpaid <= reckoned, "budget {budget}: {unpaid}, {reckoned} reckoned");
        }
    }
}

/// Writes records all over the region under a small budget, as many bytes as the log holds, so that
/// the log keeps no more free space than the small budget asks for.
fn fill_log_under_a_small_budget(region: &Region, random: &mut u64) {
    region.set_budget(4 * BLOCK_BYTES).unwrap();
    write_all_over(region, 100_000, random);
}

/// Writes so many records of 1 KiB all over the region.
fn write_all_over(region: &Region, records: usize, random: &mut u64) {
    for _ in 0..records {
        *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        write(region, (*random >> 40) % (region.len_bytes() / 1024) * 1024, &[1; 1024]);
    }
}

/// A region of 256 blocks, half of which may be dirty.
fn half_dirty() -> Region {
    let config = Config {
        segment_bytes: Some(64 << 10),
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        ..Config::new(256 * BLOCK_BYTES, 128 * BLOCK_BYTES)
    };
    let clock = Arc::new(SimClock::new(1_000));
    Region::open(Arc::new(SimDevice::new(0, 1)), clock, config).unwrap()
}

#[test]
fn a_budget_can_be_raised_though_the_log_is_full_of_data_written_under_a_smaller_one() {
    let blocks = 256;
    let config = Config {
        segment_bytes: Some(64 << 10),
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        ..Config::new(blocks * BLOCK_BYTES, blocks * BLOCK_BYTES)
    };
    let clock = Arc::new(SimClock::new(1_000));
    let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock, config).unwrap();
    let mut random = 1u64;
    for round in 0..4 {
        fill_log_under_a_small_budget(&region, &mut random);
        let raised = region.set_budget(blocks * BLOCK_BYTES);
        assert!(raised.is_ok(), "round {round}: {raised:?}");
        // There is room for what may become dirty now, not only for its flush.
        for block in 0..blocks / 2 {
            write(&region, block * BLOCK_BYTES, &[2; 65_536]);
        }
    }
}

#[test]
fn a_budget_that_was_lower_for_now_comes_back_at_once_though_the_log_is_full() {
    let (blocks, region) = (256, half_dirty());
    let backed = &region.running().backed;
    let mut random = 1u64;
    // The largest one since the last `set_budget` counts, not the one before.
    for (budget, is_in_steps) in [(blocks / 2, false), (blocks, true), (blocks / 4, false)] {
        let budget = budget * BLOCK_BYTES;
        for most in [budget, budget / 2] {
            region.set_budget_for_now(4 * BLOCK_BYTES).unwrap();
            write_all_over(&region, 100_000, &mut random);
            let before = region.stats();
            region.set_budget_for_now(most).unwrap();
            assert_eq!(region.budget_bytes(), most);
            let is_at_once = region.stats() == before;
            assert!(is_at_once || is_in_steps && most == budget, "{most} B");
            assert!(backed.coverable_bytes() >= most);
        }
    }
    // The space is given to data when the budget is set for good.
    region.set_budget(4 * BLOCK_BYTES).unwrap();
    let space = backed.space();
    let reserve_segments = backed.memory.ledger.geometry().reserve_segments(4 * BLOCK_BYTES);
    assert_eq!((space.budget_bytes, space.reserve_segments), (4 * BLOCK_BYTES, reserve_segments));
    assert!(matches!(region.set_budget_for_now(0), Err(RegionError::Budget { .. })));
    assert_eq!(region.budget_bytes(), 4 * BLOCK_BYTES);
}

#[test]
fn who_gives_up_budget_leaves_commits_for_later_and_can_go_on_afterwards() {
    let (blocks, region) = (256, half_dirty());
    let backed = &region.running().backed;
    let (mut random, mut commits, mut short) = (1u64, 0, 0);
    for round in 0..100 {
        write_all_over(&region, 4_000, &mut random);
        let before = region.stats().checkpoints;
        commits += before;
        region.set_budget_for_now(blocks / 8 * BLOCK_BYTES).unwrap();
        assert_eq!(region.stats().checkpoints, before, "round {round}");
        let spare = backed.log.appender.lock().spare_segments();
        short += u32::from(backed.space().is_short(spare));
        // A drain of all that may be dirty now fits the log.
        assert!(backed.space().limit_bytes(spare) >= region.used_bytes());
        region.set_budget_for_now(blocks / 2 * BLOCK_BYTES).unwrap();
    }
    assert!(commits > 0 && short > 0, "the log was never short of space: this shows nothing");
}

#[test]
fn a_region_opens_with_a_larger_budget_before_it_is_loaded_though_its_log_is_full() {
    let blocks = 256;
    let config = |budget_bytes| Config {
        segment_bytes: Some(64 << 10),
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        defer_load: true,
        ..Config::new(blocks * BLOCK_BYTES, budget_bytes)
    };
    let clock = || Arc::new(SimClock::new(1_000));
    let device = SimDevice::new(0, 1);
    let large = blocks * BLOCK_BYTES;
    let region = Region::open(Arc::new(device.clone()), clock(), config(large)).unwrap();
    fill_log_under_a_small_budget(&region, &mut 1);
    fill_log_under_a_small_budget(&region, &mut 2);
    region.close(1).unwrap();
    drop(region);
    let region = Region::open(Arc::new(device), clock(), config(large)).unwrap();
    assert_eq!(region.budget_bytes(), large);
    let progress = region.running().backed.loads.progress();
    let is_partly_loaded = progress.is_some_and(|progress| {
        progress.failure.is_none() && progress.loaded_bytes < progress.total_bytes
    });
    assert!(is_partly_loaded, "this test shows nothing about a region that is not loaded");
    for block in 0..blocks / 2 {
        write(&region, block * BLOCK_BYTES, &[2; 65_536]);
    }
}

#[test]
fn a_raised_budget_finds_as_many_free_segments_as_it_wants() {
    let blocks = 64;
    let config = Config {
        segment_bytes: Some(64 << 10),
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        log_percent: 125,
        ..Config::new(blocks * BLOCK_BYTES, blocks * BLOCK_BYTES)
    };
    let clock = Arc::new(SimClock::new(1_000));
    let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock, config).unwrap();
    let backed = &region.running().backed;
    let free = || backed.log.appender.lock().free_segments.len() as u32;
    region.set_budget(4 * BLOCK_BYTES).unwrap();
    let mut random = 1u64;
    for budget in [blocks / 2, blocks] {
        for _ in 0..12_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            write(&region, (random >> 40) % (blocks * 64) * 1024, &[1; 1024]);
        }
        let (before, budget) = (free(), budget * BLOCK_BYTES);
        region.set_budget(budget).unwrap();
        let wanted = backed.space().free_wanted();
        assert_eq!(backed.space().budget_bytes, budget);
        assert!(before < wanted, "{before} of {wanted} were free: this test shows nothing");
        assert!(free() >= wanted, "{} of {wanted} segments are free", free());
        region.set_budget(4 * BLOCK_BYTES).unwrap();
    }
}

#[test]
fn a_budget_for_which_there_is_space_is_raised_and_lowered_without_a_commit() {
    let blocks = 64;
    let config = Config {
        segment_bytes: Some(64 << 10),
        lanes: Some(1),
        thread: false,
        checkpoint_every: None,
        ..Config::new(blocks * BLOCK_BYTES, blocks * BLOCK_BYTES)
    };
    let clock = Arc::new(SimClock::new(1_000));
    let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock, config).unwrap();
    write(&region, 0, &[1; 10_000]);
    let before = region.stats();
    for budget in [blocks / 2, blocks / 4, blocks / 2, blocks] {
        region.set_budget(budget * BLOCK_BYTES).unwrap();
        assert_eq!(region.budget_bytes(), budget * BLOCK_BYTES);
        assert_eq!(region.stats(), before);
    }
}

#[test]
fn however_many_frames_are_on_their_way_no_more_than_compaction_may_have_are_left() {
    for written in 1..=2 * u64::from(COMPACTION_FRAMES) {
        let config = Config {
            segment_bytes: Some(64 << 10),
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            ..Config::new(64 * BLOCK_BYTES, 32 * BLOCK_BYTES)
        };
        let clock = Arc::new(SimClock::new(1_000));
        let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock, config).unwrap();
        let backed = &region.running().backed;
        let ledger = &backed.memory.ledger;
        for word in 0..written {
            write(&region, word * 4096, &[1; 4096]);
            let (word, _lane) = (word as usize, region.lock(LaneId(0)));
            let dirty = ledger.dirty_word(backed.memory.parity(), word).load(Relaxed);
            let mut appender = backed.log.appender.lock();
            backed.append_bits(&mut appender, backed.memory.parity(), word, dirty);
            appender.close_frame(ledger, 0);
        }
        let before = u64::from(buffers_in_use(backed));
        assert_eq!(before, written, "this test shows nothing");
        region.running().any_cleaner().limit_frames(backed).unwrap();
        let left = buffers_in_use(backed);
        assert!(left <= COMPACTION_FRAMES, "{left} of {written}");
        let may_stay = written <= u64::from(COMPACTION_FRAMES);
        assert!(!may_stay || u64::from(left) == written, "waited for {written} in vain");
    }
}
