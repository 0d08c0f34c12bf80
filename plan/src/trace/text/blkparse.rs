//! The output of `blkparse`: `major,minor cpu sequence seconds pid action flags sector + sectors
//! [process]`.
//!
//! Each access has several lines, one for each step. The lines of one step are read (queued, unless
//! another is chosen); the other steps are ignored, and so are flushes, discards, messages, and the
//! summary at the end. A step or a flag that blkparse does not print is an error. Sectors have 512
//! B, whatever the device has, because the kernel counts so. A volume is a device, `major,minor`.

use super::super::sink::{Seen, Sink};
use super::super::{Fault, Op, TimeUnit};
use super::fields::{columns, number, scaled, shown, time_ns, whole, words};
use super::{Parse, SECTOR_BYTES};

/// The first words of the lines in the summary that blkparse prints at the end.
const SUMMARY: [&[u8]; 13] = [
    b"CPU",
    b"Total",
    b"Throughput",
    b"Events",
    b"Skips",
    b"Input file",
    b"Reads",
    b"Read",
    b"IO",
    b"Allocation",
    b"Writes",
    b"PC",
    b"Merges",
];

pub(crate) struct Blkparse {
    pub(crate) action: char,
    pub(crate) unit: TimeUnit,
}

/// Whether a line looks like one that blkparse prints.
pub(crate) fn looks(line: &[u8]) -> bool {
    let (count, [device, cpu, sequence, time, pid, _, flags]) = words::<7>(line);
    let are_numbers = [cpu, sequence, pid].into_iter().all(|field| whole(field).is_some());
    count >= 7
        && is_device(device)
        && are_numbers
        && are_flags(flags)
        && time_ns("time", time, TimeUnit::Seconds).is_ok()
}

/// Whether blkparse prints this as a step of an access.
fn is_step(action: &[u8]) -> bool {
    matches!(action, [one] if b"QMFGSRDCPUTXBAIm".contains(one)) || action == b"UT"
}

/// Whether the kernel writes the kind of an access so. Behind `Z` stands what is done to a zone.
fn are_flags(flags: &[u8]) -> bool {
    match flags {
        [b'Z', rest @ ..] => !rest.is_empty() && rest.iter().all(u8::is_ascii_uppercase),
        _ => !flags.is_empty() && flags.iter().all(|flag| b"RWDFNASMBEU".contains(flag)),
    }
}

fn is_device(field: &[u8]) -> bool {
    memchr::memchr(b',', field).is_some_and(|comma| {
        [&field[..comma], &field[comma + 1..]].into_iter().all(|number| whole(number).is_some())
    })
}

impl Parse for Blkparse {
    fn line(&mut self, line: &[u8], sink: &mut Sink) -> Seen {
        let (count, [device, _, _, time, _, action, flags, sector, plus, sectors]) =
            words::<10>(line);
        if !is_device(device) {
            if SUMMARY.iter().any(|start| line.trim_ascii().starts_with(start)) {
                sink.ignored += 1;
                return Ok(());
            }
            let value = shown(device);
            return Err(Box::new(Fault::Value {
                column: "device",
                value,
                expected: "major,minor",
            }));
        }
        if count < 7 {
            return Err(columns(
                "7 or more: device cpu sequence time pid action flags",
                count,
                line,
            ));
        }
        let time_ns = time_ns("time", time, self.unit)?;
        if !is_step(action) {
            let expected = "a step that blkparse prints (Q, G, I, D, C and others)";
            let value = shown(action);
            return Err(Box::new(Fault::Value { column: "action", value, expected }));
        }
        if action == b"m" {
            sink.ignored += 1;
            return Ok(());
        }
        if !are_flags(flags) {
            let expected = "flags that blkparse prints (R, W, D, F, N, A, S, M, B, E, U, Z)";
            let value = shown(flags);
            return Err(Box::new(Fault::Value { column: "flags", value, expected }));
        }
        let op = match flags {
            _ if flags.contains(&b'D') => None,
            // Of zones only an append writes.
            [b'Z', rest @ ..] => rest.starts_with(b"A").then_some(Op::Write),
            _ if flags.contains(&b'W') => Some(Op::Write),
            _ if flags.contains(&b'R') => Some(Op::Read),
            _ => None,
        };
        let is_chosen = action.len() == 1 && char::from(action[0]) == self.action;
        let Some(op) = op.filter(|_| is_chosen && plus == b"+") else {
            sink.ignored += 1;
            return Ok(());
        };
        let offset_bytes =
            scaled("sector", sector, number("sector", sector)?, SECTOR_BYTES, "bytes")?;
        let len_bytes =
            scaled("sectors", sectors, number("sectors", sectors)?, SECTOR_BYTES, "bytes")?;
        if len_bytes == 0 && flags.contains(&b'F') {
            // A flush with nothing to write.
            sink.ignored += 1;
            return Ok(());
        }
        let volume = sink.volumes.named(device)?;
        sink.access(time_ns, volume, op, offset_bytes, len_bytes)
    }
}
