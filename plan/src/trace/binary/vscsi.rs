//! VMware's virtual SCSI traces: 32 B a command in version 1, 40 B in version 2, little-endian.
//!
//! The upper byte of each record's version field names the version, and all records must have the
//! same. Blocks have 512 B unless the user says otherwise, lengths are in bytes, times in
//! microseconds. Commands with SCSI's codes for reading and writing are accesses. Commands that
//! move no data of the disk (inquiries, synchronize cache, unmap) are ignored, and so is WRITE
//! SAME, whose length is the length of its pattern. Any other code is an error, because it may be
//! an access.

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32, U64};

use super::super::input::Input;
use super::super::sink::{Seen, Sink};
use super::super::source::Source;
use super::super::{Fault, Op, Place, TimeUnit, TraceError};
use super::Bytes;

#[derive(FromBytes)]
#[repr(C)]
struct One {
    _serial: U32,
    len_bytes: U32,
    _segments: U32,
    command: U16,
    version: U16,
    block: U64,
    time: U64,
}

#[derive(FromBytes)]
#[repr(C)]
struct Two {
    command: U16,
    version: U16,
    _serial: U32,
    len_bytes: U32,
    _segments: U32,
    block: U64,
    time: U64,
    _response: U64,
}

const _: () = assert!(size_of::<One>() == 32);
const _: () = assert!(size_of::<Two>() == 40);

/// The fields that records of both versions have.
struct Command {
    code: u16,
    version: u16,
    len_bytes: u64,
    block: u64,
    time: u64,
}

/// How many records are looked at to tell the versions apart.
const SAMPLE: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

impl Version {
    const fn record_bytes(self) -> usize {
        match self {
            Version::One => size_of::<One>(),
            Version::Two => size_of::<Two>(),
        }
    }

    const fn number(self) -> u16 {
        match self {
            Version::One => 1,
            Version::Two => 2,
        }
    }

    fn command(self, record: &[u8]) -> Option<Command> {
        Some(match self {
            Version::One => {
                let one = One::read_from_bytes(record).ok()?;
                Command {
                    code: one.command.get(),
                    version: one.version.get() >> 8,
                    len_bytes: one.len_bytes.get().into(),
                    block: one.block.get(),
                    time: one.time.get(),
                }
            }
            Version::Two => {
                let two = Two::read_from_bytes(record).ok()?;
                Command {
                    code: two.command.get(),
                    version: two.version.get() >> 8,
                    len_bytes: two.len_bytes.get().into(),
                    block: two.block.get(),
                    time: two.time.get(),
                }
            }
        })
    }
}

/// Whether all of the first records have one of the two versions.
pub(crate) fn looks(head: &[u8]) -> bool {
    [Version::One, Version::Two].into_iter().any(|version| {
        let (fitting, all) = fitting(head, version);
        all > 0 && fitting == all
    })
}

/// How many of the first records have that version, and how many records that is of.
fn fitting(head: &[u8], version: Version) -> (usize, usize) {
    let records = head.chunks_exact(version.record_bytes()).take(SAMPLE);
    let commands = records.filter_map(|record| version.command(record));
    commands.fold((0, 0), |(fitting, all), command| {
        let fits = command.version == version.number() && command.code <= 0xff;
        (fitting + usize::from(fits), all + 1)
    })
}

/// Whether a SCSI command reads or writes data, by its operation code.
fn op(code: u16) -> Option<Op> {
    match code {
        0x08 | 0x28 | 0x88 | 0xa8 => Some(Op::Read),
        // WRITE (6, 10, 12, 16), and WRITE AND VERIFY (10, 12, 16).
        // COMPARE AND WRITE too, which VMware's locks are made of.
        0x0a | 0x2a | 0x8a | 0xaa | 0x2e | 0x8e | 0xae | 0x89 => Some(Op::Write),
        _ => None,
    }
}

