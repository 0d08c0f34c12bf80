//! The cells that are measured on a memory, and the figures from them. Cells that need an
//! instruction that the processor lacks are named and left out before anything runs.

use super::super::kernel::{Isa, Kernel, Lacking};
use super::super::place::{Place, PlaceError, Ready};
use super::super::suite::{Bounds, RunError};
use super::super::workload::{
    Config, CustomOp, ExecMode, Memory as SpaceOf, Operation, Persist, WorkloadError, parse,
};
use super::figures::{Order, Peak, PlaceFigures, ReadIn, StructureFigure, Written, median};
use super::rounds::{Cell, Rounds};
use super::strided::Strides;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A built-in workload file is refused.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A workload cannot be run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Memory for strided reads cannot be had.
    #[error("strided reads: {0}")]
    Place(#[from] PlaceError),
    /// A thread for strided reads cannot be started.
    #[error("strided reads: {0}")]
    Threads(#[from] std::io::Error),
}

/// How figures are taken.
#[derive(Debug, Clone)]
pub(super) struct Measuring {
    pub place: Place,
    pub rounds: usize,
    /// Most threads of structures.
    pub threads_max: u64,
    /// Most threads where the highest bandwidth is sought.
    pub peak_threads_max: u64,
    /// Longest range.
    pub range_max: u64,
    /// Most operations of a cell; none: as the workloads say.
    pub operations_max: Option<u64>,
    /// Size of the last-level cache.
    pub cache_bytes: Option<u64>,
    /// The instruction that the processor lacks for a persist setting; tests let more be lacking.
    pub lacks: fn(Persist) -> Option<Lacking>,
}

/// The instruction that this processor lacks for a persist setting, if one is missing.
pub(super) fn lacks_here(persist: Persist) -> Option<Lacking> {
    Kernel::new(Isa::widest(), &[persist]).err()
}

/// A workload, and the figures that its cells give.
struct Workload {
    name: &'static str,
    text: &'static str,
}

const PEAKS: Workload = Workload { name: "peaks.yaml", text: include_str!("peaks.yaml") };
const WRITES: Workload = Workload { name: "writes.yaml", text: include_str!("writes.yaml") };
const UPDATES: Workload = Workload { name: "updates.yaml", text: include_str!("updates.yaml") };
const READS: Workload = Workload { name: "reads.yaml", text: include_str!("reads.yaml") };
const STRUCTURES: Workload =
    Workload { name: "structures.yaml", text: include_str!("structures.yaml") };

/// Bytes that the nearest caches hold, for all threads together.
const CACHED_BYTES: u64 = 32 << 10;

/// The cells to run, and the settings that differ from the workload's.
#[derive(Default)]
struct Planned {
    cells: Vec<Cell>,
    bounded: Vec<String>,
    lacking: Vec<String>,
}

impl Measuring {
    fn planned(&self, workload: &Workload, range_max: u64) -> Result<Planned, MeasureError> {
        let threads_max = match workload.name == PEAKS.name {
            true => self.peak_threads_max,
            false => self.threads_max,
        };
        let bounds = Bounds {
            range_max: Some(range_max),
            operations_max: self.operations_max,
            ..Bounds::default()
        };
        let mut planned = Planned::default();
        for benchmark in parse(workload.name, workload.text)? {
            for cell in benchmark.parts.into_iter().flat_map(|part| part.cells) {
                let mut config = cell.config;
                if config.number_threads > threads_max {
                    let note = format!("number_threads: no more than {threads_max}");
                    once(&mut planned.bounded, note);
                    continue;
                }
                if let Some(lacking) = persists(&config).into_iter().find_map(self.lacks) {
                    once(&mut planned.lacking, lacking.to_string());
                    continue;
                }
                if [WRITES.name, UPDATES.name].contains(&workload.name) {
                    self.outgrow_the_cache(&mut config);
                }
                bounds.apply(&mut config).into_iter().for_each(|n| once(&mut planned.bounded, n));
                planned.cells.push(Cell::new(&benchmark.name, config));
            }
        }
        Ok(planned)
    }

    /// Without flushes writes may end in the cache: they are raised to several times its size,
    /// unless that takes minutes.
    fn outgrow_the_cache(&self, config: &mut Config) {
        const AFFORDABLE_BYTES: u64 = 512 << 20;
        const AFFORDABLE_OPERATIONS: u64 = 2_000_000;
        if !config.exec_mode.counts_operations() {
            return;
        }
        let wanted = self.cache_bytes.unwrap_or(0).saturating_mul(4).min(AFFORDABLE_BYTES);
        let operations = wanted / written_bytes(config).max(1);
        let operations = operations.min(AFFORDABLE_OPERATIONS);
        config.number_operations = config.number_operations.max(operations);
    }

    /// The structures again, on little memory and without flushes, which wait for memory even
    /// there.
    fn planned_near(&self) -> Result<Planned, MeasureError> {
        let mut near = self.planned(&STRUCTURES, CACHED_BYTES)?;
        near.cells.iter_mut().for_each(|cell| unflushed(&mut cell.config));
        Ok(near)
    }

    /// Number of steps that [`Self::figures`] reports.
    pub fn steps(&self) -> Result<u64, MeasureError> {
        let mut cells = 0;
        for (workload, times) in
            [(&PEAKS, 1), (&WRITES, 1), (&UPDATES, 1), (&READS, 1), (&STRUCTURES, 2)]
        {
            cells += times * self.planned(workload, self.range_max)?.cells.len() as u64;
        }
        Ok(cells * self.rounds as u64)
    }

    /// Measures all figures of the place.
    pub fn figures(&self, told: &dyn Fn(&str)) -> Result<PlaceFigures, MeasureError> {
        let (mut bounded, mut lacking) = (Vec::new(), Vec::new());
        let mut run = |workload| {
            let planned = self.planned(workload, self.range_max)?;
            lacking.extend(planned.lacking);
            bounded.extend(planned.bounded);
            let mut cells = planned.cells;
            bounded.extend(self.rounds(&mut cells, told, &|_| ())?);
            Ok::<_, MeasureError>(cells)
        };
        let peaks = run(&PEAKS)?;
        let writes = run(&WRITES)?;
        let updates = run(&UPDATES)?;
        let far = run(&STRUCTURES)?;
        let mut near = self.planned_near()?.cells;
        self.rounds(&mut near, told, &|_| ())?;
        let (reads, of_reads) = self.reads(told)?;
        bounded.extend(of_reads);
        let of_writes = writes.iter().chain(&updates).map(|cell| &cell.config);
        let is_random = |config: &&Config| config.exec_mode.counts_operations();
        let random_written = of_writes.filter(is_random);
        let random_written =
            // Memory that is written twice is in the caches only once.
            random_written.map(|config| {
                (written_bytes(config) * config.number_operations).min(config.memory_range)
            });
        Ok(PlaceFigures {
            place: self.what()?,
            instructions: Isa::widest().name().into(),
            bounded: distinct(bounded),
            lacking: distinct(lacking),
            random_written_bytes_min: random_written.min().unwrap_or(0),
            range_bytes: peaks.iter().map(|cell| cell.config.memory_range).min().unwrap_or(0),
            peaks: peaks.into_iter().map(peak).collect(),
            writes: writes.into_iter().map(written).collect(),
            updates: updates.into_iter().map(updated).collect(),
            reads,
            structures: far.into_iter().zip(near).map(|pair| self.structure(pair)).collect(),
        })
    }

    /// Name of the memory; of a folder, its path.
    fn what(&self) -> Result<String, MeasureError> {
        let least = Config { memory_range: 1 << 20, ..Config::default() };
        let what = Ready::of(&self.place, &least, 0)?.what.clone();
        Ok(match &self.place {
            Place::Folder { path, .. } => format!("{} ({what})", path.display()),
            _ => what,
        })
    }

    fn rounds(
        &self,
        cells: &mut [Cell],
        told: &dyn Fn(&str),
        after: &dyn Fn(usize),
    ) -> Result<Vec<String>, MeasureError> {
        let rounds = Rounds { place: &self.place, count: self.rounds, told, after };
        Ok(rounds.run(cells)?)
    }

    /// Reads in each order. Those with gaps run in the same rounds, over ranges of the same length.
    fn reads(&self, told: &dyn Fn(&str)) -> Result<(Vec<ReadIn>, Vec<String>), MeasureError> {
        let Planned { mut cells, mut bounded, .. } = self.planned(&READS, self.range_max)?;
        let sizes = cells.iter().filter(|cell| cell.config.exec_mode == ExecMode::Sequential);
        let sizes: Vec<u64> = sizes.map(|cell| cell.config.access_size).collect();
        let range_bytes = cells.iter().map(|cell| cell.config.memory_range).min().unwrap_or(0);
        let strides = Strides::new(&self.place, range_bytes.max(1 << 10), sizes)?;
        bounded.extend(self.rounds(&mut cells, told, &|round| strides.round(round))?);
        let reads = cells.into_iter().map(read).chain(strides.into_figures()?);
        Ok((reads.collect(), bounded))
    }

    fn structure(&self, (far, near): (Cell, Cell)) -> StructureFigure {
        // The part of a chain in DRAM does not count for the folder.
        let own = match (&self.place, &far.config.custom_operations) {
            (Place::Dram, _) | (_, None) => 1.0,
            (_, Some(chain)) => {
                let bytes = |op: &CustomOp| op.bytes() as f64;
                let of_place = chain.ops().iter().filter(|op| op.memory() == SpaceOf::Persistent);
                of_place.map(bytes).sum::<f64>() / chain.ops().iter().map(bytes).sum::<f64>()
            }
        };
        StructureFigure {
            name: far.benchmark,
            is_real: false,
            threads: far.config.number_threads,
            cpu_ns: median(&far.cpu_ns),
            cached_cpu_ns: median(&near.cpu_ns),
            counted_share: (!far.counted.is_empty()).then(|| median(&far.counted)),
            cpu_share: median(&far.cpu_share),
            gib_per_s: far.gib_per_s.iter().map(|gib_per_s| gib_per_s * own).collect(),
            per_s: far.per_s,
        }
    }
}

fn once(notes: &mut Vec<String>, note: String) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}

