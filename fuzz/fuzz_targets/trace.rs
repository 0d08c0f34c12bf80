//! Any bytes as a trace of any format, found or given: records that keep what readers promise, or
//! an error; and bytes changed in a trace that was made up.
#![no_main]

use std::sync::Once;

use libfuzzer_sys::fuzz_target;
use perdura_plan::trace::{Format, ReadOptions, generate};

/// The fuzzer ends at any panic, caught or not. Those of the library for Parquet are caught, and
/// errors; one that leaves the target still ends it.
static CAUGHT: Once = Once::new();

// The first byte chooses the format, the second how many bad records are passed over, the third a
// seed: with one, what follows is changes to a made-up trace, three bytes of place and one of
// value.
fuzz_target!(|data: &[u8]| {
    CAUGHT.call_once(|| drop(std::panic::take_hook()));
    let [choice, skip_bad, seed, rest @ ..] = data else { return };
    let format = Format::ALL.get(usize::from(*choice)).copied();
    let made = format.filter(|_| *seed > 0).map(|format| {
        let mut trace = generate::render(format, &generate::records(format, u64::from(*seed), 16));
        for change in rest.chunks_exact(4) {
            let at = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize % trace.len();
            trace[at] = change[3];
        }
        trace
    });
    let options = ReadOptions {
        format,
        time_unit: format.and_then(generate::time_unit),
        skip_bad: u64::from(*skip_bad),
        reorder_ns: u64::from(*skip_bad % 3) * 1_000,
        ..ReadOptions::default()
    };
    let _ = generate::read_soundly(made.as_deref().unwrap_or(rest), &options);
});
