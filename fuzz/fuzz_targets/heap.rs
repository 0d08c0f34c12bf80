//! Any bytes are opened as a heap: the result is a typed error or a heap, never a panic, a hang or
//! memory without bound. A heap that the check calls sound opens.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../oracles/heap.rs"]
mod oracle;

fuzz_target!(|data: &[u8]| oracle::check(data));
