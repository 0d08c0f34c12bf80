//! The error that is reported beside a modelled figure.
//!
//! `fits.toml` has the errors of each fitted system, over all published cells and by *kind* of
//! access; a test compares them with the models. A figure whose kind has no published cell has no
//! known error, and says so.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::super::workload::{Config, CustomOp, ExecMode, Memory, Operation, Persist};
use super::super::workload::{NumaPattern, RandomDistribution};
use super::error::FitError;

/// How well the model of a system fits its published tables.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemFit {
    /// Error over the cells to which the model was fitted.
    pub fitted: FitError,
    /// Error over the cells to which it was not fitted: the error to expect elsewhere.
    pub held_out: FitError,
    /// Error over all cells of a kind, by the kind's name.
    pub kinds: BTreeMap<String, FitError>,
}

/// The error to expect of one modelled figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellFit {
    /// Name of the figure's kind of access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The model's error over the published cells of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FitError>,
    /// Why no error is known, where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub never_fitted: Option<String>,
}

/// How well a built-in model fits; none if the system has no published tables here.
///
/// # Panics
/// Never: the file is part of the program, and a test reads it.
pub fn fit_of(system: &str) -> Option<SystemFit> {
    match toml::from_str::<BTreeMap<String, SystemFit>>(include_str!("fits.toml")) {
        Ok(mut fits) => fits.remove(system),
        Err(error) => unreachable!("the built-in errors of fits: {error}"),
    }
}

impl CellFit {
    /// The error of a figure of the first of these configurations, which ran together.
    pub fn of(fit: Option<&SystemFit>, configs: &[&Config]) -> Self {
        let never =
            |why: &str| Self { kind: None, error: None, never_fitted: Some(why.to_owned()) };
        let Some(fit) = fit else { return never("no table of this system was published") };
        match kind_of(configs) {
            Err(why) => never(why),
            Ok(kind) => match fit.kinds.get(kind) {
                None => never("no published cell is of this kind"),
                Some(error) => {
                    Self { kind: Some(kind.to_owned()), error: Some(*error), never_fitted: None }
                }
            },
        }
    }
}

impl fmt::Display for CellFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.error, &self.never_fitted) {
            (Some(error), _) => write!(f, "+-{:.0} %", error.mean * 100.0),
            (None, Some(why)) => write!(f, "never fitted: {why}"),
            (None, None) => f.write_str("unknown"),
        }
    }
}

impl fmt::Display for SystemFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fitted, held_out, .. } = self;
        write!(
            f,
            "modelled, fit +-{:.0} % over {} published cells, held out +-{:.0} % over {} \
             (nine in ten within {:.0} %)",
            fitted.mean * 100.0,
            fitted.cells,
            held_out.mean * 100.0,
            held_out.cells,
            held_out.nine_in_ten * 100.0,
        )
    }
}

/// Most threads of a published cell.
const THREADS_MAX: u64 = 32;
/// Longest random or sequential reads, and streamed writes, of the published cells that run alone.
const READ_BYTES_MAX: u64 = 16 << 10;
const RANDOM_READ_BYTES_MAX: u64 = 1 << 10;
const WRITE_BYTES_MAX: u64 = 1 << 10;
/// Longest reads in chains that the published program really did.
const CHAINED_READ_BYTES_MAX: u64 = 512;

/// The kind of access of the first of several configurations that run together, or why no published
/// cell has its kind.
pub fn kind_of(configs: &[&Config]) -> Result<&'static str, &'static str> {
    let threads: u64 = configs.iter().map(|config| config.number_threads).sum();
    let Some(own) = configs.first() else { return Err("nothing was run") };
    if threads > THREADS_MAX {
        return Err("no published cell has more than 32 threads");
    }
    if own.numa_pattern == NumaPattern::Far {
        return Err("no published cell is of another node's memory");
    }
    if own.mixed_operation_ratio > 0.0 || own.rate_limit > 0 {
        return Err("no published cell mixes reads and writes of a thread, or has a rate");
    }
    if own.random_distribution == RandomDistribution::Zipf {
        return Err("no published cell has a distribution by Zipf's law");
    }
    if configs.len() > 1 {
        return together(configs);
    }
    match (own.exec_mode, &own.custom_operations) {
        (ExecMode::Custom, Some(chain)) => chained(chain.ops()),
        (ExecMode::Random | ExecMode::Sequential, _) => plain(own),
        (ExecMode::SequentialDesc, _) => Err("no published cell goes backwards"),
        (ExecMode::Custom | ExecMode::Trace, _) => Err("no published cell replays a trace"),
    }
}

