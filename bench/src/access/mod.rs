//! Memory access measured by workload files in the published format of PerMA-Bench.

pub mod addresses;
pub mod kernel;
pub mod run;
mod sys;
pub mod workload;
