//! The built-in suite of workload files. The comments of each file explain why a structure accesses
//! memory that way.

use super::workload::{Benchmark, WorkloadError, parse};

/// A file of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stock {
    /// Name of the file.
    pub name: &'static str,
    /// Text of the file.
    pub text: &'static str,
}

macro_rules! stock {
    ($name:literal) => {
        Stock { name: $name, text: include_str!(concat!("../../workloads/", $name)) }
    };
}

/// All files: plain accesses first, then those of structures, then benchmarks that run together.
pub const STOCK: [Stock; 10] = [
    stock!("sequential.yaml"),
    stock!("random.yaml"),
    stock!("persist.yaml"),
    stock!("latency.yaml"),
    stock!("hash_index.yaml"),
    stock!("tree_index.yaml"),
    stock!("hybrid_tree.yaml"),
    stock!("log_store.yaml"),
    stock!("aggregation.yaml"),
    stock!("together.yaml"),
];

impl Stock {
    /// The benchmarks of the file.
    ///
    /// # Errors
    /// The file is refused, which a test would have found.
    pub fn load(&self) -> Result<Vec<Benchmark>, WorkloadError> {
        parse(self.name, self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::Place;
    use super::super::suite::{Bounds, RunError, Settings, run_benchmark};
    use super::*;

    #[test]
    fn every_benchmark_of_the_suite_runs() {
        let bounds = Bounds {
            range_max: Some(256 << 10),
            operations_max: Some(500),
            threads_max: Some(2),
            run_time_max: None,
        };
        let economy = super::super::economy::Economy::default();
        let settings = Settings { place: Place::Dram, isa: None, bounds, economy };
        for stock in STOCK {
            for mut benchmark in stock.load().unwrap() {
                let cells = benchmark.parts.iter_mut().flat_map(|part| &mut part.cells);
                for cell in cells {
                    // A second for each cell would take too long for a test.
                    (cell.config.run_time, cell.config.repetitions) = (0, 1);
                }
                let count = benchmark.runs().count();
                match run_benchmark(&benchmark, &settings, &|_, _| {}) {
                    Ok(result) => assert_eq!(result.benchmarks.len(), count, "{}", result.bm_name),
                    Err(RunError::Lacking { benchmark, source }) => {
                        println!("skipped: {benchmark}: {source}");
                    }
                    Err(error) => panic!("{}: {error}", stock.name),
                }
            }
        }
    }
}
