//! HP's storage research traces (SRT): big-endian records of 32-bit words, behind a header in text
//! that ends with a form feed. The header may be missing.
//!
//! The header has lines of `name = "value";`. Its `sectorsize` gives the bytes of a sector, the
//! unit of a record's place; 256 and 512 both occur. If the header does not give the size, the user
//! must; no size is assumed. The header's version is not used, because each record has its own, and
//! the two are known to differ.
//!
//! A record is `bytes of the record, version << 16 | kind, seconds, microseconds, start, stop,
//! bytes, sector, device, driver, cylinder, flags, info`, in version 4 also the queue's length, and
//! in suspect records one more word. Bit 0 of the flags means a read. A volume is named by its
//! device number. Records of texts and of the file system (kinds 3 and 5 to 10) are not accesses to
//! a disk and are ignored. Versions from 5 on have other words in these places and are refused.

use zerocopy::FromBytes;
use zerocopy::big_endian::U32;

use super::super::error::Damage;
use super::super::input::Input;
use super::super::sink::{Seen, Sink};
use super::super::source::Source;
use super::super::text::fields::{shown, whole};
use super::super::{Fault, Format, Op, Place, TraceError};
use super::Bytes;

const HEADER_END: u8 = 0x0c;
const HEADER_WORD: &[u8] = b"tracedate";
const SECTOR_WORD: &[u8] = b"sectorsize";

const VERSION_MAX: u32 = 4;
const KIND_SHORT: u32 = 1;
const KIND_SUSPECT: u32 = 4;
/// Kinds that are known. 0 says nothing, and 2 is a long access, whose words are not published.
const KINDS: [u32; 9] = [KIND_SHORT, 3, KIND_SUSPECT, 5, 6, 7, 8, 9, 10];
const FLAG_READ: u32 = 1;

/// The bytes of the words that every access has.
const WORDS_BYTES: usize = 13 * 4;
/// A record that says it is longer is damaged: texts of a trace are shorter.
const RECORD_BYTES_MAX: u32 = 4096;
/// The largest sector that a header may name.
const SECTOR_BYTES_MAX: u64 = 64 << 10;

#[derive(FromBytes)]
#[repr(C)]
struct Words {
    record_bytes: U32,
    id: U32,
    seconds: U32,
    micros: U32,
    _start: U32,
    _stop: U32,
    len_bytes: U32,
    sector: U32,
    device: U32,
    _driver: U32,
    _cylinder: U32,
    flags: U32,
    _info: U32,
}

const _: () = assert!(size_of::<Words>() == WORDS_BYTES);

/// The fields of a record's first two words.
#[derive(Clone, Copy)]
struct Start {
    record_bytes: u32,
    version: u32,
    kind: u32,
}

impl Start {
    fn of(bytes: &[u8]) -> Option<Start> {
        let (record_bytes, rest) = U32::read_from_prefix(bytes).ok()?;
        let (id, _) = U32::read_from_prefix(rest).ok()?;
        let id = id.get();
        Some(Start { record_bytes: record_bytes.get(), version: id >> 16, kind: id & 0xffff })
    }

    fn is_access(self) -> bool {
        matches!(self.kind, KIND_SHORT | KIND_SUSPECT)
    }

    /// The words that the format has for this version and kind, in bytes.
    fn access_bytes(self) -> u32 {
        let queue = u32::from(self.version == VERSION_MAX);
        let suspect = u32::from(self.kind == KIND_SUSPECT);
        WORDS_BYTES as u32 + 4 * (queue + suspect)
    }

    /// Refuses what the format does not have. Behind such a record no other can be found, for its
    /// length may be as wrong as the rest.
    fn check(self) -> Seen {
        let odd = |column, value: u32, expected| {
            Err(Box::new(Fault::Value { column, value: value.to_string(), expected }))
        };
        match self {
            Start { version, .. } if !(1..=VERSION_MAX).contains(&version) => {
                odd("the record's version", version, "1, 2, 3 or 4; convert the trace to a table")
            }
            Start { kind, .. } if !KINDS.contains(&kind) => {
                odd("the record's kind", kind, "1, 3, 4, or 5 to 10; others may be accesses")
            }
            _ if self.is_access() && self.record_bytes != self.access_bytes() => {
                let expected = "the bytes that an access of its version and kind has";
                odd("the record's length", self.record_bytes, expected)
            }
            Start { record_bytes, .. } if !(8..=RECORD_BYTES_MAX).contains(&record_bytes) => {
                odd("the record's length", record_bytes, "from 8 to 4096 bytes")
            }
            _ => Ok(()),
        }
    }
}

/// Whether a trace starts as HP's traces do.
pub(crate) fn looks(head: &[u8]) -> bool {
    header(head).is_some()
        || Start::of(head).is_some_and(|start| start.is_access() && start.check().is_ok())
}

