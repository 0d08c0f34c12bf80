//! Bytes on a device: a block that says which device it is, and behind it segments of records.
//!
//! ```text
//! superblock, 4 KiB     0  magic 16 B   16  set u64   24  segment bytes u64   32  number u16
//!                       40 checksum u64 of what is before it
//! segment n             at 4096 + n * segment bytes: records one behind the other; each batch of
//!                       them begins with a block, and zeros fill its last one
//! record                0  checksum u32   4  value length u32   8  key length u16   10 database u8
//!                       11 kind u8        12 key, value; zeros up to a multiple of 16
//! ```
//! All numbers are little-endian. A record's checksum (the lower half of XXH3) covers everything
//! behind it, and begins with the set and the record's offset: bytes of another store, and bytes
//! that a device has given from another place, do not pass for a record.

use perdura_media::{BLOCK_BYTES, BlockBuf};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

const MAGIC: &[u8; 16] = b"perdura values 1";
const AT_CHECKSUM: usize = 40;
/// Bytes of a record before the key.
const HEAD_BYTES: usize = 12;
/// Records begin at multiples of so many bytes.
const ALIGN_BYTES: usize = 16;
/// Bytes before the first segment.
pub(crate) const FIRST_SEGMENT_AT: u64 = BLOCK_BYTES;

/// What the first block of a device says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// The set of devices that belongs to one store.
    pub set: u64,
    /// Number of the device in the set.
    pub number: u16,
    pub segment_bytes: u64,
}

impl Superblock {
    pub fn encode(&self) -> BlockBuf {
        let mut block = BlockBuf::zeroed(BLOCK_BYTES as usize);
        block[..16].copy_from_slice(MAGIC);
        block[16..24].copy_from_slice(&self.set.to_le_bytes());
        block[24..32].copy_from_slice(&self.segment_bytes.to_le_bytes());
        block[32..34].copy_from_slice(&self.number.to_le_bytes());
        let checksum = xxh3_64(&block[..AT_CHECKSUM]);
        block[AT_CHECKSUM..AT_CHECKSUM + 8].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    /// What a block says; `None` if it is no superblock, or a damaged one.
    pub fn decode(block: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            let bytes = block.get(at..at + 8)?;
            Some(u64::from_le_bytes(bytes.try_into().ok()?))
        };
        let is_whole = block.starts_with(MAGIC)
            && word(AT_CHECKSUM)? == xxh3_64(&block[..AT_CHECKSUM])
            && word(24)?.is_multiple_of(BLOCK_BYTES)
            && word(24)? > 0;
        let number = (word(32)? & 0xffff) as u16;
        is_whole.then_some(Self { set: word(16)?, segment_bytes: word(24)?, number })
    }
}

/// A record's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'b> {
    pub db: u8,
    pub kind: u8,
    pub key: &'b [u8],
    pub value: &'b [u8],
}

impl<'b> Record<'b> {
    /// Bytes that the record takes.
    pub fn len_bytes(&self) -> usize {
        record_bytes(self.key.len(), self.value.len())
    }

    /// Writes the record, without its checksum, to the beginning of `out`.
    pub fn write(&self, out: &mut [u8]) {
        out[4..8].copy_from_slice(&(self.value.len() as u32).to_le_bytes());
        out[8..10].copy_from_slice(&(self.key.len() as u16).to_le_bytes());
        (out[10], out[11]) = (self.db, self.kind);
        let value_at = HEAD_BYTES + self.key.len();
        let end = value_at + self.value.len();
        out[HEAD_BYTES..value_at].copy_from_slice(self.key);
        out[value_at..end].copy_from_slice(self.value);
        out[end..self.len_bytes()].fill(0);
    }

    /// The record at the beginning of `bytes`, whose checksum is not looked at; `None` if none can
    /// begin there.
    pub fn peek(bytes: &'b [u8]) -> Option<Self> {
        let head = bytes.get(..HEAD_BYTES)?;
        let value_len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let key_len = usize::from(u16::from_le_bytes([head[8], head[9]]));
        let value_at = HEAD_BYTES + key_len;
        let is_within = record_bytes(key_len, value_len) <= bytes.len();
        is_within.then(|| Self {
            db: head[10],
            kind: head[11],
            key: &bytes[HEAD_BYTES..value_at],
            value: &bytes[value_at..value_at + value_len],
        })
    }