/// SCSI's commands that are no access to data, by their operation codes (SPC-4, SBC-3).
fn moves_nothing(code: u16) -> bool {
    matches!(
        code,
        // TEST UNIT READY to START STOP UNIT, without the reads and writes of 6 bytes.
        0x00 | 0x01 | 0x03 | 0x04 | 0x07 | 0x0b | 0x12 | 0x15..=0x17 | 0x1a..=0x1e
        // READ CAPACITY, SEEK, VERIFY, PRE-FETCH, SYNCHRONIZE CACHE, READ DEFECT DATA, buffers.
        | 0x25 | 0x2b | 0x2f | 0x34 | 0x35 | 0x37 | 0x3b | 0x3c
        // WRITE SAME, UNMAP, LOG SELECT to PERSISTENT RESERVE OUT.
        | 0x41 | 0x42 | 0x4c | 0x4d | 0x55..=0x57 | 0x5a | 0x5e | 0x5f
        // EXTENDED COPY, ACCESS CONTROL, the 16-byte forms, REPORT LUNS and its family.
        | 0x83 | 0x84 | 0x86 | 0x87 | 0x8c | 0x8d | 0x8f..=0x91 | 0x93 | 0x9b | 0x9e | 0x9f
        | 0xa0 | 0xa2..=0xa4 | 0xaf | 0xb5 | 0xb7
    )
}

pub(crate) struct Vscsi {
    bytes: Bytes,
    version: Version,
    unit: TimeUnit,
    block_bytes: u64,
    volume: u32,
}

impl Vscsi {
    pub(crate) fn new(input: Input, unit: TimeUnit, block_bytes: u64, volume: u32) -> Vscsi {
        let fits = |version| fitting(input.head(), version).0;
        let version =
            if fits(Version::Two) > fits(Version::One) { Version::Two } else { Version::One };
        Vscsi { bytes: Bytes::new(input), version, unit, block_bytes, volume }
    }

    fn record(&self, command: &Command, sink: &mut Sink) -> Seen {
        if command.version != self.version.number() {
            let expected = match self.version {
                Version::One => "1, as most of the first records say (1 and 2 are known)",
                Version::Two => "2, as most of the first records say (1 and 2 are known)",
            };
            let value = command.version.to_string();
            return Err(Box::new(Fault::Value { column: "version", value, expected }));
        }
        let Some(op) = op(command.code) else {
            if moves_nothing(command.code) {
                sink.ignored += 1;
                return Ok(());
            }
            let value = format!("{:#04x}", command.code);
            let expected = "an operation code of SCSI that is known here";
            return Err(Box::new(Fault::Value { column: "the command", value, expected }));
        };
        let too_large = |column, value: u64, unit| {
            Box::new(Fault::TooLarge { column, value: value.to_string(), unit })
        };
        let time_ns = command
            .time
            .checked_mul(self.unit.ns())
            .ok_or_else(|| too_large("time", command.time, "ns"))?;
        let offset_bytes = command.block.checked_mul(self.block_bytes);
        let offset_bytes =
            offset_bytes.ok_or_else(|| too_large("block", command.block, "bytes"))?;
        sink.access(time_ns, self.volume, op, offset_bytes, command.len_bytes)
    }
}

impl Source for Vscsi {
    fn fill(&mut self, sink: &mut Sink) -> Result<bool, TraceError> {
        let record_bytes = self.version.record_bytes();
        while !sink.is_full() {
            let place = Place::Byte(self.bytes.at_bytes());
            let record = self.bytes.look(record_bytes)?;
            let found = record.len();
            let seen = match self.version.command(record) {
                _ if found == 0 => return Ok(false),
                Some(command) => self.record(&command, sink),
                None => Err(Box::new(Fault::Cut { found, expected: record_bytes })),
            };
            self.bytes.take(found);
            if let Err(fault) = seen {
                sink.bad(place, fault)?;
            }
        }
        Ok(true)
    }
}
