//! Runs the benchmarks of a file one after another: each cell on memory that is ready, warmed up,
//! and as often as the file says.

use std::sync::Arc;

pub use super::bounds::Bounds;
use super::economy::{Costs, Economy, EnergyFrom, Meter};
use super::fit::{CellFit, fit_of};
use super::kernel::{Isa, Kernel, Lacking};
use super::place::{self, Place, PlaceError, Ready, replay_of};
use super::replay::ReplayError;
use super::result::{
    BenchmarkResult, CellResult, Figures, Label, Nested, Results, bandwidth, config_json,
};
use super::run::{Job, PartRun, Span, ThreadsError, run};
use super::simulate::{ACCESSES_MAX, Simulated, simulate};
use super::workload::{Benchmark, Chain, Config, CustomOp, ExecMode, NumaPattern, Persist};
use perdura_bench::machine::Machine;
use serde_json::{Value, json};

/// How benchmarks run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The memory to measure.
    pub place: Place,
    /// Instructions that load and store; none: the widest of the machine.
    pub isa: Option<Isa>,
    /// Limits on what the files ask for.
    pub bounds: Bounds,
    /// Power and price of the machine, as far as they are known.
    pub economy: Economy,
}

/// Why a benchmark did not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Memory cannot be had.
    #[error("{benchmark}: {source}")]
    Place {
        /// Name of the benchmark.
        benchmark: String,
        /// The memory's error.
        source: PlaceError,
    },
    /// The machine lacks an instruction.
    #[error("{benchmark}: {source}")]
    Lacking {
        /// Name of the benchmark.
        benchmark: String,
        /// The missing instruction.
        source: Lacking,
    },
    /// Threads cannot be had.
    #[error("{benchmark}: {threads} threads: {source}")]
    Threads {
        /// Name of the benchmark.
        benchmark: String,
        /// Number of threads.
        threads: u64,
        /// The threads' error.
        source: ThreadsError,
    },
}

/// Checks, as far as that is possible before the run, that the machine has the instructions of
/// every cell and the place has its memory: nobody should find out after an hour.
///
/// # Errors
/// [`RunError`], with the first cell that cannot run.
pub fn check(benchmark: &Benchmark, settings: &Settings) -> Result<(), RunError> {
    if matches!(settings.place, Place::Model(_)) {
        return Ok(());
    }
    let isa = settings.isa.unwrap_or_else(Isa::widest);
    for cell in benchmark.parts.iter().flat_map(|part| &part.cells) {
        let mut config = cell.config.clone();
        settings.bounds.apply(&mut config);
        let benchmark = || benchmark.name.clone();
        Kernel::new(isa, &persists(&config))
            .map_err(|source| RunError::Lacking { benchmark: benchmark(), source })?;
        place::check(&settings.place, &config)
            .map_err(|source| RunError::Place { benchmark: benchmark(), source })?;
    }
    Ok(())
}

