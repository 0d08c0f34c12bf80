//! HP's storage research traces (SRT): big-endian records of 32-bit words, behind a header in text
//! that ends with a form feed (or without one).
//!
//! A record is `bytes of the record, version << 16 | kind, seconds, microseconds, start, stop,
//! bytes, block, device, driver, cylinder, flags, info`, in version 4 the queue's length, and of
//! suspect records a word more. Blocks are of 512 B; bit 0 of the flags is a read. A volume is
//! named by its device number. Kinds other than plain and suspect accesses are ignored.

use zerocopy::FromBytes;
use zerocopy::big_endian::U32;

use super::super::input::Input;
use super::super::reader::Source;
use super::super::sink::{Seen, Sink};
use super::super::text::SECTOR_BYTES;
use super::super::{Fault, Op, Place, TraceError};
use super::Bytes;

const HEADER_END: u8 = 0x0c;
const HEADER_WORD: &[u8] = b"tracedate";

const KIND_SHORT: u32 = 1;
const KIND_SUSPECT: u32 = 4;
const KIND_MAX: u32 = 10;
const FLAG_READ: u32 = 1;

/// Bytes of the words that every access has.
const WORDS_BYTES: usize = 13 * 4;
/// A longer record is none: texts and lists of a trace are shorter.
const RECORD_BYTES_MAX: u32 = 4096;

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
    block: U32,
    device: U32,
    _driver: U32,
    _cylinder: U32,
    flags: U32,
    _info: U32,
}

const _: () = assert!(size_of::<Words>() == WORDS_BYTES);

/// The length and the kind of a record that starts so, if it can be one.
fn start(bytes: &[u8]) -> Option<(u32, u32)> {
    let (record_bytes, rest) = U32::read_from_prefix(bytes).ok()?;
    let (id, _) = U32::read_from_prefix(rest).ok()?;
    let (record_bytes, id) = (record_bytes.get(), id.get());
    let (version, kind) = (id >> 16, id & 0xffff);
    let is_access = kind == KIND_SHORT || kind == KIND_SUSPECT;
    let least = if is_access { WORDS_BYTES as u32 } else { 8 };
    let is_one = (1..=4).contains(&version)
        && kind <= KIND_MAX
        && (least..=RECORD_BYTES_MAX).contains(&record_bytes);
    is_one.then_some((record_bytes, kind))
}

/// Whether a trace starts as one of these does.
pub(crate) fn looks(head: &[u8]) -> bool {
    has_header(head)
        || start(head).is_some_and(|(_, kind)| kind == KIND_SHORT || kind == KIND_SUSPECT)
}

fn has_header(head: &[u8]) -> bool {
    let text = match memchr::memchr(HEADER_END, head) {
        Some(end) => &head[..end],
        None => return false,
    };
    memchr::memmem::find(text, HEADER_WORD).is_some() && text.is_ascii()
}

pub(crate) struct Srt {
    bytes: Bytes,
    has_header: bool,
}

impl Srt {
    pub(crate) fn new(input: Input) -> Srt {
        let has_header = has_header(input.head());
        Srt { bytes: Bytes::new(input), has_header }
    }
}

fn access(words: &Words, sink: &mut Sink) -> Seen {
    let time_ns =
        u64::from(words.seconds.get()) * 1_000_000_000 + u64::from(words.micros.get()) * 1_000;
    let op = if words.flags.get() & FLAG_READ != 0 { Op::Read } else { Op::Write };
    let volume = sink.volumes.named(format!("{:#010x}", words.device.get()).as_bytes())?;
    let offset_bytes = u64::from(words.block.get()) * SECTOR_BYTES;
    sink.access(time_ns, volume, op, offset_bytes, words.len_bytes.get().into())
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
            let Some((record_bytes, kind)) = start(head) else {
                let fault = match found {
                    8 => Fault::NoRecord,
                    _ => Fault::Cut { found, expected: 8 },
                };
                // Where one record's length is not known no other is found behind it.
                sink.bad(place, Box::new(fault))?;
                return Ok(false);
            };
            let record = self.bytes.look(record_bytes as usize)?;
            let found = record.len();
            let seen = match Words::read_from_prefix(record) {
                _ if found < record_bytes as usize => {
                    Err(Box::new(Fault::Cut { found, expected: record_bytes as usize }))
                }
                Ok((words, _)) if kind == KIND_SHORT || kind == KIND_SUSPECT => {
                    access(&words, sink)
                }
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
