//! YCSB's workloads against an embedded store or any server that speaks the Redis protocol, and
//! their reports.
//!
//! `grace` warns servers and cuts their power, and counts what they lose; `energy` models what
//! several modules draw when some of them sleep.
//!
//! `ycsb` runs a workload and `sweep` a series of budgets and sizes, both as `settings` say;
//! `drive` has the threads, `target` the stores under test, `workload` and `dist` the operations;
//! `tally`, `pairs` and `student` compute results, `report` has their form, and `machine` describes
//! the machine.

mod causes;
pub mod dist;
pub mod drive;
pub mod energy;
pub mod grace;
pub mod hash;
pub mod machine;
pub mod pairs;
pub mod report;
pub mod settings;
pub mod student;
pub mod sweep;
pub mod tally;
pub mod target;
pub mod workload;
pub mod ycsb;