/// Runs a benchmark; `told` is called with the number of cells that are done and the number of all.
///
/// # Errors
/// [`RunError`]; the cells measured before are lost.
pub fn run_benchmark(
    benchmark: &Benchmark,
    settings: &Settings,
    told: &dyn Fn(usize, usize),
) -> Result<BenchmarkResult, RunError> {
    check(benchmark, settings)?;
    let isa = settings.isa.unwrap_or_else(Isa::widest);
    let count = benchmark.runs().count();
    let mut bounded = Notes::default();
    // Each run of any cell has its own random places: those of the run before are in the caches.
    let mut runs = 0;
    let mut ready: Vec<(Config, Ready)> = Vec::new();
    let (mut cells, mut place) = (Vec::new(), String::new());
    for (at, run) in benchmark.runs().enumerate() {
        let configs: Vec<Config> = run
            .iter()
            .map(|cell| {
                let mut config = cell.config.clone();
                bounded.add(&settings.bounds.apply(&mut config));
                config
            })
            .collect();
        let (figures, what) = match &settings.place {
            Place::Model(system) => {
                let with_trace = |config| {
                    let failed = |source: ReplayError| RunError::Place {
                        benchmark: benchmark.name.clone(),
                        source: source.into(),
                    };
                    Ok((config, replay_of(config).map_err(failed)?))
                };
                let configs: Vec<_> =
                    configs.iter().map(with_trace).collect::<Result<_, RunError>>()?;
                bounded.add(&ignored(configs.iter().map(|(config, _)| *config)));
                let Simulated { runs, joules, is_cut } = simulate(system, &configs);
                if is_cut {
                    let most = format!("accesses simulated: {ACCESSES_MAX} of each part at most");
                    bounded.add(&[most]);
                }
                let costs = costs(&settings.economy, &runs, Some((joules, EnergyFrom::Modelled)));
                let fit = fit_of(&system.name);
                let figures = runs.into_iter().enumerate().map(|(which, run)| {
                    let mut together: Vec<&Config> =
                        configs.iter().map(|(config, _)| *config).collect();
                    together.swap(0, which);
                    let fit = Some(CellFit::of(fit.as_ref(), &together));
                    Figures { costs: costs.clone(), fit, ..Figures::of(&[run], 0, false) }
                });
                let figures = figures.collect();
                (figures, system.name.clone())
            }
            _ => {
                let measured = measured(benchmark, &configs, settings, isa, &mut ready, &mut runs)?;
                ready.iter().for_each(|(_, ready)| bounded.add(&ready.notes));
                measured
            }
        };
        place = what;
        cells.push(cell_result(benchmark, &configs, figures));
        told(at + 1, count);
    }
    let is_modelled = matches!(settings.place, Place::Model(_));
    let names = || benchmark.parts.iter().map(|part| part.name.clone());
    let matrix_args = match benchmark.is_parallel {
        false => json!(benchmark.parts[0].matrix),
        true => names()
            .zip(&benchmark.parts)
            .map(|(name, part)| (name, json!(part.matrix)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    };
    Ok(BenchmarkResult {
        bm_name: benchmark.name.clone(),
        bm_type: if benchmark.is_parallel { "parallel" } else { "single" }.into(),
        sub_bm_names: if benchmark.is_parallel { names().collect() } else { Vec::new() },
        matrix_args,
        benchmarks: cells,
        label: if is_modelled { Label::Modelled } else { Label::Measured },
        place,
        instructions: if is_modelled { "none".into() } else { isa.name().into() },
        bounded: bounded.0,
        fit: match &settings.place {
            Place::Model(system) => fit_of(&system.name),
            _ => None,
        },
        machine: Machine::here(),
    })
}

/// Settings that a model ignores.
fn ignored<'a>(configs: impl Iterator<Item = &'a Config> + Clone) -> Vec<String> {
    let is_far = configs.clone().any(|config| config.numa_pattern == NumaPattern::Far);
    let is_repeated =
        configs.clone().any(|config| config.repetitions > 1 || config.warm_up_time > 0);
    [
        (is_far, "numa_pattern: near for far: a model has no nodes"),
        (is_repeated, "repetitions: 1, without warm_up_time: a model gives the same every time"),
    ]
    .into_iter()
    .filter(|(is_so, _)| *is_so)
    .map(|(_, note)| note.to_owned())
    .collect()
}

/// Differences from what the files ask for, each once.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn add(&mut self, notes: &[String]) {
        for note in notes {
            if !self.0.contains(note) {
                self.0.push(note.clone());
            }
        }
    }
}

fn cell_result(benchmark: &Benchmark, configs: &[Config], figures: Vec<Figures>) -> CellResult {
    let names = || benchmark.parts.iter().map(|part| part.name.clone());
    let mut figures = figures.into_iter();
    match (benchmark.is_parallel, figures.len()) {
        (false, 1) => CellResult {
            config: config_json(&configs[0]),
            results: match figures.next() {
                Some(one) => Results::One(Box::new(one)),
                None => Results::Parallel(Default::default()),
            },
        },
        _ => CellResult {
            config: Value::Object(names().zip(configs.iter().map(config_json)).collect()),
            results: Results::Parallel(
                names().zip(figures.map(|results| Nested { results })).collect(),
            ),
        },
    }
}

