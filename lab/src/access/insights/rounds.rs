//! Measures cells of workloads in turn: each once in every round, whichever benchmark it belongs
//! to, so that two of them can be compared round by round and other work on the machine disturbs
//! all alike.
//!
//! Rounds begin with different cells and every second one goes backwards, so that no cell is always
//! first or always behind the same neighbour. Each cell has random places of its own in each round:
//! the places of another cell or round may still be in the caches.

use std::cell::RefCell;

use super::super::economy::Economy;
use super::super::place::Place;
use super::super::result::{Figures, Results};
use super::super::suite::{Bounds, RunError, Settings, run_benchmark};
use super::super::workload::{Benchmark, Cell as WorkloadCell, Config, Part};
use super::waits::Waits;

/// A cell, and its figures in each round.
pub(super) struct Cell {
    pub benchmark: String,
    /// The configuration that runs, after limits.
    pub config: Config,
    pub gib_per_s: Vec<f64>,
    pub per_s: Vec<f64>,
    /// Processor time of an operation in each round, nanoseconds.
    pub cpu_ns: Vec<f64>,
    /// Share of a thread's time in which it had a processor, in each round.
    pub cpu_share: Vec<f64>,
    /// Share of the cycles without waiting in each round, where there are counters.
    pub counted: Vec<f64>,
}

impl Cell {
    pub fn new(benchmark: &str, config: Config) -> Self {
        let [gib_per_s, per_s, cpu_ns, cpu_share, counted] = [(); 5].map(|()| Vec::new());
        let benchmark = benchmark.to_owned();
        Self { benchmark, config, gib_per_s, per_s, cpu_ns, cpu_share, counted }
    }

    fn add(&mut self, figures: &Figures, counted: Option<f64>) {
        self.gib_per_s.push(figures.bandwidth);
        self.per_s.push(figures.ops_per_second);
        let thread_s: f64 = figures.threads.iter().map(|thread| thread.execution_time).sum();
        let cpu_share = figures.cpu_share.unwrap_or(1.0);
        self.cpu_ns.push(cpu_share * thread_s * 1e9 / figures.num_operations.max(1) as f64);
        self.cpu_share.push(cpu_share);
        self.counted.extend(counted);
    }
}

/// How cells are measured.
pub(super) struct Rounds<'a> {
    pub place: &'a Place,
    pub count: usize,
    /// Called with the name of each cell that is done.
    pub told: &'a dyn Fn(&str),
    /// Called with each round's number after its cells, for work that belongs to the round.
    pub after: &'a dyn Fn(usize),
}

impl Rounds<'_> {
    /// Measures the cells; returns the settings that differ from theirs.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn run(&self, cells: &mut [Cell]) -> Result<Vec<String>, RunError> {
        let mut notes = Vec::new();
        let mut memories: Vec<(u64, u64)> = Vec::new();
        for cell in &*cells {
            if !memories.contains(&memory(&cell.config)) {
                memories.push(memory(&cell.config));
            }
        }
        // Cells on the same memory are one run: making memory ready takes longer than most cells.
        for wanted in memories {
            let own: Vec<usize> =
                (0..cells.len()).filter(|at| memory(&cells[*at].config) == wanted).collect();
            for note in self.on_one_memory(cells, &own)? {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        Ok(notes)
    }

    fn on_one_memory(&self, cells: &mut [Cell], own: &[usize]) -> Result<Vec<String>, RunError> {
        let mut turns: Vec<usize> = Vec::new();
        let mut part = Part { name: String::new(), matrix: Vec::new(), cells: Vec::new() };
        for round in 0..self.count {
            for at in order(own.len(), round, self.count) {
                let mut config = cells[own[at]].config.clone();
                let seed = (round * own.len() + at) as u64;
                config.seed = config.seed.wrapping_add(seed);
                part.cells.push(WorkloadCell { varied: Vec::new(), config });
                turns.push(own[at]);
            }
        }
        let name = own.first().map_or(String::new(), |at| cells[*at].benchmark.clone());
        let benchmark = Benchmark { name, parts: vec![part], is_parallel: false };
        let settings = Settings {
            place: self.place.clone(),
            isa: None,
            bounds: Bounds::default(),
            economy: Economy::default(),
        };
        let waits = RefCell::new(Waits::open().ok());
        let counted = RefCell::new(Vec::new());
        let done = |done: usize, _| {
            counted.borrow_mut().push(waits.borrow_mut().as_mut().and_then(Waits::share_since));
            (self.told)(&cells[turns[done - 1]].benchmark);
            if done.is_multiple_of(own.len()) {
                (self.after)(done / own.len() - 1);
                // Counts of the time between cells belong to no cell.
                waits.borrow_mut().as_mut().and_then(Waits::share_since);
            }
        };
        let result = run_benchmark(&benchmark, &settings, &done)?;
        for ((one, counted), at) in result.benchmarks.iter().zip(counted.into_inner()).zip(turns) {
            if let Results::One(figures) = &one.results {
                cells[at].add(figures, counted);
            }
        }
        Ok(result.bounded)
    }
}

/// The settings for which a configuration's memory is made ready, as far as they differ here.
fn memory(config: &Config) -> (u64, u64) {
    (config.memory_range, config.dram_memory_range)
}

/// Order in which cells are measured in a round.
fn order(cells: usize, round: usize, rounds: usize) -> Vec<usize> {
    let first = round * cells / rounds.max(1);
    let at = |step: usize| match round % 2 {
        0 => (first + step) % cells,
        // Backwards, so that neighbours change sides.
        _ => (first + cells - step) % cells,
    };
    (0..cells).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_every_cell_once_and_begins_with_another() {
        for (cells, rounds) in [(7, 3), (4, 3), (5, 4), (1, 5), (12, 5), (0, 2)] {
            let orders: Vec<Vec<usize>> =
                (0..rounds).map(|round| order(cells, round, rounds)).collect();
            for order in &orders {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..cells).collect::<Vec<_>>());
            }
            if cells > rounds {
                let mut firsts: Vec<usize> = orders.iter().map(|order| order[0]).collect();
                firsts.sort_unstable();
                firsts.dedup();
                assert_eq!(firsts.len(), rounds, "{orders:?}");
            }
        }
    }

    #[test]
    fn cells_of_several_benchmarks_take_turns_and_what_belongs_to_a_round_follows_it() {
        let told = RefCell::new(Vec::new());
        let config = Config { memory_range: 64 << 10, ..Config::default() };
        let other = Config { access_size: 1024, ..config.clone() };
        let mut cells = [Cell::new("one", config), Cell::new("other", other)];
        let rounds = Rounds {
            place: &Place::Dram,
            count: 3,
            told: &|what| told.borrow_mut().push(what.to_owned()),
            after: &|round| told.borrow_mut().push(round.to_string()),
        };
        rounds.run(&mut cells).unwrap();
        let told = told.into_inner();
        assert_eq!(told.len(), 9, "{told:?}");
        for (round, told) in told.chunks(3).enumerate() {
            let mut both = told[..2].to_vec();
            both.sort_unstable();
            assert_eq!((both, &told[2]), (vec!["one".into(), "other".into()], &round.to_string()));
        }
        for cell in cells {
            assert_eq!((cell.per_s.len(), cell.cpu_share.len()), (3, 3));
            assert!(cell.cpu_ns.iter().all(|ns| *ns > 0.0));
        }
    }
}
