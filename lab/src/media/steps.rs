//! The driver's four steps over one modelled medium, measured in rounds. A round has a slice of
//! each step, and every second round has them in reverse order, so that a step and the step before
//! are measured in pairs.
//!
//! Every request is timed by part. The cost of reading the clock is subtracted from the parts that
//! end with a reading. The parts of a slice are means over the middle half of its requests, by
//! their whole time: they add up, and interruptions are not in them.

use std::collections::BTreeMap;

use perdura_block::path::{IoPath, PARTS, Part, Parts, PathSettings, Step};
use perdura_media::emulator::{Emulator, Tsc};
use perdura_media::profile::System;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::blocks::{self, BLOCK_BYTES};
use super::result::PathResult;
use super::{MediaBenchError, MediaSettings, Progress, filled, ns, quantile, sorted, stamp_ns};
use perdura_bench::machine::thread_cpu_ns;
use perdura_bench::pairs::PAIRS_MIN;

/// Results of the paths: one entry for each step and number of threads.
pub(super) struct Paths {
    pub(super) results: Vec<PathResult>,
}

/// Numbers of threads with which each step is measured.
pub(super) const THREADS: [usize; 3] = [1, 2, 4];
/// Most requests of a thread in a slice.
const SLICE_MAX: usize = 20_000;

/// Requests of one thread in one slice.
struct Slice {
    parts: Vec<Parts>,
    cpu_ns: u64,
    elapsed_ns: f64,
}

/// All slices of one step with one number of threads.
#[derive(Default)]
struct Gathered {
    slices: Vec<BTreeMap<&'static str, f64>>,
    totals_ns: Vec<f64>,
    requests: u64,
    cpu_ns: u64,
    requests_per_s: Vec<f64>,
}

pub(super) fn measure(
    system: &System,
    settings: &MediaSettings,
    seconds: f64,
    progress: Progress<'_>,
) -> Result<Paths, MediaBenchError> {
    let emulator = filled(system, settings.size_bytes, progress)?;
    let rounds = PAIRS_MIN * 2;
    let slices = rounds * settings.steps.len() * THREADS.len();
    let slice_ns = seconds * 1e9 / slices as f64;
    let stamp_ns = stamp_ns(Tsc::calibrated());
    let paths: Vec<IoPath<&Emulator>> = settings
        .steps
        .iter()
        .map(|step| IoPath::new(&emulator, *step, &PathSettings::default()))
        .collect::<Result<_, _>>()?;
    let mut gathered: Vec<Gathered> = Vec::new();
    gathered.resize_with(settings.steps.len() * THREADS.len(), Gathered::default);
    let what = format!("I/O paths, {}", system.name);
    for round in 0..rounds {
        progress(&what, round as u64, rounds as u64);
        for (nth, threads) in THREADS.into_iter().enumerate() {
            for turn in 0..paths.len() {
                let index = if round % 2 == 0 { turn } else { paths.len() - 1 - turn };
                let seed = settings.seed.wrapping_add((round * 100) as u64);
                let done = on_threads(&paths[index], threads, slice_ns, seed)?;
                gathered[nth * paths.len() + index].add(done, stamp_ns);
            }
        }
    }
    let named = THREADS
        .into_iter()
        .flat_map(|threads| settings.steps.iter().map(move |step| (*step, threads)));
    let results =
        named.zip(gathered).map(|((step, threads), all)| all.result(step, threads, system));
    Ok(Paths { results: results.collect() })
}

