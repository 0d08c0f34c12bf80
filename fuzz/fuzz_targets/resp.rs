//! Any bytes are received, cut anywhere: there is no panic, the commands do not depend on the cuts,
//! and memory is bounded by the bytes received.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../oracles/resp.rs"]
mod oracle;

fuzz_target!(|data: &[u8]| oracle::check(data));
