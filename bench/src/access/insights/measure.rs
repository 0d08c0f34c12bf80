//! Workloads run in rounds, and what comes of them.

use super::super::economy::Economy;
use super::super::kernel::Isa;
use super::super::place::{Place, PlaceError, Ready};
use super::super::result::{Figures, Results};
use super::super::suite::{Bounds, RunError, Settings, run_benchmark};
use super::super::workload::{
    Benchmark, Config, CustomOp, ExecMode, Persist, WorkloadError, parse,
};
use super::figures::{Order, Peak, PlaceFigures, ReadIn, StructureFigure, Written, median};
use super::sys::strided;
use super::waits::Waits;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A workload of ours is none.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// It did not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// No memory to stride over.
    #[error("strided reads: {0}")]
    Place(#[from] PlaceError),
}

/// How figures are taken.
#[derive(Debug, Clone)]
pub(super) struct Measuring {
    pub place: Place,
    pub rounds: usize,
    pub threads_max: u64,
    /// No range is longer.
    pub range_max: u64,
    /// No cell has more operations; none: as the workloads say.
    pub operations_max: Option<u64>,
}

/// A cell, and what it did in each round.
pub(super) struct Cell {
    pub benchmark: String,
    pub config: Config,
    pub gib_per_s: Vec<f64>,
    pub per_s: Vec<f64>,
    /// Processor time of an operation, nanoseconds.
    pub cpu_ns: Vec<f64>,
    /// Share of the cycles that did not wait, where counters tell.
    pub counted: Vec<f64>,
}

/// The workloads, by the figures that they give.
const PEAKS: &str = include_str!("peaks.yaml");
const WRITES: &str = include_str!("writes.yaml");
const UPDATES: &str = include_str!("updates.yaml");
const READS: &str = include_str!("reads.yaml");
const STRUCTURES: &str = include_str!("structures.yaml");

/// What the nearest caches hold, of all threads together.
const CACHED_BYTES: u64 = 32 << 10;

impl Measuring {
    /// Benchmarks of a workload of ours, without the cells of more threads than there may be.
    fn benchmarks(&self, name: &str, text: &str) -> Result<Vec<Benchmark>, MeasureError> {
        let mut all = parse(name, text)?;
        for part in all.iter_mut().flat_map(|benchmark| &mut benchmark.parts) {
            part.cells.retain(|cell| cell.config.number_threads <= self.threads_max);
        }
        Ok(all)
    }

    /// How many steps [`Self::figures`] tells of.
    pub fn steps(&self) -> Result<u64, MeasureError> {
        let mut cells = 0;
        for (name, text, times) in [
            ("peaks.yaml", PEAKS, 1),
            ("writes.yaml", WRITES, 1),
            ("updates.yaml", UPDATES, 1),
            ("reads.yaml", READS, 1),
            ("structures.yaml", STRUCTURES, 2),
        ] {
            let of = |benchmark: &Benchmark| benchmark.runs().count() as u64;
            cells += times * self.benchmarks(name, text)?.iter().map(of).sum::<u64>();
        }
        Ok(cells * self.rounds as u64)
    }

    /// All figures of the place.
    pub fn figures(&self, told: &dyn Fn(&str)) -> Result<PlaceFigures, MeasureError> {
        let run = |name: &str, text: &str, range_max| {
            self.rounds(&self.benchmarks(name, text)?, range_max, told)
        };
        let peaks = run("peaks.yaml", PEAKS, self.range_max)?;
        let writes = run("writes.yaml", WRITES, self.range_max)?;
        let updates = run("updates.yaml", UPDATES, self.range_max)?;
        let reads = run("reads.yaml", READS, self.range_max)?;
        let strided = self.strided(&reads)?;
        let far = run("structures.yaml", STRUCTURES, self.range_max)?;
        let mut near = self.benchmarks("structures.yaml", STRUCTURES)?;
        for part in near.iter_mut().flat_map(|benchmark| &mut benchmark.parts) {
            part.cells.iter_mut().for_each(|cell| unflushed(&mut cell.config));
        }
        let near = self.rounds(&near, CACHED_BYTES, told)?;
        let isa = Isa::widest();
        Ok(PlaceFigures {
            place: self.what()?,
            instructions: isa.name().into(),
            peaks: peaks.into_iter().map(peak).collect(),
            writes: writes.into_iter().map(written).collect(),
            updates: updates.into_iter().map(updated).collect(),
            reads: reads.into_iter().map(read).chain(strided).collect(),
            structures: far.into_iter().zip(near).map(structure).collect(),
        })
    }

    fn what(&self) -> Result<String, MeasureError> {
        let least = Config { memory_range: 1 << 20, ..Config::default() };
        Ok(Ready::of(&self.place, &least, 0)?.what.clone())
    }

    /// Each cell once, and again: neighbours in time, so that rounds can be compared.
    fn rounds(
        &self,
        benchmarks: &[Benchmark],
        range_max: u64,
        told: &dyn Fn(&str),
    ) -> Result<Vec<Cell>, MeasureError> {
        let settings = Settings {
            place: self.place.clone(),
            isa: None,
            bounds: Bounds {
                range_max: Some(range_max),
                operations_max: self.operations_max,
                ..Bounds::default()
            },
            economy: Economy::default(),
        };
        let mut found: Vec<Cell> = Vec::new();
        for benchmark in benchmarks {
            let part = &benchmark.parts[0];
            let mut cells: Vec<Cell> =
                part.cells.iter().map(|cell| Cell::new(&benchmark.name, &cell.config)).collect();
            // All rounds as one run: memory is made ready once, which takes longer than most cells.
            let mut again = benchmark.clone();
            let rounds = std::iter::repeat_n(&part.cells, self.rounds);
            again.parts[0].cells = rounds.flatten().cloned().collect();
            let waits = std::cell::RefCell::new(Waits::open().ok());
            let shares = std::cell::RefCell::new(Vec::new());
            let done = |_, _| {
                told(&benchmark.name);
                let share = waits.borrow_mut().as_mut().and_then(Waits::share_since);
                shares.borrow_mut().push(share);
            };
            let result = run_benchmark(&again, &settings, &done)?;
            let count = cells.len();
            for (at, (one, share)) in result.benchmarks.iter().zip(shares.into_inner()).enumerate()
            {
                if let Results::One(figures) = &one.results {
                    cells[at % count].add(figures, share);
                }
            }
            found.extend(cells);
        }
        Ok(found)
    }