fn together(configs: &[&Config]) -> Result<&'static str, &'static str> {
    let beside_dram = configs.iter().any(|config| config.dram_operation_ratio > 0.0);
    match (configs[0].dram_operation_ratio > 0.0, beside_dram, configs[0].operation) {
        (true, _, _) => Ok("stores to DRAM beside the medium"),
        (false, true, Operation::Read) => Ok("scans beside DRAM"),
        (false, true, Operation::Write) => Ok("logs beside DRAM"),
        (false, false, Operation::Read) => Ok("reads beside writes"),
        (false, false, Operation::Write) => Ok("writes beside reads"),
    }
}

fn plain(own: &Config) -> Result<&'static str, &'static str> {
    let is_random = own.exec_mode == ExecMode::Random;
    let most_bytes = match (own.operation, is_random) {
        (Operation::Read, true) => RANDOM_READ_BYTES_MAX,
        (Operation::Read, false) => READ_BYTES_MAX,
        (Operation::Write, _) => WRITE_BYTES_MAX,
    };
    if own.access_size > most_bytes {
        return Err("no published cell has accesses of this length");
    }
    if own.dram_operation_ratio > 0.0 {
        return Err("no published cell of DRAM runs alone");
    }
    Ok(match (own.operation, own.persist_instruction, is_random) {
        (Operation::Read, _, false) => "sequential reads",
        (Operation::Read, _, true) => "random reads",
        (Operation::Write, Persist::NoCache, false) => "sequential streamed writes",
        (Operation::Write, Persist::NoCache, true) => "random streamed writes",
        (Operation::Write, Persist::None, _) => "stores alone",
        (Operation::Write, Persist::Cache | Persist::CacheInv, true) => "random flushed writes",
        (Operation::Write, Persist::Cache | Persist::CacheInv, false) => {
            return Err("no published cell flushes sequential writes");
        }
    })
}

fn chained(ops: &[CustomOp]) -> Result<&'static str, &'static str> {
    let has = |of: &dyn Fn(&CustomOp) -> bool| ops.iter().any(of);
    let is_long =
        |op: &CustomOp| matches!(op, CustomOp::Read { .. }) && op.bytes() > CHAINED_READ_BYTES_MAX;
    if has(&is_long) {
        return Err("the published program read the first 512 B of longer reads in chains");
    }
    let in_dram = has(&|op| op.memory() == Memory::Dram);
    let persists = |wanted: bool| {
        has(&|op| match op {
            CustomOp::Write { persist, .. } => (*persist != Persist::None) == wanted,
            CustomOp::Read { .. } => false,
        })
    };
    Ok(match (in_dram, persists(true), persists(false)) {
        (true, true, _) => "updates in chains through DRAM",
        (true, false, _) => "reads in chains through DRAM",
        (false, true, _) => "updates in chains",
        (false, false, true) => "stores in chains",
        (false, false, false) => "reads in chains",
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::workload::parse;
    use super::*;

    fn config(args: &str) -> Config {
        let benchmark = parse("w.yaml", &format!("b:\n  args: {{{args}}}\n")).unwrap().remove(0);
        benchmark.parts[0].cells[0].config.clone()
    }

    #[test]
    fn what_no_published_cell_is_of_has_no_error() {
        let fit = fit_of("apache-256").unwrap();
        let told = |args: &str| CellFit::of(Some(&fit), &[&config(args)]).to_string();
        assert!(told("exec_mode: random, access_size: 256").starts_with("+-"));
        for args in [
            "exec_mode: sequential_desc",
            "exec_mode: random, random_distribution: zipf",
            "exec_mode: random, number_threads: 64",
            "exec_mode: random, access_size: 8K",
            "exec_mode: custom, custom_operations: r_1024",
            "exec_mode: random, mixed_operation_ratio: 0.5",
        ] {
            assert!(told(args).starts_with("never fitted: "), "{args}: {}", told(args));
        }
        let without = CellFit::of(None, &[&config("exec_mode: random")]);
        assert!(without.to_string().contains("no table of this system"));
    }

    #[test]
    fn a_system_tells_the_error_where_it_was_fitted_and_where_not() {
        let told = fit_of("b-dram").unwrap().to_string();
        assert!(told.starts_with("modelled, fit +-") && told.contains("held out +-"), "{told}");
        assert!(told.contains("290 published cells"), "{told}");
    }
}
