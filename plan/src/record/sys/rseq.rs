//! Restartable sequences (`rseq`), with which allocators keep a list for each processor.
//!
//! A thread that is interrupted in such a sequence may not continue in its middle. On the way back
//! to user mode the kernel looks at the thread's place and sends it to the abort handler of the
//! sequence. While the recorder has the thread make a call elsewhere, the kernel finds it outside
//! its sequence and forgets the sequence. So the recorder sends the thread to its abort handler
//! itself.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::ptrace::{RseqPlace, Tracee};

/// A restartable sequence: `struct rseq_cs`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes)]
struct Sequence {
    version: u32,
    flags: u32,
    start: u64,
    len: u64,
    abort: u64,
}

const _: () = assert!(size_of::<RseqPlace>() == 24 && size_of::<Sequence>() == 32);

/// The offset in `struct rseq` of the address of the sequence that the thread is in, or was.
const SEQUENCE_AT: u64 = 8;

impl Sequence {
    fn has(&self, instruction: u64) -> bool {
        instruction.wrapping_sub(self.start) < self.len
    }
}

/// Where a thread that stands still at an instruction has to go on: there, or at the abort handler
/// of its sequence.
pub fn goes_on_at(tracee: &Tracee, memory: &File, instruction: u64) -> Result<u64, Errno> {
    let place = match tracee.rseq_place() {
        Ok(place) if place.pointer != 0 => place,
        // The kernel has none of this, or knows no such question: before Linux 5.13.
        Ok(_) | Err(Errno::IO | Errno::INVAL) => return Ok(instruction),
        Err(errno) => return Err(errno),
    };
    let mut address = 0_u64;
    read(memory, address.as_mut_bytes(), place.pointer + SEQUENCE_AT)?;
    if address == 0 {
        return Ok(instruction);
    }
    let mut sequence = Sequence::default();
    read(memory, sequence.as_mut_bytes(), address)?;
    Ok(if sequence.has(instruction) { sequence.abort } else { instruction })
}

fn read(memory: &File, into: &mut [u8], at: u64) -> Result<(), Errno> {
    let read = memory.read_exact_at(into, at);
    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_has_its_instructions_and_not_the_one_behind() {
        let sequence = Sequence { start: 0x1000, len: 0x10, abort: 0x2000, ..Sequence::default() };
        let has = |instruction| sequence.has(instruction);
        assert!(has(0x1000) && has(0x100f) && !has(0x1010) && !has(0xfff) && !has(0x2000));
    }
}
