//! Any bytes are read as a trace of any format, found or given: the result is an error, or records
//! that keep the promises of readers. The same holds for a generated trace with changed bytes.

use perdura_plan::trace::{Format, ReadOptions, generate};

/// The first byte chooses the format, the second the number of bad records that are passed over,
/// the third a seed. With a seed the rest is a list of changes to a generated trace, each with
/// three bytes of place and one of value.
pub fn check(data: &[u8]) {
    let [choice, skip_bad, seed, rest @ ..] = data else { return };
    let format = Format::ALL.get(usize::from(*choice)).copied();
    let made = format.filter(|_| *seed > 0).map(|format| {
        let mut trace = generate::render(format, &generate::records(format, u64::from(*seed), 16));
        for change in rest.chunks_exact(4) {
            let place = u32::from_le_bytes([change[0], change[1], change[2], 0]);
            let at = place as usize % trace.len();
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
}
