//! Memory access measured by workload files in the published format of PerMA-Bench.

pub mod addresses;
mod bounds;
mod chunks;
pub mod compare;
pub mod economy;
pub mod fit;
pub mod insights;
pub mod kernel;
pub mod nodes;
pub mod page;
pub mod place;
pub mod reference;
pub mod replay;
pub mod result;
pub mod run;
pub mod simulate;
pub mod stock;
pub mod suite;
mod sys;
pub mod workload;
mod zipf;
