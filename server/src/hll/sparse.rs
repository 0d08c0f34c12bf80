//! Registers as runs, as long as they take few bytes.
//!
//! ```text
//! 00nnnnnn            n + 1 registers are 0
//! 01nnnnnn nnnnnnnn   n + 1 registers are 0, the high bits of n first
//! 1vvvvvnn            n + 1 registers are v + 1
//! ```
//! Which of the possible spellings stands there after an addition is a part of the format: other
//! servers' values must have the same bytes.

use super::{Corrupt, HEAD, REGISTERS};

const SHORT_ZEROS_MAX: usize = 64;
const VALUE_MAX: u8 = 32;
const SAME_MAX: usize = 4;
/// Opcodes that are looked at for two that can become one, from the one before the change on.
const LOOKED_AT: usize = 5;

/// What became of a register that was to be raised.
pub(super) enum Raised {
    Yes,
    No,
    /// The registers would no longer fit, and are as they were.
    NoRoom,
}

/// A run of registers, as one opcode says it.
#[derive(Clone, Copy)]
struct Run {
    value: u8,
    len: usize,
    /// Bytes of the opcode.
    bytes: usize,
}

/// The opcode at this place of the bytes.
fn run_at(bytes: &[u8], at: usize) -> Option<Run> {
    let first = *bytes.get(at)?;
    match first >> 6 {
        0 => Some(Run { value: 0, len: usize::from(first) + 1, bytes: 1 }),
        1 => {
            let low = *bytes.get(at + 1)?;
            let len = usize::from(first & 0x3f) << 8 | usize::from(low);
            Some(Run { value: 0, len: len + 1, bytes: 2 })
        }
        _ => {
            let value = (first >> 2 & 0x1f) + 1;
            Some(Run { value, len: usize::from(first & 3) + 1, bytes: 1 })
        }
    }
}

/// Writes a run of zeros, if it is not empty.
pub(super) fn push_zeros(out: &mut Vec<u8>, len: usize) {
    match len {
        0 => {}
        1..=SHORT_ZEROS_MAX => out.push(len as u8 - 1),
        _ => out.extend([0x40 | ((len - 1) >> 8) as u8, (len - 1) as u8]),
    }
}

/// Writes a run of one value, if it is not empty.
fn push(out: &mut Vec<u8>, value: u8, len: usize) {
    match (value, len) {
        (_, 0) => {}
        (0, _) => push_zeros(out, len),
        _ => out.push(0x80 | (value - 1) << 2 | (len as u8 - 1)),
    }
}

/// Calls `f` with the first register, the number and the value of each run.
pub(super) fn each_run(bytes: &[u8], f: &mut dyn FnMut(usize, usize, u8)) -> Result<(), Corrupt> {
    let (mut at, mut first) = (HEAD, 0);
    while at < bytes.len() {
        let run = run_at(bytes, at).ok_or(Corrupt)?;
        if first + run.len > REGISTERS {
            return Err(Corrupt);
        }
        f(first, run.len, run.value);
        (at, first) = (at + run.bytes, first + run.len);
    }
    if first == REGISTERS { Ok(()) } else { Err(Corrupt) }
}

/// Sets a register to a value, if it is lower and the bytes stay that few.
pub(super) fn raise(
    bytes: &mut Vec<u8>,
    index: usize,
    value: u8,
    bytes_max: u64,
) -> Result<Raised, Corrupt> {
    if value > VALUE_MAX {
        return Ok(Raised::NoRoom);
    }
    let (mut at, mut first, mut before) = (HEAD, 0, None);
    let run = loop {
        let run = run_at(bytes, at).ok_or(Corrupt)?;
        if index < first + run.len {
            break run;
        }
        before = Some(at);
        (at, first) = (at + run.bytes, first + run.len);
    };
    if run.value >= value {
        return Ok(Raised::No);
    }
    let mut split = Vec::with_capacity(5);
    push(&mut split, run.value, index - first);
    push(&mut split, value, 1);
    push(&mut split, run.value, first + run.len - 1 - index);
    let longer = split.len() > run.bytes;
    if longer && (bytes.len() + split.len() - run.bytes) as u64 > bytes_max {
        return Ok(Raised::NoRoom);
    }
    bytes.splice(at..at + run.bytes, split);
    join(bytes, before.unwrap_or(HEAD))?;
    bytes[HEAD - 1] |= 0x80;
    Ok(Raised::Yes)
}

/// Makes one opcode of two with the same value, near where a register was raised.
fn join(bytes: &mut Vec<u8>, mut at: usize) -> Result<(), Corrupt> {
    for _ in 0..LOOKED_AT {
        if at >= bytes.len() {
            break;
        }
        let run = run_at(bytes, at).ok_or(Corrupt)?;
        let next = run_at(bytes, at + run.bytes).filter(|next| next.value == run.value);
        if let Some(next) = next.filter(|next| run.value > 0 && run.len + next.len <= SAME_MAX) {
            let mut joined = Vec::with_capacity(1);
            push(&mut joined, run.value, run.len + next.len);
            // The joined run is looked at again: the next may fit, too.
            bytes.splice(at..at + 2, joined);
            continue;
        }
        at += run.bytes;
    }
    Ok(())
}

/// The opcodes as text.
pub(super) fn describe(bytes: &[u8]) -> String {
    let (mut at, mut text) = (HEAD, Vec::new());
    while let Some(run) = run_at(bytes, at) {
        text.push(match (run.value, run.bytes) {
            (0, 1) => format!("z:{}", run.len),
            (0, _) => format!("Z:{}", run.len),
            (value, _) => format!("v:{value},{}", run.len),
        });
        at += run.bytes;
    }
    text.join(" ")
}
