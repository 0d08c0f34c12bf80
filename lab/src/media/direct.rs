//! A direct call of the emulator on the caller's thread, beside copying the same blocks.
//!
//! The medium takes no time, so that only the cost of the call is left. Both ways read all blocks
//! in one random order, in alternating slices that lie half the order apart: neither way finds in a
//! cache what the other has just read. Every block is verified after its time is taken.

use perdura_media::emulator::{Emulator, Tsc};
use perdura_media::profile::System;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::blocks::{self, BLOCK_BYTES};
use super::result::{DirectResult, PathResult};
use super::{MediaBenchError, MediaSettings, Progress, filled, ns, quantile, sorted, stamp_ns};
use perdura_bench::machine::thread_cpu_ns;
use perdura_bench::pairs::{Difference, PAIRS_MIN};

/// Profile of a medium that is done at once: its latencies are the least that a profile allows.
const INSTANT: &str = r#"
about = "takes no time: what is measured with it is software"
module_capacity = "64GiB"
[medium]
granule = "4KiB"
interleave = "4KiB"
read_latency = "1ps"
write_latency = "1ps"
read_bandwidth = "100TB/s"
write_bandwidth = "100TB/s"
[power]
idle = "0W"
active = "0W"
"#;
/// Most that a direct call may take above copying, nanoseconds.
const TARGET_NS: f64 = 500.0;
/// Rough time to read and verify a block, nanoseconds: it gives the number of blocks there is time
/// for.
const READ_AND_VERIFIED_NS: f64 = 1_500.0;

/// One slice of one way: the median and all times.
#[derive(Default)]
struct Way {
    medians_ns: Vec<f64>,
    times_ns: Vec<f64>,
    cpu_ns: u64,
}

/// A medium that takes no time: the rest of a request is software.
pub(super) fn instant() -> Result<System, MediaBenchError> {
    Ok(System::from_toml("instant", INSTANT)?)
}

pub(super) fn measure(
    settings: &MediaSettings,
    seconds: f64,
    progress: Progress<'_>,
) -> Result<DirectResult, MediaBenchError> {
    let emulator = filled(&instant()?, settings.size_bytes, progress)?;
    let count = (settings.size_bytes / BLOCK_BYTES as u64) as usize;
    let mut order: Vec<u64> = (0..count as u64).collect();
    order.shuffle(&mut Random::seed_from_u64(settings.seed));
    let affordable = (seconds * 1e9 / 2.0 / READ_AND_VERIFIED_NS) as usize;
    let pairs = 2 * PAIRS_MIN;
    let slice_len = (affordable.min(count) / pairs).max(1);
    // Both ways read this many blocks, the first of the order.
    let covered = slice_len * pairs;
    let (mut direct, mut copied) = (Way::default(), Way::default());
    for pair in 0..pairs {
        progress("direct call beside memcpy", pair as u64, pairs as u64);
        let at = |pair: usize| {
            let start = pair * slice_len;
            order.iter().cycle().skip(start % covered).take(slice_len).copied()
        };
        let (start, opposite) = (pair, pair + pairs / 2);
        // The way that is first in this pair is second in the next one.
        for turn in [pair % 2, 1 - pair % 2] {
            match turn {
                0 => slice(&mut direct, "direct call", at(start), |offset_bytes, buf| {
                    emulator.read(offset_bytes, buf).map(|due| _ = emulator.wait(due))
                })?,
                _ => slice(&mut copied, "memcpy", at(opposite), |offset_bytes, buf| {
                    emulator.copy_out(offset_bytes, buf)
                })?,
            }
        }
    }
    Ok(result(&emulator, direct, copied, pairs))
}

fn slice(
    way: &mut Way,
    what: &str,
    numbers: impl Iterator<Item = u64>,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), perdura_media::DeviceError>,
) -> Result<(), MediaBenchError> {
    let tsc = Tsc::calibrated();
    let stamp_ns = stamp_ns(tsc);
    let mut buf = vec![0; BLOCK_BYTES];
    let mut times = Vec::new();
    let cpu_ns = thread_cpu_ns();
    for number in numbers {
        let offset_bytes = number * BLOCK_BYTES as u64;
        let from = tsc.ticks();
        let done = read(offset_bytes, &mut buf);
        let to = tsc.ticks_behind();
        done.map_err(|source| MediaBenchError::Device { what: what.into(), source })?;
        times.push((ns(tsc, from, to) - stamp_ns).max(0.0));
        blocks::verify(what, number, &buf)?;
    }
    way.cpu_ns += thread_cpu_ns() - cpu_ns;
    let times = sorted(times);
    way.medians_ns.push(quantile(&times, 0.5));
    way.times_ns.extend(times);
    Ok(())
}

fn result(emulator: &Emulator, direct: Way, copied: Way, pairs: usize) -> DirectResult {
    let difference = Difference::of(&direct.medians_ns, &copied.medians_ns);
    let ci95 = difference.as_ref().map_or([f64::NEG_INFINITY, f64::INFINITY], |found| found.ci95);
    let requests = direct.times_ns.len();
    let cpu_ns = direct.cpu_ns as f64 / requests.max(1) as f64;
    let (direct, copied) = (sorted(direct.times_ns), sorted(copied.times_ns));
    DirectResult {
        size_bytes: emulator.capacity_bytes(),
        direct_ns_p50: quantile(&direct, 0.5),
        direct_ns_p99: quantile(&direct, 0.99),
        memcpy_ns_p50: quantile(&copied, 0.5),
        memcpy_ns_p99: quantile(&copied, 0.99),
        above_memcpy_ns: difference.as_ref().map_or(f64::NAN, |found| found.mean),
        above_memcpy_ns_ci95: ci95,
        target_ns: TARGET_NS,
        is_within: ci95[1] <= TARGET_NS,
        blocks: requests as u64,
        pairs,
        per_pair_ns: difference.map_or_else(Vec::new, |found| found.per_pair),
        cpu_ns,
    }
}

impl DirectResult {
    /// The direct call as an I/O path, to be listed among the others.
    pub(super) fn path(&self) -> PathResult {
        let per_pair = sorted(self.per_pair_ns.clone());
        PathResult {
            path: "direct".into(),
            medium: "modelled medium that takes no time".into(),
            how: "a call on the caller's thread".into(),
            threads: 1,
            software_ns: self.above_memcpy_ns,
            software_is: "the whole less copying the same blocks".into(),
            software_ns_range: [quantile(&per_pair, 0.0), quantile(&per_pair, 1.0)],
            hardware_ns: Some(0.0),
            total_ns_p50: self.direct_ns_p50,
            total_ns_p99: self.direct_ns_p99,
            cpu_ns: self.cpu_ns,
            requests_per_s: 1e9 / self.direct_ns_p50.max(1.0),
            parts_ns: [("copy".to_owned(), self.memcpy_ns_p50)].into(),
            slices_ns: self.per_pair_ns.clone(),
            awake_slices_ns: Vec::new(),
            requests: self.blocks,
        }
    }
}

#[cfg(test)]
mod tests {
    use perdura_media::model::{Access, Model};

    use super::*;

    #[test]
    fn the_medium_that_takes_no_time_takes_less_than_a_stamp() {
        let instant = System::from_toml("instant", INSTANT).unwrap();
        for access in [Access::Read, Access::Write] {
            let took = Model::unloaded(&instant, access, BLOCK_BYTES as u64);
            assert!(took.0 < 1_000, "{took}");
        }
    }
}
