//! The program `perdura`, run whole. One test program, so that it is linked once; ten thousand
//! clients have theirs, for they need the process's descriptors alone.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

mod bad_input;
mod bench;
mod check;
mod clients;
mod machine;
mod plan;
mod plan_battery;
mod plan_figures;
mod plan_record;
mod plan_trace;
mod process;
mod readme;
mod run;
mod running;
mod serve;