    /// Every fourth read, which no workload of the format can ask for, of the sizes that the others have.
    fn strided(&self, reads: &[Cell]) -> Result<Vec<ReadIn>, MeasureError> {
        let sizes = reads.iter().filter(|cell| cell.benchmark == "ascending");
        let sizes: Vec<u64> = sizes.map(|cell| cell.config.access_size).collect();
        let range = reads.first().map_or(1 << 20, |cell| cell.config.memory_range);
        let config = Config { memory_range: range.min(self.range_max), ..Config::default() };
        let ready = Ready::of(&self.place, &config, 0)?;
        let Some(memory) = &ready.memory else { return Ok(Vec::new()) };
        let one = |read_bytes: u64| {
            let pass = || strided(memory, config.memory_range, read_bytes, 4 * read_bytes);
            let per_s = (0..self.rounds).map(|_| pass()).collect();
            ReadIn { order: Order::EveryFourth, read_bytes, per_s }
        };
        Ok(sizes.into_iter().map(one).collect())
    }
}

/// The same chain without flushes: those wait for memory, however little is accessed.
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

impl Cell {
    fn new(benchmark: &str, config: &Config) -> Self {
        let (benchmark, config) = (benchmark.to_owned(), config.clone());
        let [gib_per_s, per_s, cpu_ns, counted] = [(); 4].map(|()| Vec::new());
        Self { benchmark, config, gib_per_s, per_s, cpu_ns, counted }
    }

    fn add(&mut self, figures: &Figures, share: Option<f64>) {
        self.gib_per_s.push(figures.bandwidth);
        self.per_s.push(figures.ops_per_second);
        let thread_s: f64 = figures.threads.iter().map(|thread| thread.execution_time).sum();
        let cpu_s = figures.cpu_share.unwrap_or(1.0) * thread_s;
        self.cpu_ns.push(cpu_s * 1e9 / figures.num_operations.max(1) as f64);
        self.counted.extend(share);
    }
}

fn peak(cell: Cell) -> Peak {
    let is_random = cell.config.exec_mode == ExecMode::Random;
    let is_read = cell.config.operation == super::super::workload::Operation::Read;
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

fn structure((far, near): (Cell, Cell)) -> StructureFigure {
    StructureFigure {
        name: far.benchmark,
        is_real: false,
        threads: far.config.number_threads,
        cpu_ns: median(&far.cpu_ns),
        cached_cpu_ns: median(&near.cpu_ns),
        counted_share: (!far.counted.is_empty()).then(|| median(&far.counted)),
        per_s: far.per_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Measuring {
        Measuring {
            place: Place::Dram,
            rounds: 2,
            threads_max: 2,
            range_max: 256 << 10,
            operations_max: Some(2000),
        }
    }

    #[test]
    fn all_workloads_are_of_the_format_and_give_their_figures() {
        let told = std::cell::Cell::new(0);
        let figures = small().figures(&|_| told.set(told.get() + 1)).unwrap();
        assert_eq!(told.get(), small().steps().unwrap());
        assert_eq!(figures.peaks.len(), 4 * 2);
        assert_eq!(figures.writes.len(), 2 * 5 * 4);
        assert_eq!(figures.updates.len(), 9);
        assert_eq!(figures.reads.len(), 4 * 4);
        assert!(figures.structures.iter().all(|one| one.cpu_ns > 0.0 && one.per_s.len() == 2));
        assert!(figures.updates.iter().all(|one| one.write_bytes >= 64 && !one.persist.is_empty()));
        assert_eq!(figures.best_persists().len(), 10);
        let without = figures.without_flush(&[64, 128, 256]);
        assert!(without.iter().all(|one| one.write.is_some() && one.update.is_some()));
        for order in [Order::Descending, Order::EveryFourth, Order::Random] {
            assert!(figures.order_versus(256, Order::Ascending, order).is_some(), "{order:?}");
        }
        let highest = figures.highest();
        assert!(highest.all().iter().all(|peak| peak.is_some_and(|peak| peak > 0.0)));
    }

    #[test]
    fn what_is_left_without_memory_flushes_nothing() {
        let chain = "r_64,w_64_cache_128,wp_256_nocache,rd_64,wd_64_cacheinv_-64";
        let mut config =
            Config { custom_operations: Some(chain.parse().unwrap()), ..Config::default() };
        unflushed(&mut config);
        let left = config.custom_operations.unwrap().to_string();
        assert_eq!(left, "rp_64,wp_64_none_128,wp_256_none,rd_64,wd_64_none_-64");
    }

    #[test]
    fn a_folder_is_measured_as_well_as_memory() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Folder { path: dir.path().to_owned(), dax_only: false };
        let figures = Measuring { place, rounds: 1, ..small() }.figures(&|_| ()).unwrap();
        assert!(figures.place != "DRAM" && !figures.structures.is_empty(), "{}", figures.place);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    }
}
