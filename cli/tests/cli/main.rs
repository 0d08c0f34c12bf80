//! Tests that run the program `perdura`. They are one test program, which is linked once. The test
//! with ten thousand clients is another one, because it needs all descriptors of its process.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

mod backup;
mod backup_writers;
mod bad_input;
mod battery;
mod bench;
mod check;
mod clients;
mod cores;
mod devices;
mod docs;
mod embedded;
mod encrypted;
mod export;
mod formats;
mod guard;
mod guarding;
mod import;
mod logs;
mod machine;
mod mapped;
mod notices;
mod packaging;
mod pages;
mod plan;
mod plan_battery;
mod plan_figures;
mod plan_kubernetes;
mod plan_record;
mod plan_trace;
mod process;
mod readme;
mod real_redis;
#[path = "../../../region/tests/region/support/seccomp.rs"]
mod refusing;
mod restart;
mod run;
mod running;
mod script;
mod sealed;
mod seccomp;
mod serve;
mod tenants;
mod ups;
mod warning;
mod watching;
mod watching_page;