    /// The record at the beginning of `bytes`, which lie at `offset` of a device of this set, with
    /// its checksum; `None` if no whole record is there.
    pub fn read(bytes: &'b [u8], set: u64, offset: u64) -> Option<(Self, u32)> {
        let record = Self::peek(bytes)?;
        let checksum = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let is_whole = checksum == checksum_of(&bytes[..record.len_bytes()], set, offset);
        is_whole.then_some((record, checksum))
    }
}

/// Bytes that a record of such a key and value takes.
pub(crate) fn record_bytes(key_bytes: usize, value_bytes: usize) -> usize {
    (HEAD_BYTES + key_bytes + value_bytes).next_multiple_of(ALIGN_BYTES)
}

/// The checksum of a record that lies at `offset` of a device of this set.
pub(crate) fn checksum_of(record: &[u8], set: u64, offset: u64) -> u32 {
    xxh3_64_with_seed(&record[4..], set ^ offset) as u32
}

/// Calls `f` with the place and the checksum of each record of a segment, whose bytes lie at
/// `offset` of a device of this set. Behind bytes that are no record the search goes on at the next
/// block, because there each batch begins.
pub(crate) fn for_each<'b>(
    segment: &'b [u8],
    set: u64,
    offset: u64,
    mut f: impl FnMut(usize, Record<'b>, u32),
) {
    let mut at = 0;
    while at < segment.len() {
        match Record::read(&segment[at..], set, offset + at as u64) {
            Some((record, checksum)) if !record.key.is_empty() || !record.value.is_empty() => {
                f(at, record, checksum);
                at += record.len_bytes();
            }
            _ => at = (at + 1).next_multiple_of(BLOCK_BYTES as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_at_its_own_place_of_its_own_set_only() {
        let record = Record { db: 3, kind: 1, key: b"name", value: &[7; 100] };
        let mut bytes = vec![0xff; 256];
        record.write(&mut bytes);
        let checksum = checksum_of(&bytes[..record.len_bytes()], 5, 8192);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(record.len_bytes(), 128);
        assert_eq!(Record::read(&bytes, 5, 8192), Some((record, checksum)));
        assert_eq!(Record::read(&bytes, 6, 8192), None);
        assert_eq!(Record::read(&bytes, 5, 4096), None);
        for at in 0..record.len_bytes() {
            bytes[at] ^= 1;
            assert_eq!(Record::read(&bytes, 5, 8192), None, "byte {at}");
            bytes[at] ^= 1;
        }
        assert_eq!(Record::read(&bytes[..127], 5, 8192), None);
    }

    #[test]
    fn records_behind_a_damaged_one_are_found_from_the_next_block_on() {
        let mut segment = vec![0; 4 * BLOCK_BYTES as usize];
        let mut put = |at: usize, key: &[u8]| {
            let record = Record { db: 0, kind: 0, key, value: &[1; 100] };
            record.write(&mut segment[at..]);
            let end = at + record.len_bytes();
            let checksum = checksum_of(&segment[at..end], 1, 4096 + at as u64);
            segment[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
            end
        };
        let second = put(0, b"first");
        let end = put(second, b"second");
        put(2 * BLOCK_BYTES as usize, b"third");
        assert!(end < BLOCK_BYTES as usize);
        let found = |segment: &[u8]| {
            let mut keys = Vec::new();
            for_each(segment, 1, 4096, |at, record, _| keys.push((at, record.key.to_vec())));
            keys
        };
        let keys = found(&segment);
        assert_eq!(keys.len(), 3);
        assert_eq!(keys[2], (2 * BLOCK_BYTES as usize, b"third".to_vec()));
        segment[20] ^= 1;
        assert_eq!(found(&segment).len(), 1, "those in the same block are lost with it");
    }

    #[test]
    fn a_superblock_says_which_device_it_is_and_no_other_block_does() {
        let superblock = Superblock { set: 77, number: 2, segment_bytes: 1 << 20 };
        let mut block = superblock.encode();
        assert_eq!(Superblock::decode(&block), Some(superblock));
        block[33] ^= 1;
        assert_eq!(Superblock::decode(&block), None);
        assert_eq!(Superblock::decode(&[0; 4096]), None);
    }
}
