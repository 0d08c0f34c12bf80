//! Measures all ways of an application: once for calls, memory and results, then timed in turn.
//!
//! Each way is first measured alone, with nothing of the others resident. Then all are open at
//! once, and each round runs every one, beginning with another each time, so that other load on the
//! machine meets all. Before each run, untimed, the way's last results are removed and devices are
//! waited for.

use std::time::Instant;

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

use crate::access::{Access, Calls, Usage};
use crate::error::{AppError, Result};
use crate::gauge::{Gauge, Memory};
use crate::kinds::{App, INPUT, Named, RESULT};
use crate::ways::{Places, Way};

/// Room in a heap in addition to twice the application's need, for size classes and their spans.
const HEAP_SPARE_BYTES: u64 = 256 << 20;
const HEAP_ALIGN_BYTES: u64 = 2 << 20;

/// The ways and the amount of measuring.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The ways to measure.
    pub ways: Vec<Way>,
    /// Timed runs of each way.
    pub rounds: usize,
    /// Folders of the ways. The length of heaps is computed here.
    pub places: Places,
}

/// The results of all ways of one application.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// The application's name.
    pub app: &'static str,
    /// The work and its amount.
    pub about: String,
    /// Bytes of its inputs.
    pub input_bytes: u64,
    /// Bytes of its results.
    pub result_bytes: u64,
    /// Number of its results, equal by all ways.
    pub results: usize,
    /// Length of its heaps.
    pub heap_bytes: u64,
    /// One entry for each way, in the order of `Way::ALL`.
    pub ways: Vec<MeasuredWay>,
}

/// The results of one way.
#[derive(Debug, Clone, Serialize)]
pub struct MeasuredWay {
    /// The way's name.
    pub way: &'static str,
    /// The losses that finished data survive.
    pub survives: &'static str,
    /// Calls of one run.
    pub calls: Calls,
    /// System calls of one run.
    pub system_calls: u64,
    /// Memory of one run.
    pub memory: Memory,
    /// Places of the data after one run.
    pub usage: Usage,
    /// Time of each timed run.
    pub run_ns: Vec<u64>,
    /// Median of the times.
    pub run_median_ns: u64,
    /// Median of the rounds' ratios to plain memory.
    pub of_dram: Option<f64>,
    /// Median of the rounds' ratios to the RAM disk.
    pub of_ram_disk: Option<f64>,
}

/// Measures one application.
///
/// # Errors
/// A way fails, or two give different results.
pub fn measure(app: &dyn App, settings: &Settings) -> Result<Measured> {
    let inputs = app.inputs()?;
    let mut places = settings.places.clone();
    let input_bytes: u64 = inputs.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let first = alone(app, Way::Dram, &inputs, &places)?;
    let result_bytes: u64 = first.results.iter().map(|result| result.len_bytes).sum();
    let needed_bytes = input_bytes + result_bytes + first.memory.malloc_peak_bytes;
    places.heap_bytes = (2 * needed_bytes + HEAP_SPARE_BYTES).next_multiple_of(HEAP_ALIGN_BYTES);
    let mut ways = Vec::new();
    for &way in &settings.ways {
        let found =
            if way == Way::Dram { first.clone() } else { alone(app, way, &inputs, &places)? };
        compare(app, &first, &found)?;
        ways.push(found.into_measured());
    }
    let times = timed(app, &inputs, settings, &places, &first)?;
    for (way, run_ns) in ways.iter_mut().zip(&times) {
        way.run_ns.clone_from(run_ns);
        way.run_median_ns = median(run_ns.clone());
    }
    let of = |way: Way| settings.ways.iter().position(|&one| one == way).map(|at| &times[at]);
    for (way, run_ns) in ways.iter_mut().zip(&times) {
        way.of_dram = of(Way::Dram).map(|base| ratio(run_ns, base));
        way.of_ram_disk = of(Way::RamDisk).map(|base| ratio(run_ns, base));
    }
    Ok(Measured {
        app: app.name(),
        about: app.about(),
        input_bytes,
        result_bytes,
        results: first.results.len(),
        heap_bytes: places.heap_bytes,
        ways,
    })
}

/// Digest of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Digest {
    name: String,
    len_bytes: u64,
    digest: u128,
}

#[derive(Clone)]
struct Alone {
    way: Way,
    calls: Calls,
    memory: Memory,
    usage: Usage,
    results: Vec<Digest>,
}

impl Alone {
    fn into_measured(self) -> MeasuredWay {
        MeasuredWay {
            way: self.way.name(),
            survives: self.way.survives(),
            calls: self.calls,
            system_calls: self.calls.system(),
            memory: self.memory,
            usage: self.usage,
            run_ns: Vec::new(),
            run_median_ns: 0,
            of_dram: None,
            of_ram_disk: None,
        }
    }
}

