//! Measuring: YCSB's workloads against an embedded store or any Redis-protocol server; reports.
//!
//! `ycsb` is a run, `sweep` runs over budgets and sizes, `drive` its threads, `target` what is
//! measured, `workload` and `dist` what is asked of it, `tally`, `pairs` and `student` what comes
//! of it, `report` how it is told, `memory` a run on bare memory, `media` one on modelled media and
//! the paths to them, `heap` one on allocators, `machine` where it was.

pub mod access;
pub mod caches;
pub mod causes;
pub mod dist;
pub mod drive;
pub mod hash;
pub mod haste;
pub mod heap;
pub mod machine;
pub mod media;
pub mod memory;
pub mod pairs;
pub mod plan_check;
pub mod report;
pub mod student;
pub mod sweep;
pub mod tally;
pub mod target;
pub mod workload;
pub mod ycsb;
