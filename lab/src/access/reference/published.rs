//! The whole tables of the published systems, cell by cell: figures only, each file with its
//! source.
//!
//! `published/cells.yaml` has the questions as workloads; a file for each system has the figures in
//! the same order. Some cells are *held out*: no model is fitted to them, so that its error there
//! is the error to expect elsewhere.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::workload::{Benchmark, Config, parse};
use super::PublishedLabel;

/// A figure of a published table.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedCell {
    /// Name of the benchmark, and of the part if several ran together.
    pub name: String,
    /// Configurations that ran: the figure's own part, then the parts beside it.
    pub configs: Vec<Config>,
    /// The published figure: GiB/s, and for chains million a second.
    pub published: f64,
    /// Whether models must not be fitted to the cell.
    pub is_held_out: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[expect(dead_code, reason = "only `published` is read, and nothing else may stand there")]
    label: PublishedLabel,
    source: String,
    figures: BTreeMap<String, Vec<f64>>,
}

/// Held-out cells of ten; they are spread over all tables.
const HELD_OUT_OF_TEN: usize = 3;
/// Factor that spreads held-out cells: it holds out whole columns of most tables, which is harder
/// than single cells.
const SPREAD: usize = 7919;

macro_rules! tables {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("published/", $name, ".toml")))),*]
    };
}

const TABLES: &[(&str, &str)] =
    tables!["apache-128", "apache-256", "apache-512", "barlow-256", "b-dram"];

/// The systems that have tables, by the names of their profiles.
pub fn systems() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|(name, _)| *name)
}

/// Source of a system's table; none if there is no table.
pub fn source(system: &str) -> Option<String> {
    Some(table(system)?.source)
}

/// All figures of a system; none if there is no table.
///
/// # Panics
/// Never: the files are part of the program, and tests read them.
pub fn cells(system: &str) -> Option<Vec<PublishedCell>> {
    let figures = table(system)?.figures;
    let Ok(benchmarks) = parse("cells.yaml", include_str!("published/cells.yaml")) else {
        unreachable!("the built-in cells are workloads")
    };
    let mut cells = Vec::new();
    for benchmark in &benchmarks {
        for (which, part) in benchmark.parts.iter().enumerate() {
            let name = match benchmark.is_parallel {
                true => format!("{}.{}", benchmark.name, part.name),
                false => benchmark.name.clone(),
            };
            let Some(found) = figures.get(&name) else {
                unreachable!("the built-in table of {system} has {name}")
            };
            let configs = configs(benchmark, which);
            assert_eq!(configs.len(), found.len(), "figures of {name} of {system}");
            for (configs, published) in configs.into_iter().zip(found) {
                let is_held_out = cells.len() * SPREAD % 10 < HELD_OUT_OF_TEN;
                let name = name.clone();
                cells.push(PublishedCell { name, configs, published: *published, is_held_out });
            }
        }
    }
    Some(cells)
}

fn table(system: &str) -> Option<Table> {
    let (_, text) = TABLES.iter().find(|(name, _)| *name == system)?;
    match toml::from_str(text) {
        Ok(table) => Some(table),
        Err(error) => unreachable!("the built-in table of {system}: {error}"),
    }
}

/// The configurations of each run of a benchmark, this part's first.
fn configs(benchmark: &Benchmark, which: usize) -> Vec<Vec<Config>> {
    let of_run = |run: Vec<&super::super::workload::Cell>| {
        let mut configs: Vec<Config> = run.iter().map(|cell| cell.config.clone()).collect();
        let own = configs.remove(which);
        configs.insert(0, own);
        configs
    };
    benchmark.runs().map(of_run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_has_the_same_cells_and_three_of_ten_are_held_out() {
        for system in systems() {
            let cells = cells(system).unwrap();
            assert_eq!(cells.len(), 414, "{system}");
            assert_eq!(cells.iter().filter(|cell| cell.is_held_out).count(), 124, "{system}");
            assert!(source(system).unwrap().contains("hpides/perma-bench"));
            assert!(cells.iter().all(|cell| cell.published > 0.0), "{system}");
        }
        assert!(cells("a-dram").is_none());
    }

    /// The poster's peaks are found in the tables where they should be.
    #[test]
    fn peaks_of_the_tables_are_the_published_peaks() {
        let references = super::super::References::built_in();
        for system in systems() {
            let peaks = references.find(system).unwrap().peak_gib_per_s.unwrap();
            let cells = cells(system).unwrap();
            let highest = |name: &str| {
                let own = cells.iter().filter(|cell| cell.name == name);
                own.map(|cell| cell.published).fold(0.0, f64::max)
            };
            for (name, peak) in
                [("sequential_reads", peaks.sequential_read), ("random_reads", peaks.random_read)]
            {
                let found = highest(name);
                assert!((found - peak).abs() < 0.06, "{system} {name}: {found} {peak}");
            }
        }
    }
}
