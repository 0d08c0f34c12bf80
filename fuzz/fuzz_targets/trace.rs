//! Any bytes are read as a trace of any format, found or given: the result is an error, or records
//! that keep the promises of readers. The same holds for a generated trace with changed bytes.
#![no_main]

use std::sync::Once;

use libfuzzer_sys::fuzz_target;

#[path = "../oracles/trace.rs"]
mod oracle;

/// Removes the fuzzer's panic hook once: the hook ends the process at any panic, but readers catch
/// the panics of the library for Parquet. A panic that leaves the target still ends the process.
static CAUGHT: Once = Once::new();

fuzz_target!(|data: &[u8]| {
    CAUGHT.call_once(|| drop(std::panic::take_hook()));
    oracle::check(data)
});
