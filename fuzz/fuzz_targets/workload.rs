//! Any text is read as a workload file, and any change to a file of the stock suite: the result is
//! benchmarks that keep every rule, or an error with its line.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../oracles/workload.rs"]
mod oracle;

fuzz_target!(|data: &[u8]| oracle::check(data));
