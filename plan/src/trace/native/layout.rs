//! The bytes of a `ptrace` file, versions 1 and 2; docs/format.md draws them.
//!
//! A file has a header and then blocks: names of volumes (before the first record of each),
//! records, and a last block with the number of records, from which a truncated recording is known.
//! All numbers are little-endian, and every block has a checksum. Version 2 also has blocks about
//! the looks by which the recording was made; a trace without looks stays one of version 1.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::super::{Looks, Op, Record};

/// The first byte is no text, the last is an end of line: a copy that was changed as text is is
/// noticed.
pub(crate) const MAGIC: [u8; 8] = *b"\x93ptrace\n";
pub(crate) const VERSION: u32 = 1;
/// The version of a recording, which programs that know version 1 only refuse.
pub(crate) const VERSION_LOOKS: u32 = 2;

pub(crate) const KIND_VOLUMES: u32 = 1;
pub(crate) const KIND_RECORDS: u32 = 2;
pub(crate) const KIND_END: u32 = 3;
pub(crate) const KIND_LOOKS: u32 = 4;

/// The most records in a block.
pub(crate) const BLOCK_RECORDS: usize = 8192;
/// The most bytes in a block's payload.
pub(crate) const PAYLOAD_BYTES_MAX: usize = BLOCK_RECORDS * size_of::<RawRecord>();
/// The most bytes in a volume's name.
pub(crate) const NAME_BYTES_MAX: usize = 4096;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 8],
    pub(crate) version: U32,
    pub(crate) record_bytes: U32,
    pub(crate) zero: U64,
    /// XXH3 of the header's bytes before this field.
    pub(crate) checksum: U64,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct BlockHeader {
    pub(crate) kind: U32,
    /// The number of names or records in the payload.
    pub(crate) items: U32,
    pub(crate) payload_bytes: U32,
    pub(crate) zero: U32,
    /// XXH3 of the payload, with XXH3 of this header's bytes before this field as its seed.
    pub(crate) checksum: U64,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawRecord {
    pub(crate) time_ns: U64,
    pub(crate) offset_bytes: U64,
    pub(crate) len_bytes: U64,
    pub(crate) volume: U32,
    /// 0 for a read and 1 for a write; no other value is valid.
    pub(crate) op: U32,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct RawLooks {
    pub(crate) every_ns: U64,
    pub(crate) longest_ns: U64,
}

const _: () = assert!(size_of::<Header>() == 32);
const _: () = assert!(size_of::<BlockHeader>() == 24);
const _: () = assert!(size_of::<RawRecord>() == 32);
const _: () = assert!(size_of::<RawLooks>() == 16);

impl Header {
    pub(crate) fn new(version: u32) -> Header {
        let mut header = Header {
            magic: MAGIC,
            version: U32::new(version),
            record_bytes: U32::new(size_of::<RawRecord>() as u32),
            zero: U64::ZERO,
            checksum: U64::ZERO,
        };
        header.checksum = U64::new(header.sum());
        header
    }

    pub(crate) fn sum(&self) -> u64 {
        xxh3_64(&self.as_bytes()[..size_of::<Header>() - 8])
    }
}

impl BlockHeader {
    pub(crate) fn new(kind: u32, items: usize, payload: &[u8]) -> BlockHeader {
        let mut header = BlockHeader {
            kind: U32::new(kind),
            items: U32::new(items as u32),
            payload_bytes: U32::new(payload.len() as u32),
            zero: U32::ZERO,
            checksum: U64::ZERO,
        };
        header.checksum = U64::new(header.sum(payload));
        header
    }

    pub(crate) fn sum(&self, payload: &[u8]) -> u64 {
        xxh3_64_with_seed(payload, xxh3_64(&self.as_bytes()[..size_of::<BlockHeader>() - 8]))
    }
}

impl From<Looks> for RawLooks {
    fn from(looks: Looks) -> RawLooks {
        RawLooks { every_ns: U64::new(looks.every_ns), longest_ns: U64::new(looks.longest_ns) }
    }
}

impl From<RawLooks> for Looks {
    fn from(raw: RawLooks) -> Looks {
        Looks { every_ns: raw.every_ns.get(), longest_ns: raw.longest_ns.get() }
    }
}

impl From<&Record> for RawRecord {
    fn from(record: &Record) -> RawRecord {
        RawRecord {
            time_ns: U64::new(record.time_ns),
            offset_bytes: U64::new(record.offset_bytes),
            len_bytes: U64::new(record.len_bytes),
            volume: U32::new(record.volume),
            op: U32::new(match record.op {
                Op::Read => 0,
                Op::Write => 1,
            }),
        }
    }
}
