//! Fits the models of published servers to their whole tables, and measures how well they fit.
//!
//! A model's numbers are changed one at a time, in an order given by a seed, as long as the error
//! over the cells that are not held out becomes smaller. The same seed, tables and starting numbers
//! give the same result on any machine. `cargo run --release -p perdura-lab --example
//! fit_published` repeats it.

mod error;
mod knobs;
mod search;
mod told;

pub use error::{FitError, error_of};
pub use knobs::{Knob, knobs, text};
pub use search::{Search, search};
pub use told::{CellFit, SystemFit, fit_of, kind_of};

use std::collections::BTreeSet;

use perdura_media::System;
use perdura_media::profile::Server;

use super::reference::published::PublishedCell;
use super::simulate::{Limits, simulate_within};

/// Simulated accesses of a cell where errors are reported; more would change them by less than
/// their last digit.
pub const ACCESSES: u64 = 12_000;
/// Simulated accesses of a cell in a search, which simulates each cell hundreds of times.
pub const SEARCH_ACCESSES: u64 = 2_500;
/// Fewest simulated accesses of each thread, however many threads there are.
const EACH_THREAD: u64 = 40;
/// Most bytes that the published program reads in a read of a chain, whatever its size: its loop
/// over longer reads does not advance.
const CHAINED_READ_BYTES_MAX: u64 = 512;

const GIB: f64 = (1u64 << 30) as f64;

/// The model's figure for a published cell, in the unit of that figure.
pub fn modelled(system: &System, cell: &PublishedCell, accesses: u64) -> f64 {
    let most = |of: &dyn Fn(&super::workload::Config) -> u64| {
        cell.configs.iter().map(of).max().unwrap_or(1)
    };
    // All parts end when one ends, so the part with the shortest accesses decides.
    let pieces = |config: &super::workload::Config| match config.custom_operations {
        Some(_) => 1,
        None => config.access_size.div_ceil(512),
    };
    let pieces = cell.configs.iter().map(pieces).min().unwrap_or(1);
    let chained =
        most(&|config| config.custom_operations.as_ref().map_or(1, |all| all.ops().len() as u64));
    let least = EACH_THREAD * most(&|config| config.number_threads) * chained.min(4);
    let limits = Limits {
        accesses_max: (accesses / pieces).max(least),
        chained_read_bytes_max: CHAINED_READ_BYTES_MAX,
    };
    let configs: Vec<_> = cell.configs.iter().map(|config| (config, None)).collect();
    let run = simulate_within(system, &configs, limits).runs.remove(0);
    match cell.configs[0].custom_operations {
        Some(_) => run.operations() as f64 * 1e3 / run.ns as f64,
        None => run.bytes() as f64 * 1e9 / run.ns as f64 / GIB,
    }
}

/// For each cell, the logarithm of the modelled over the published figure.
pub fn errors(system: &System, cells: &[&PublishedCell], accesses: u64) -> Vec<f64> {
    let error = |cell: &&PublishedCell| (modelled(system, cell, accesses) / cell.published).ln();
    cells.iter().map(error).collect()
}

/// How well a system fits its cells, as in `fits.toml`; none if there are no cells.
pub fn fit(system: &System, cells: &[PublishedCell], accesses: u64) -> Option<SystemFit> {
    let all: Vec<&PublishedCell> = cells.iter().collect();
    let errors = errors(system, &all, accesses);
    let of = |wanted: &dyn Fn(&PublishedCell) -> bool| {
        let own = all.iter().zip(&errors).filter(|(cell, _)| wanted(cell));
        error_of(&own.map(|(_, error)| *error).collect::<Vec<f64>>())
    };
    let kind = |cell: &PublishedCell| kind_of(&cell.configs.iter().collect::<Vec<_>>()).ok();
    let names: BTreeSet<&str> = cells.iter().filter_map(kind).collect();
    let of_kind = |name: &str| Some((name.to_owned(), of(&|cell| kind(cell) == Some(name))?));
    Some(SystemFit {
        fitted: of(&|cell| !cell.is_held_out)?,
        held_out: of(&|cell| cell.is_held_out)?,
        kinds: names.into_iter().filter_map(of_kind).collect(),
    })
}

/// A system with the numbers of another server.
pub fn with_server(system: &System, server: Server) -> System {
    System { server: Some(server), ..system.clone() }
}

#[cfg(test)]
mod tests;
