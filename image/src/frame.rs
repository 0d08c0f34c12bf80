//! A frame on the device: its header and what follows its payload, from bytes; nothing of it is
//! used before its checksum and its lengths agree.

use zerocopy::FromBytes;

use crate::codec::chunk_bytes;
use crate::format::{
    CHECK_BYTES, FORMAT_VERSION, FRAME_COMMIT, FRAME_HEADER_BYTES, FRAME_LZ4, FRAME_MAGIC,
    FrameHeader, checksum, frame_body_bytes, lengths_bytes,
};

/// A frame found on the device.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// Log segment that holds it.
    pub segment: u32,
    /// Where in the segment.
    pub at: u64,
    /// Its header, whose checksum and lengths were checked.
    pub header: FrameHeader,
    /// Number of the frame at the segment's beginning: a commit names a segment by it.
    pub first_seq: u64,
}

impl Frame {
    /// A frame of which only the segment matters.
    #[cfg(test)]
    pub fn in_segment(segment: u32) -> Self {
        use zerocopy::FromZeros;
        Self { segment, at: 0, header: FrameHeader::new_zeroed(), first_seq: 0 }
    }

    /// Its number.
    pub fn seq(&self) -> u64 {
        self.header.seq.get()
    }
    /// Bytes of payload as stored.
    pub fn payload(&self) -> usize {
        self.header.payload_bytes.get() as usize
    }
    /// Whether the payload is stored in chunks.
    pub fn is_compressed(&self) -> bool {
        self.header.flags.get() & FRAME_LZ4 != 0
    }
    /// Bytes of payload in memory.
    pub fn raw(&self) -> usize {
        if self.is_compressed() { self.header.raw_bytes.get() as usize } else { self.payload() }
    }
    /// Extents in its table.
    pub fn extents(&self) -> usize {
        self.header.extents.get() as usize
    }
    /// Bytes from it to the next frame.
    pub fn total(&self) -> u64 {
        u64::from(self.header.total_bytes.get())
    }
    /// Bytes of it that were written.
    pub fn written(&self) -> usize {
        written_bytes(&self.header)
    }
    /// Where each chunk ends in the stored payload, if these lengths can be theirs.
    pub fn chunk_ends(&self, lengths: &[u8]) -> Option<Box<[u32]>> {
        let (lengths, _) = lengths.as_chunks::<4>();
        let mut end = 0;
        let ends: Box<[u32]> = lengths
            .iter()
            .enumerate()
            .map(|(number, len)| {
                let len = u32::from_le_bytes(*len);
                let fits = len > 0 && len as usize <= chunk_bytes(self.raw(), number);
                end += if fits { len } else { return None };
                Some(end)
            })
            .collect::<Option<_>>()?;
        (!self.is_compressed() || end as usize == self.payload()).then_some(ends)
    }
}

/// The header in these bytes of a segment, from byte `at` of it, if it can be one.
pub fn parse_header(
    bytes: &[u8],
    image_id: u64,
    segment_bytes: u64,
    at: u64,
) -> Option<FrameHeader> {
    let header = FrameHeader::read_from_bytes(bytes).ok()?;
    let total_bytes = u64::from(header.total_bytes.get());
    let valid = header.magic.get() == FRAME_MAGIC
        && header.image_id.get() == image_id
        && header.checksum.get() == checksum(&bytes[..FRAME_HEADER_BYTES - 8])
        && total_bytes <= segment_bytes - at
        && has_possible_sizes(&header, segment_bytes as usize);
    valid.then_some(header)
}

/// Every length in it follows from the others, or lies within what the frame took before it was
/// compressed; and that was no more than a buffer holds.
fn has_possible_sizes(header: &FrameHeader, segment_bytes: usize) -> bool {
    let (total, written) = (header.total_bytes.get() as usize, written_bytes(header));
    if u32::from(header.version.get()) != FORMAT_VERSION {
        return false;
    }
    match header.flags.get() & !FRAME_COMMIT {
        0 => total == written,
        FRAME_LZ4 => {
            let (raw, extents) = (header.raw_bytes.get() as usize, header.extents.get() as usize);
            let raw_total = frame_body_bytes(raw, extents).next_multiple_of(4096);
            raw_total <= segment_bytes
                && total.is_multiple_of(4096)
                && (written..=raw_total).contains(&total)
        }
        _ => false,
    }
}

/// Bytes of a frame that were written.
pub fn written_bytes(header: &FrameHeader) -> usize {
    let (payload, extents) = (header.payload_bytes.get() as usize, header.extents.get() as usize);
    let lengths = match header.flags.get() & FRAME_LZ4 {
        0 => 0,
        _ => lengths_bytes(header.raw_bytes.get() as usize),
    };
    (frame_body_bytes(payload, extents) + lengths).next_multiple_of(4096)
}

/// What follows a frame's payload.
pub struct FrameTail<'b> {
    /// Packed extents.
    pub table: &'b [u8],
    /// Checksums of the payload.
    pub sums: &'b [u8],
    /// Empty unless the frame is compressed.
    pub lengths: &'b [u8],
}

/// The parts of a frame's tail.
pub fn tail_of<'b>(frame: &Frame, tail: &'b [u8]) -> FrameTail<'b> {
    let (table, rest) = tail.split_at(frame.extents() * 8);
    let (sums, lengths) = rest.split_at(frame.payload().div_ceil(CHECK_BYTES) * 8);
    FrameTail { table, sums, lengths }
}

/// A frame's tail, of the bytes that follow its payload.
pub fn tail_bytes<'b>(frame: &Frame, bytes: &'b [u8]) -> &'b [u8] {
    let lengths = if frame.is_compressed() { lengths_bytes(frame.raw()) } else { 0 };
    let end = frame_body_bytes(frame.payload(), frame.extents()) + lengths;
    &bytes[..end - FRAME_HEADER_BYTES - frame.payload()]
}