fn distinct(notes: Vec<String>) -> Vec<String> {
    let mut found = Vec::new();
    notes.into_iter().for_each(|note| once(&mut found, note));
    found
}

/// The persist settings of a configuration's writes.
fn persists(config: &Config) -> Vec<Persist> {
    match (config.exec_mode, &config.custom_operations) {
        (ExecMode::Custom, Some(chain)) => {
            let persist = |op: &CustomOp| match op {
                CustomOp::Write { persist, .. } => Some(*persist),
                CustomOp::Read { .. } => None,
            };
            chain.ops().iter().filter_map(persist).collect()
        }
        _ if config.writes() => vec![config.persist_instruction],
        _ => Vec::new(),
    }
}

/// Bytes that an operation writes.
fn written_bytes(config: &Config) -> u64 {
    match (config.exec_mode, &config.custom_operations) {
        (ExecMode::Custom, Some(chain)) => {
            let is_write = |op: &&CustomOp| matches!(op, CustomOp::Write { .. });
            chain.ops().iter().filter(is_write).map(CustomOp::bytes).sum()
        }
        _ => config.access_size,
    }
}

/// A chain without flushes: a flush waits for memory, however little is accessed.
fn unflushed(config: &mut Config) {
    let Some(chain) = &config.custom_operations else { return };
    let without = |access: String| {
        let mut words: Vec<&str> = access.split('_').collect();
        if let Some(persist) = words.get_mut(2) {
            *persist = Persist::None.name();
        }
        words.join("_")
    };
    let accesses: Vec<String> = chain.ops().iter().map(|op| without(op.to_string())).collect();
    match accesses.join(",").parse() {
        Ok(chain) => config.custom_operations = Some(chain),
        Err(rule) => unreachable!("a chain of ours, but for its flushes: {rule}"),
    }
}