/// The text before the records, where there is one.
fn header(head: &[u8]) -> Option<&[u8]> {
    let text = &head[..memchr::memchr(HEADER_END, head)?];
    let is_header = memchr::memmem::find(text, HEADER_WORD).is_some() && text.is_ascii();
    is_header.then_some(text)
}

/// Each value that a header gives to `sectorsize`, with the byte it stands at. Lines that begin
/// with `#` are remarks.
fn sector_sizes(header: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    memchr::memmem::find_iter(header, SECTOR_WORD).filter_map(|at| {
        let line = memchr::memrchr(b'\n', &header[..at]).map_or(0, |end| end + 1);
        let is_remark = header[line..at].trim_ascii_start().starts_with(b"#");
        let is_word = at == 0 || !header[at - 1].is_ascii_alphanumeric() && header[at - 1] != b'_';
        let rest = header[at + SECTOR_WORD.len()..].trim_ascii_start().strip_prefix(b"=")?;
        let end = rest.iter().position(|byte| b";\n,}".contains(byte)).unwrap_or(rest.len());
        let value = rest[..end].trim_ascii();
        let bare = value.strip_prefix(b"\"").unwrap_or(value);
        let bare = bare.strip_suffix(b"\"").unwrap_or(bare).trim_ascii();
        (is_word && !is_remark).then_some((at, bare))
    })
}

/// How many bytes a sector has, by the header; `None` where the header does not say.
fn sector_bytes(header: &[u8], file: &str) -> Result<Option<u64>, TraceError> {
    let mut found = None;
    for (at, value) in sector_sizes(header) {
        let size = whole(value).filter(|size| (1..=SECTOR_BYTES_MAX).contains(size));
        if size.is_none() || found.is_some() && found != size {
            let expected = match size {
                None => "a number of bytes from 1 to 65536",
                Some(_) => "the same for all disks of the file; give --sector-size",
            };
            let found = shown(value);
            let damage = Damage::Field { field: "sectorsize", found, expected };
            let place = Place::Byte(at as u64);
            return Err(TraceError::Damaged { file: file.to_owned(), place, damage });
        }
        found = size;
    }
    Ok(found)
}

pub(crate) struct Srt {
    bytes: Bytes,
    has_header: bool,
    sector_bytes: u64,
}

impl Srt {
    /// `given` is the size of a sector where the user says it; it counts before the header's.
    pub(crate) fn open(input: Input, given: Option<u64>, file: &str) -> Result<Srt, TraceError> {
        let header = header(input.head());
        let sector_bytes = match (given, header) {
            (Some(bytes), _) => Some(bytes),
            (None, Some(header)) => sector_bytes(header, file)?,
            (None, None) => None,
        };
        let missing = || TraceError::NoSectorSize { file: file.to_owned(), format: Format::Srt };
        let (has_header, sector_bytes) = (header.is_some(), sector_bytes.ok_or_else(missing)?);
        Ok(Srt { bytes: Bytes::new(input), has_header, sector_bytes })
    }

    fn access(&self, words: &Words, sink: &mut Sink) -> Seen {
        let seconds_ns = u64::from(words.seconds.get()) * 1_000_000_000;
        let time_ns = seconds_ns + u64::from(words.micros.get()) * 1_000;
        let op = if words.flags.get() & FLAG_READ != 0 { Op::Read } else { Op::Write };
        let volume = sink.volumes.named(format!("{:#010x}", words.device.get()).as_bytes())?;
        let offset_bytes = u64::from(words.sector.get()) * self.sector_bytes;
        sink.access(time_ns, volume, op, offset_bytes, words.len_bytes.get().into())
    }
}

impl Source for Srt {
    fn fill(&mut self, sink: &mut Sink) -> Result<bool, TraceError> {
        if self.has_header {
            self.bytes.take_through(HEADER_END)?;
            self.has_header = false;
        }
        while !sink.is_full() {
            let place = Place::Byte(self.bytes.at_bytes());
            let head = self.bytes.look(8)?;
            let found = head.len();
            if found == 0 {
                return Ok(false);
            }
            let cut = || Box::new(Fault::Cut { found, expected: 8 });
            let start = Start::of(head).ok_or_else(cut);
            let start = match start.and_then(|start| start.check().map(|()| start)) {
                Ok(start) => start,
                Err(fault) => {
                    sink.bad(place, fault)?;
                    return Ok(false);
                }
            };
            let record_bytes = start.record_bytes as usize;
            let record = self.bytes.look(record_bytes)?;
            let found = record.len();
            let seen = match Words::read_from_prefix(record) {
                _ if found < record_bytes => {
                    Err(Box::new(Fault::Cut { found, expected: record_bytes }))
                }
                Ok((words, _)) if start.is_access() => self.access(&words, sink),
                _ => {
                    sink.ignored += 1;
                    Ok(())
                }
            };
            self.bytes.take(found);
            if let Err(fault) = seen {
                sink.bad(place, fault)?;
            }
        }
        Ok(true)
    }
}
