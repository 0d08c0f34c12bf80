//! Any bytes are sent by an NBD client, cut anywhere: there is no panic, answers and requests do
//! not depend on the cuts, and every accepted request lies within the export.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../oracles/nbd.rs"]
mod oracle;

fuzz_target!(|data: &[u8]| oracle::check(data));