fn on_threads(
    path: &IoPath<&Emulator>,
    threads: usize,
    slice_ns: f64,
    seed: u64,
) -> Result<Vec<Slice>, MediaBenchError> {
    std::thread::scope(|scope| {
        let work = |thread: u64| scope.spawn(move || slice(path, slice_ns, seed + thread));
        let running: Vec<_> = (0..threads as u64).map(work).collect();
        let ended = running.into_iter().map(|thread| match thread.join() {
            Ok(slice) => slice,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect()
    })
}

fn slice(path: &IoPath<&Emulator>, slice_ns: f64, seed: u64) -> Result<Slice, MediaBenchError> {
    let tsc = Tsc::calibrated();
    let mut random = Random::seed_from_u64(seed);
    let count = path.hardware().capacity_bytes() / BLOCK_BYTES as u64;
    let mut buf = vec![0; BLOCK_BYTES];
    let mut parts = Vec::with_capacity(1024);
    let (from, cpu_ns, mut verify_ns) = (tsc.ticks(), thread_cpu_ns(), 0.0);
    let what = path.step().name();
    while parts.is_empty() || parts.len() < SLICE_MAX && ns(tsc, from, tsc.ticks()) < slice_ns {
        let number = random.random_range(0..count);
        let found = path.read_timed(number * BLOCK_BYTES as u64, &mut buf);
        parts.push(found.map_err(|source| MediaBenchError::Device { what: what.into(), source })?);
        let verified = tsc.ticks();
        blocks::verify(what, number, &buf)?;
        verify_ns += ns(tsc, verified, tsc.ticks());
    }
    let elapsed_ns = ns(tsc, from, tsc.ticks()) - verify_ns;
    let cpu_ns = (thread_cpu_ns() - cpu_ns).saturating_sub(verify_ns as u64);
    Ok(Slice { parts, cpu_ns, elapsed_ns })
}

impl Gathered {
    fn add(&mut self, threads: Vec<Slice>, stamp_ns: f64) {
        let mut all: Vec<Parts> = Vec::new();
        let mut rate = 0.0;
        for slice in threads {
            self.cpu_ns += slice.cpu_ns;
            rate += slice.parts.len() as f64 / slice.elapsed_ns.max(1.0) * 1e9;
            all.extend(slice.parts);
        }
        self.requests_per_s.push(rate);
        self.requests += all.len() as u64;
        self.totals_ns.extend(all.iter().map(|parts| net_total_ns(parts, stamp_ns)));
        all.sort_unstable_by_key(Parts::total_ps);
        let quarter = all.len() / 4;
        let middle = &all[quarter..all.len() - quarter];
        let mean = |part: Part| {
            let sum: f64 = middle.iter().map(|parts| net_ns(parts, part, stamp_ns)).sum();
            (part.name(), sum / middle.len().max(1) as f64)
        };
        self.slices.push(PARTS.into_iter().map(mean).collect());
    }

    fn result(self, step: Step, threads: usize, system: &System) -> PathResult {
        let software = |slice: &BTreeMap<&str, f64>| -> f64 {
            slice.iter().filter(|(name, _)| **name != Part::Hardware.name()).map(|(_, ns)| ns).sum()
        };
        let awake = |slice: &BTreeMap<&str, f64>| {
            software(slice) - slice[Part::Wakeup.name()] - slice[Part::Copy.name()]
        };
        let slices_ns: Vec<f64> = self.slices.iter().map(software).collect();
        // Only the middle half of the slices counts: a disturbed slice is not the step's doing.
        let mut by_software: Vec<&BTreeMap<&str, f64>> = self.slices.iter().collect();
        by_software.sort_unstable_by(|a, b| software(a).total_cmp(&software(b)));
        let quarter = by_software.len() / 4;
        let middle = &by_software[quarter..by_software.len() - quarter];
        let mean = |part: Part| {
            let sum: f64 = middle.iter().filter_map(|slice| slice.get(part.name())).sum();
            sum / middle.len().max(1) as f64
        };
        let parts = PARTS.into_iter().filter(|part| *part != Part::Hardware);
        let parts_ns: BTreeMap<_, _> =
            parts.map(|part| (part.name().to_owned(), mean(part))).collect();
        let by_slice = sorted(slices_ns.clone());
        let totals = sorted(self.totals_ns);
        PathResult {
            path: step.name().into(),
            medium: format!("modelled {}", system.name),
            how: "a driver in user space".into(),
            threads,
            software_ns: parts_ns.values().sum(),
            software_is: "the whole less the modelled time of the medium".into(),
            software_ns_range: [quantile(&by_slice, 0.0), quantile(&by_slice, 1.0)],
            hardware_ns: Some(mean(Part::Hardware)),
            total_ns_p50: quantile(&totals, 0.5),
            total_ns_p99: quantile(&totals, 0.99),
            cpu_ns: self.cpu_ns as f64 / self.requests.max(1) as f64,
            requests_per_s: quantile(&sorted(self.requests_per_s), 0.5),
            parts_ns,
            awake_slices_ns: self.slices.iter().map(awake).collect(),
            slices_ns,
            requests: self.requests,
        }
    }
}

/// The time of a part without the cost of reading the clock, nanoseconds.
fn net_ns(parts: &Parts, part: Part, stamp_ns: f64) -> f64 {
    (parts.ps(part) as f64 / 1e3 - f64::from(parts.stamps(part)) * stamp_ns).max(0.0)
}

fn net_total_ns(parts: &Parts, stamp_ns: f64) -> f64 {
    PARTS.into_iter().map(|part| net_ns(parts, part, stamp_ns)).sum()
}
