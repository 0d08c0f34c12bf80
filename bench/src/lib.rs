//! Measuring: YCSB's workloads against an embedded store or any Redis-protocol server; reports.
//!
//! `ycsb` is a run, `sweep` runs over budgets and sizes, `drive` its threads, `target` what is
//! measured, `workload` and `dist` what is asked of it, `tally`, `pairs` and `student` what comes
//! of it, `report` how it is told, `machine` where it was.

pub mod causes;
pub mod dist;
pub mod drive;
pub mod hash;
pub mod machine;
pub mod pairs;
pub mod report;
pub mod student;
pub mod sweep;
pub mod tally;
pub mod target;
pub mod workload;
pub mod ycsb;
