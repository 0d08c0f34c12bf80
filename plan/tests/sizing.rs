//! A replay against a real region that is fed the same trace, with its own thread, traps and log,
//! on a virtual clock and a device of modelled time.
#![allow(clippy::unwrap_used)]

#[path = "readers/plain.rs"]
#[allow(dead_code)] // its part of it
mod plain;

use std::time::Duration;

use perdura_dirty::policy::PolicyKind;
use perdura_media::{BytesPerSecond, Timing};
use perdura_plan::sizing::{
    Loop, Measured, Numbering, Outcome, PageWrite, Planted, Replay, ReplayConfig, measure_virtual,
};
use perdura_plan::trace::{Op, Record};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const PAGES: u64 = 4096;
const MIB: u64 = 1 << 20;

/// Writes of `pages` pages each, `gap_ns` apart on the average, in bursts and pauses; the first
/// pages the hottest.
fn generated(seed: u64, count: u64, skew: f64, gap_ns: u64) -> Vec<Record> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut time_ns = 1_000;
    (0..count)
        .map(|_| {
            let page = (random.random::<f64>().powf(skew) * PAGES as f64) as u64;
            let page = page * 1_597 % PAGES;
            let pages = random.random_range(1..=4).min(PAGES - page);
            time_ns += match random.random_range(0..64) {
                0 => random.random_range(0..64 * gap_ns),
                _ => random.random_range(0..gap_ns),
            };
            Record {
                time_ns,
                offset_bytes: page * 4096,
                len_bytes: pages * 4096,
                volume: 0,
                op: Op::Write,
            }
        })
        .collect()
}

fn config(budget_bytes: u64) -> ReplayConfig {
    ReplayConfig {
        checkpoint_every: None,
        // On a virtual clock protecting takes no time.
        protect_ns: 0,
        device: Timing {
            bandwidth: BytesPerSecond(200_000_000),
            read_latency_ns: 80_000,
            write_latency_ns: 60_000,
            flush_latency_ns: 400_000,
        },
        ..ReplayConfig::new(PAGES * 4096, budget_bytes)
    }
}

fn both(config: &ReplayConfig, trace: &[Record]) -> (Outcome, Measured) {
    let mut replay = Replay::new(config).unwrap();
    trace.chunks(997).for_each(|batch| replay.add(batch).unwrap());
    let mut writes: Vec<PageWrite> = Vec::new();
    Numbering::default().number(trace, &mut writes).unwrap();
    (replay.finish(), measure_virtual(config, &writes).unwrap())
}

fn show(name: &str, outcome: &Outcome, measured: &Measured) -> [f64; 3] {
    let off = measured.off(outcome);
    println!(
        "{name}: device bytes {} of {} ({:+.1} %), cleaned {} of {}, checkpoints {} of {} ({} of \
         {}), compacted {} of {}, flushes {} of {}, stalls {} of {} ({:+.1} %), stalled {} of {} \
         us ({:+.1} %), used {} of {}",
        outcome.device.total(),
        measured.device_bytes,
        off[0] * 100.0,
        outcome.device.cleaning,
        measured.cleaned_bytes,
        outcome.device.checkpoint,
        measured.checkpoint_bytes,
        outcome.checkpoints,
        measured.checkpoints,
        outcome.device.compaction,
        measured.compacted_bytes,
        outcome.device_flushes,
        measured.device_flushes,
        outcome.stalls,
        measured.stalls,
        off[1] * 100.0,
        outcome.stalled_ns / 1000,
        measured.stalled_ns / 1000,
        off[2] * 100.0,
        outcome.used_max_bytes,
        measured.used_max_bytes,
    );
    off
}

/// A tenth was asked for; where nothing but the model of processors is left out it is much less.
fn within_a_hundredth(name: &str, config: &ReplayConfig, trace: &[Record]) {
    let (outcome, measured) = both(config, trace);
    let [bytes, stalls, stalled] = show(name, &outcome, &measured);
    assert!(bytes.abs() < 0.01, "{name}: bytes off by {bytes}");
    // One more or less of a few says nothing.
    let is_one = outcome.stalls.abs_diff(measured.stalls) <= 1;
    assert!(stalls.abs() < 0.01 || is_one, "{name}: stalls off by {stalls}");
    assert!(stalled.abs() < 0.01 || is_one, "{name}: time stalled off by {stalled}");
    let dirtied = outcome.dirtied_bytes as f64 / measured.dirtied_bytes as f64;
    assert!((dirtied - 1.0).abs() < 0.01, "{name}: dirtied bytes off by {dirtied}");
    let budget = config.budget_bytes;
    assert!(outcome.used_max_bytes <= budget && measured.used_max_bytes <= budget, "{name}");
}

