//! Any bytes are read as a dump and as a payload: there is no panic, memory is bounded, and what
//! can be read comes back from what is written of it.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../oracles/rdb.rs"]
mod oracle;

fuzz_target!(|data: &[u8]| oracle::check(data));