fn peak(cell: Cell) -> Peak {
    let is_random = cell.config.exec_mode == ExecMode::Random;
    let is_read = cell.config.operation == Operation::Read;
    let pattern = match (is_random, is_read) {
        (false, true) => "sequential read",
        (true, true) => "random read",
        (false, false) => "sequential write",
        (true, false) => "random write",
    };
    Peak {
        pattern: pattern.into(),
        threads: cell.config.number_threads,
        access_bytes: cell.config.access_size,
        cpu_share: median(&cell.cpu_share),
        gib_per_s: cell.gib_per_s,
    }
}

fn written(cell: Cell) -> Written {
    Written {
        is_random: cell.config.exec_mode == ExecMode::Random,
        write_bytes: cell.config.access_size,
        persist: cell.config.persist_instruction.name().into(),
        per_s: cell.per_s,
    }
}

fn updated(cell: Cell) -> Written {
    let last = cell.config.custom_operations.as_ref().and_then(|chain| chain.ops().last().copied());
    let (write_bytes, persist) = match last {
        Some(CustomOp::Write { bytes, persist, .. }) => (bytes, persist.name()),
        _ => (0, ""),
    };
    Written { is_random: true, write_bytes, persist: persist.into(), per_s: cell.per_s }
}

fn read(cell: Cell) -> ReadIn {
    let order = match cell.config.exec_mode {
        ExecMode::Sequential => Order::Ascending,
        ExecMode::SequentialDesc => Order::Descending,
        ExecMode::Random | ExecMode::Custom | ExecMode::Trace => Order::Random,
    };
    ReadIn { order, read_bytes: cell.config.access_size, per_s: cell.per_s }
}

#[cfg(test)]
mod tests;
