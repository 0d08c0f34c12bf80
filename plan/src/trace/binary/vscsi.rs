//! VMware's virtual SCSI traces: 32 B a command in version 1, 40 B in version 2, little-endian.
//!
//! The upper byte of each record's version field says which it is. Blocks are of 512 B, lengths in
//! bytes, times in microseconds. Reads and writes by SCSI's operation codes are accesses; other
//! commands (inquiries, synchronize cache, unmap) are ignored.

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32, U64};

use super::super::input::Input;
use super::super::reader::Source;
use super::super::sink::{Seen, Sink};
use super::super::text::SECTOR_BYTES;
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

/// What both versions say.
struct Command {
    code: u16,
    version: u16,
    len_bytes: u64,
    block: u64,
    time: u64,
}

/// Records looked at to tell the versions apart.
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

/// Whether all of the first records are of one version.
pub(crate) fn looks(head: &[u8]) -> bool {
    [Version::One, Version::Two].into_iter().any(|version| {
        let (fitting, all) = fitting(head, version);
        all > 0 && fitting == all
    })
}

/// How many of the first records have that version, and how many there are.
fn fitting(head: &[u8], version: Version) -> (usize, usize) {
    let records = head.chunks_exact(version.record_bytes()).take(SAMPLE);
    let commands = records.filter_map(|record| version.command(record));
    commands.fold((0, 0), |(fitting, all), command| {
        let fits = command.version == version.number() && command.code <= 0xff;
        (fitting + usize::from(fits), all + 1)
    })
}

/// What a SCSI operation code does to data.
fn op(code: u16) -> Option<Op> {
    match code {
        0x08 | 0x28 | 0x88 | 0xa8 => Some(Op::Read),
        // WRITE (6, 10, 12, 16), and WRITE AND VERIFY (10, 12, 16).
        0x0a | 0x2a | 0x8a | 0xaa | 0x2e | 0x8e | 0xae => Some(Op::Write),
        _ => None,
    }
}

pub(crate) struct Vscsi {
    bytes: Bytes,
    version: Version,
    unit: TimeUnit,
    volume: u32,
}

impl Vscsi {
    pub(crate) fn new(input: Input, unit: TimeUnit, volume: u32) -> Vscsi {
        let fits = |version| fitting(input.head(), version).0;
        let version =
            if fits(Version::Two) > fits(Version::One) { Version::Two } else { Version::One };
        Vscsi { bytes: Bytes::new(input), version, unit, volume }
    }

    fn record(&self, command: &Command, sink: &mut Sink) -> Seen {
        if command.version != self.version.number() {
            let expected = match self.version {
                Version::One => "1, as that of the records before it",
                Version::Two => "2, as that of the records before it",
            };
            let value = command.version.to_string();
            return Err(Box::new(Fault::Value { column: "version", value, expected }));
        }
        let Some(op) = op(command.code) else {
            sink.ignored += 1;
            return Ok(());
        };
        let too_large = |column, value: u64, unit| {
            Box::new(Fault::TooLarge { column, value: value.to_string(), unit })
        };
        let time_ns = command
            .time
            .checked_mul(self.unit.ns())
            .ok_or_else(|| too_large("time", command.time, "ns"))?;
        let offset_bytes = command.block.checked_mul(SECTOR_BYTES);
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