/// Measures each part of a cell; returns the figures and the description of the memory.
fn measured(
    benchmark: &Benchmark,
    configs: &[Config],
    settings: &Settings,
    isa: Isa,
    ready: &mut Vec<(Config, Ready)>,
    runs_before: &mut u64,
) -> Result<(Vec<Figures>, String), RunError> {
    let name = || benchmark.name.clone();
    let is_device = matches!(settings.place, Place::Device { .. });
    let fits = |had: &[(Config, Ready)]| {
        had.len() == configs.len()
            && had.iter().zip(configs).all(|((had, _), config)| {
                has_same_memory(had, config) && (!is_device || had.writes() == config.writes())
            })
    };
    if !fits(ready) {
        // The old memory is freed first: both may not fit.
        ready.clear();
        let mut from_bytes = 0;
        for config in configs {
            let memory = Ready::of(&settings.place, config, from_bytes)
                .map_err(|source| RunError::Place { benchmark: name(), source })?;
            ready.push((config.clone(), memory));
            from_bytes += config.memory_range;
        }
    }
    let kernel = |config: &Config| {
        Kernel::new(isa, &persists(config))
            .map_err(|source| RunError::Lacking { benchmark: name(), source })
    };
    let mut once = |changed: &dyn Fn(&mut Config)| -> Result<Vec<PartRun>, RunError> {
        let mut configs = configs.to_vec();
        configs.iter_mut().for_each(changed);
        configs.iter_mut().for_each(|config| config.seed = config.seed.wrapping_add(*runs_before));
        *runs_before += 1;
        let jobs: Vec<Job<'_>> = configs
            .iter()
            .zip(ready.iter())
            .map(|(config, (_, ready))| {
                let dram = ready.dram.as_ref();
                let base = match (&ready.memory, &ready.device) {
                    (Some(memory), _) => memory.base(),
                    // Nothing is mapped: a place is an offset on the device.
                    (None, Some((_, from))) => std::ptr::without_provenance_mut(*from as usize),
                    (None, None) => unreachable!("memory or a device is ready"),
                };
                Ok(Job {
                    config,
                    kernel: kernel(config)?,
                    memory: Span { base, bytes: config.memory_range },
                    device: ready.device.as_ref().map(|(device, _)| Arc::clone(device)),
                    replay: ready.replay.clone(),
                    dram: dram.map(|d| Span { base: d.base(), bytes: config.dram_memory_range }),
                    processors: ready.processors.clone(),
                })
            })
            .collect::<Result<_, RunError>>()?;
        let threads = configs.iter().map(|config| config.number_threads).sum();
        // SAFETY: the memory of each job is in `ready`, which outlives the run, has the bytes of
        // its configuration, and is accessed by nobody else; each kernel was asked for all that its
        // configuration does.
        unsafe { run(&jobs) }.map_err(|source| RunError::Threads {
            benchmark: name(),
            threads,
            source,
        })
    };
    let warm_up_time = configs.iter().map(|config| config.warm_up_time).max().unwrap_or(0);
    if warm_up_time > 0 {
        once(&|config| (config.run_time, config.latency_sample_frequency) = (warm_up_time, 0))?;
    }
    let repetitions = configs.iter().map(|config| config.repetitions).max().unwrap_or(1);
    let mut runs: Vec<Vec<PartRun>> = configs.iter().map(|_| Vec::new()).collect();
    let mut all_costs = Vec::new();
    for _ in 0..repetitions {
        let meter = Meter::begin();
        let together = once(&|_| {})?;
        let counted = meter.and_then(|meter| meter.joules());
        let counted = counted.map(|joules| (joules, EnergyFrom::Rapl));
        all_costs.push(costs(&settings.economy, &together, counted));
        runs.iter_mut().zip(together).for_each(|(part, run)| part.push(run));
    }
    let what = ready.iter().map(|(_, ready)| ready.what.clone()).next().unwrap_or_default();
    // All parts report the same repetition, in which they ran together.
    let of_all = |number: usize| runs.iter().map(|runs| bandwidth(&runs[number])).sum::<f64>();
    let mut order: Vec<usize> = (0..all_costs.len()).collect();
    order.sort_by(|one, other| of_all(*one).total_cmp(&of_all(*other)));
    let median = order[(order.len() - 1) / 2];
    let costs = &all_costs[median];
    let figures =
        runs.iter().map(|runs| Figures { costs: costs.clone(), ..Figures::of(runs, median, true) });
    Ok((figures.collect(), what))
}

/// Cost of an operation of parts that ran together.
fn costs(economy: &Economy, runs: &[PartRun], counted: Option<(f64, EnergyFrom)>) -> Option<Costs> {
    let operations = runs.iter().map(PartRun::operations).sum();
    let ns = runs.iter().map(|run| run.ns).max().unwrap_or(0);
    economy.costs(operations, ns, counted)
}

/// Whether memory made for one configuration fits another.
fn has_same_memory(one: &Config, other: &Config) -> bool {
    let of = |config: &Config| {
        let Config {
            memory_range,
            dram_memory_range,
            numa_pattern,
            prefault_file,
            dram_huge_pages,
            ..
        } = *config;
        (memory_range, dram_memory_range, numa_pattern, prefault_file, dram_huge_pages)
    };
    of(one) == of(other) && one.trace_file == other.trace_file
}

/// The persist settings of a configuration.
fn persists(config: &Config) -> Vec<Persist> {
    if let (ExecMode::Custom, Some(chain)) = (config.exec_mode, &config.custom_operations) {
        return chain_persists(chain);
    }
    if config.writes() { vec![config.persist_instruction] } else { Vec::new() }
}

fn chain_persists(chain: &Chain) -> Vec<Persist> {
    let persist = |op: &CustomOp| match op {
        CustomOp::Write { persist, .. } => Some(*persist),
        CustomOp::Read { .. } => None,
    };
    chain.ops().iter().filter_map(persist).collect()
}