#[test]
fn bytes_and_stalls_are_those_of_a_real_region_for_several_budgets_and_policies() {
    let kinds = [("uniform", 1.0), ("skewed", 4.0), ("very skewed", 10.0)];
    let budgets = [MIB / 2, 2 * MIB, 6 * MIB];
    for policy in PolicyKind::ALL {
        for (place, (kind, skew)) in kinds.into_iter().enumerate() {
            for budget_bytes in budgets {
                // Each policy meets each kind and each budget, the default one also every pair.
                if policy != PolicyKind::default() && budget_bytes != budgets[place] {
                    continue;
                }
                let trace = generated(1, 20_000, skew, 60_000);
                let config = ReplayConfig { policy, ..config(budget_bytes) };
                let name = format!("{} {kind} {budget_bytes}", policy.name());
                within_a_hundredth(&name, &config, &trace);
            }
        }
    }
}

#[test]
fn checkpoints_and_a_closed_loop_are_those_of_a_real_region() {
    for (seed, skew) in [(2, 1.0), (3, 5.0)] {
        for pacing in [Loop::Open, Loop::Closed] {
            for every_ms in [50, 500] {
                let trace = generated(seed, 20_000, skew, 60_000);
                let config = ReplayConfig {
                    pacing,
                    checkpoint_every: Some(Duration::from_millis(every_ms)),
                    ..config(2 * MIB)
                };
                within_a_hundredth(
                    &format!("{pacing:?}, {every_ms} ms, skew {skew}"),
                    &config,
                    &trace,
                );
            }
        }
    }
}

/// A budget of 100 %: nothing is cleaned ahead, and checkpoints make what room they need.
#[test]
fn a_region_that_may_be_dirty_as_a_whole_is_as_a_real_region() {
    let trace = generated(7, 20_000, 1.0, 60_000);
    for every_ms in [None, Some(200)] {
        let checkpoint_every = every_ms.map(Duration::from_millis);
        let config = ReplayConfig { checkpoint_every, ..config(PAGES * 4096) };
        within_a_hundredth(&format!("100 %, {every_ms:?} ms"), &config, &trace);
    }
    let config = ReplayConfig { policy: PolicyKind::Fifo, ..config(PAGES * 4096) };
    assert_eq!(both(&config, &trace).0.device.cleaning, 0);
}

/// The writes of an MSR Cambridge trace, in `1/faster` of its time.
fn msr(path: &std::path::Path, faster: u64) -> Vec<Record> {
    let mut records = plain::msr(&plain::text(path));
    records.retain(|record| record.op == Op::Write);
    records.sort_by_key(|record| record.time_ns);
    let began_ns = records[0].time_ns;
    records.iter_mut().for_each(|record| record.time_ns = (record.time_ns - began_ns) / faster);
    records
}

#[test]
fn traces_of_servers_do_what_they_do_to_a_real_region() {
    let Some(folder) = plain::real_traces() else { return };
    for (name, faster) in [
        ("msr_wdev_1.csv", 100),
        ("msr_hm_0_prefix.csv", 1),
        ("msr_hm_0_prefix.csv", 500),
        ("msr_hm_1_part_write.csv", 10_000),
    ] {
        let records = msr(&folder.join(name), faster);
        let mut numbering = Numbering::default();
        numbering.number(&records, &mut Vec::new()).unwrap();
        let written_bytes = u64::from(numbering.pages()) * 4096;
        for part in [20, 5] {
            let budget_bytes = (written_bytes / part).max(256 << 10);
            let config = ReplayConfig {
                region_bytes: written_bytes,
                checkpoint_every: Some(Duration::from_secs(1)),
                ..config(budget_bytes)
            };
            let name = format!("{name}, {faster} times as fast, {budget_bytes} of {written_bytes}");
            within_a_hundredth(&name, &config, &records);
        }
    }
}

/// The hands of `clock-pro` go over all words, met or not, and a commit names all segments of the
/// log: these may tell.
#[test]
fn a_memory_far_larger_than_what_is_written_changes_nothing_where_the_policy_cannot_tell() {
    for policy in PolicyKind::ALL.into_iter().filter(|policy| *policy != PolicyKind::ClockPro) {
        for budget_bytes in [MIB / 2, 3 * MIB] {
            let trace = generated(6, 10_000, 3.0, 60_000);
            let replayed = |region_bytes, log_percent| {
                let config = ReplayConfig {
                    policy,
                    region_bytes,
                    // Of the same segments, and never short of them.
                    reserved_bytes: Some(region_bytes.max(4 << 30)),
                    segment_bytes: Some(MIB),
                    log_percent,
                    ..config(budget_bytes)
                };
                let mut replay = Replay::new(&config).unwrap();
                trace.chunks(997).for_each(|batch| replay.add(batch).unwrap());
                replay.finish()
            };
            let small = replayed(PAGES * 4096, 20_000);
            assert!(small.device.cleaning > 0 && small.device.compaction == 0);
            assert_eq!(small, replayed(4 << 40, 125), "{}, {budget_bytes}", policy.name());
        }
    }
}

#[test]
fn planted_mistakes_are_caught() {
    let trace = generated(4, 20_000, 1.0, 40_000);
    for planted in [Planted::CleanAtCopy, Planted::NoCompaction] {
        let (outcome, measured) = both(&ReplayConfig { planted, ..config(MIB) }, &trace);
        let off = show(&format!("{planted:?}"), &outcome, &measured);
        assert!(off.iter().any(|off| off.abs() > 0.1), "{planted:?} was not seen");
    }
}