fn alone(app: &dyn App, way: Way, inputs: &[Named], places: &Places) -> Result<Alone> {
    let gauge = Gauge::new();
    let access = way.open(places)?;
    fill(&*access, inputs)?;
    access.settle()?;
    access.tally().take();
    gauge.begin_run();
    run(app, &*access)?;
    let memory = gauge.end();
    let calls = access.tally().take();
    Ok(Alone { way, calls, memory, usage: access.usage()?, results: results(&*access)? })
}

/// Runs the application with its allocations where the way directs them.
fn run(app: &dyn App, access: &dyn Access) -> Result<()> {
    let scratch = access.scratch();
    let _entered = scratch.enter();
    app.run(access)
}

/// Stores the inputs.
///
/// # Errors
/// The way fails.
pub fn fill(access: &dyn Access, inputs: &[Named]) -> Result<()> {
    for (name, bytes) in inputs {
        let mut output = access.put(name, bytes.len())?;
        output.write(bytes)?;
        output.finish()?;
    }
    Ok(())
}

fn results(access: &dyn Access) -> Result<Vec<Digest>> {
    let mut names = access.names()?;
    names.retain(|name| name.starts_with(RESULT));
    names.sort_unstable();
    let digest = |name: String| {
        let mut input = access.get(&name)?;
        let bytes = input.whole(usize::MAX)?;
        let (len_bytes, digest) = (bytes.len() as u64, xxh3_128(bytes));
        drop(input);
        Ok(Digest { name, len_bytes, digest })
    };
    names.into_iter().map(digest).collect()
}

fn compare(app: &dyn App, by: &Alone, found: &Alone) -> Result<()> {
    same(app, found.way.name(), &found.results, &by.results)
}

fn same(app: &dyn App, way: &'static str, found: &[Digest], expected: &[Digest]) -> Result<()> {
    let by = Way::Dram.name();
    if found.len() != expected.len() {
        let (count, expected) = (found.len(), expected.len());
        return Err(AppError::ResultsMissing { app: app.name(), way, by, count, expected });
    }
    let differs = found.iter().zip(expected).find(|(found, expected)| found != expected);
    differs.map_or(Ok(()), |(found, expected)| {
        Err(AppError::Differs {
            app: app.name(),
            name: found.name.clone(),
            way,
            by,
            found: found.digest,
            expected: expected.digest,
        })
    })
}

/// Times of each way, round by round.
fn timed(
    app: &dyn App,
    inputs: &[Named],
    settings: &Settings,
    places: &Places,
    first: &Alone,
) -> Result<Vec<Vec<u64>>> {
    let mut open = Vec::new();
    for way in &settings.ways {
        let access = way.open(places)?;
        fill(&*access, inputs)?;
        open.push(access);
    }
    let mut times = vec![Vec::new(); open.len()];
    for round in 0..settings.rounds {
        for turn in 0..open.len() {
            let at = (round + turn) % open.len();
            let access = &*open[at];
            remove_results(access)?;
            access.settle()?;
            let began = Instant::now();
            run(app, access)?;
            times[at].push(began.elapsed().as_nanos() as u64);
        }
    }
    for access in &open {
        same(app, access.way(), &results(&**access)?, &first.results)?;
    }
    Ok(times)
}

/// Removes all results, and all pools.
fn remove_results(access: &dyn Access) -> Result<()> {
    for name in access.names()? {
        if !name.starts_with(INPUT) {
            access.remove(&name)?;
        }
    }
    Ok(())
}

/// The median; of an even number of figures the mean of the two in the middle.
pub fn median(mut figures: Vec<u64>) -> u64 {
    figures.sort_unstable();
    match figures.len() {
        0 => 0,
        len if len % 2 == 1 => figures[len / 2],
        len => figures[len / 2 - 1].midpoint(figures[len / 2]),
    }
}

fn ratio(times: &[u64], base: &[u64]) -> f64 {
    let mut ratios: Vec<f64> =
        times.iter().zip(base).map(|(time, base)| *time as f64 / (*base).max(1) as f64).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    let len = ratios.len().max(1);
    let at = |at: usize| ratios.get(at).copied().unwrap_or(f64::NAN);
    f64::midpoint(at((len - 1) / 2), at(len / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios_are_of_the_middle() {
        assert_eq!(median(vec![9, 1, 5]), 5);
        assert_eq!(median(vec![9, 1, 5, 7]), 6);
        assert_eq!(median(Vec::new()), 0);
        assert!((ratio(&[2, 30, 4], &[1, 10, 1]) - 3.0).abs() < 1e-12);
    }
}
