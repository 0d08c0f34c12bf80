//! Any bytes are opened as an image: the result is a typed error or a region, never a panic, a hang
//! or memory without bound.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../oracles/image.rs"]
mod oracle;

fuzz_target!(|data: &[u8]| oracle::check(data));
