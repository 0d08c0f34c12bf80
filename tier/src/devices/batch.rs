//! Values on their way to one device, written in one go.

use perdura_media::{BLOCK_BYTES, BlockBuf, DeviceError};
use perdura_store::{FarAddress, Key};

use super::device::FarDevice;
use super::format::{Record, checksum_of, record_bytes};

/// A record of a batch.
#[derive(Debug, Clone, Copy)]
struct Entry {
    start: usize,
    record_bytes: usize,
    /// Where the value was before, if not in memory.
    from: Option<FarAddress>,
    /// Bytes of memory that the value's record takes.
    memory_bytes: u64,
}

/// A value of a batch that was written.
pub(crate) struct Written<'b> {
    pub key: Key<'b>,
    pub value: &'b [u8],
    pub at: FarAddress,
    pub from: Option<FarAddress>,
    pub memory_bytes: u64,
}

/// Records in the order in which they will lie on the device.
pub(crate) struct Batch {
    bytes: BlockBuf,
    len: usize,
    /// Bytes that the batch may have.
    limit: usize,
    entries: Vec<Entry>,
    /// Offset of the batch on its device, once it is written.
    offset: u64,
    device: u16,
}

impl Batch {
    pub fn new(segment_bytes: u64) -> Self {
        let bytes = BlockBuf::zeroed(segment_bytes as usize);
        let limit = bytes.len();
        Self { bytes, len: 0, limit, entries: Vec::new(), offset: 0, device: 0 }
    }

    /// Bytes that the batch has room for.
    pub fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that are left.
    pub fn room_bytes(&self) -> usize {
        self.limit - self.len
    }

    /// Makes an empty batch no longer than what is left of the device's open segment, until it is
    /// cleared: a longer one would leave that unused.
    pub fn fill_up(&mut self, device: &FarDevice) {
        let rest = device.segments.lock().open_rest_bytes();
        self.limit = (rest as usize).min(self.bytes.len());
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether a record of such a key and value has room.
    pub fn fits(&self, key_bytes: usize, value_bytes: usize) -> bool {
        self.len + record_bytes(key_bytes, value_bytes) <= self.limit
    }

    /// Appends a record, for which there is room.
    pub fn push(&mut self, record: Record<'_>, from: Option<FarAddress>, memory_bytes: u64) {
        let (start, record_bytes) = (self.len, record.len_bytes());
        record.write(&mut self.bytes[start..start + record_bytes]);
        self.entries.push(Entry { start, record_bytes, from, memory_bytes });
        self.len += record_bytes;
    }

    /// Forgets all records.
    pub fn clear(&mut self) {
        (self.len, self.offset, self.limit) = (0, 0, self.bytes.len());
        self.entries.clear();
    }

    /// Writes the batch to a device and makes it durable. Returns false, and leaves the batch as it
    /// was, if the device has no room for it.
    pub fn write(&mut self, device: &FarDevice, flushes: bool) -> Result<bool, DeviceError> {
        let empties = self.entries.iter().any(|entry| entry.from.is_some());
        let end = self.len.next_multiple_of(BLOCK_BYTES as usize);
        self.bytes[self.len..end].fill(0);
        let Some(offset) = device.reserve(end as u64, empties)? else { return Ok(false) };
        (self.offset, self.device) = (offset, device.number());
        let set = device.superblock.set;
        for Entry { start, record_bytes, .. } in &self.entries {
            let record = &mut self.bytes[*start..start + record_bytes];
            let checksum = checksum_of(record, set, offset + *start as u64);
            record[..4].copy_from_slice(&checksum.to_le_bytes());
        }
        device.write(offset, &self.bytes[..end], flushes)?;
        // Counted before any key has an address here: a key may lose it at once.
        let mut segments = device.segments.lock();
        for Entry { start, record_bytes, .. } in &self.entries {
            segments.add_live(offset + *start as u64, *record_bytes as u64);
        }
        Ok(true)
    }

    /// The values of a batch that was written.
    pub fn written(&self) -> impl Iterator<Item = Written<'_>> {
        self.entries.iter().filter_map(|entry| {
            let bytes = &self.bytes[entry.start..entry.start + entry.record_bytes];
            let record = Record::peek(bytes)?;
            let at = FarAddress {
                device: self.device,
                offset: self.offset + entry.start as u64,
                record_bytes: entry.record_bytes as u32,
                value_bytes: record.value.len() as u32,
                checksum: u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
                kind: record.kind,
            };
            Some(Written {
                key: Key { db: record.db, bytes: record.key },
                value: record.value,
                at,
                from: entry.from,
                memory_bytes: entry.memory_bytes,
            })
        })
    }
}
