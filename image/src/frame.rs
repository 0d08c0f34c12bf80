//! A frame read from the device: its header, and the tables behind its payload. Nothing of a frame
//! is used before its checksums and lengths agree.

use zerocopy::FromBytes;

use crate::codec::chunk_bytes;
use crate::format::{
    FORMAT_VERSION, FRAME_AES, FRAME_COMMIT, FRAME_HEADER_BYTES, FRAME_LZ4, FRAME_MAGIC,
    FrameHeader, OLDEST_VERSION, body_bytes_of, checksum, lengths_bytes, seal_bytes, sums_bytes,
};

/// A frame found on the device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    /// Number of the log segment that holds the frame.
    pub(crate) segment: u32,
    /// Offset of the frame in its segment, bytes.
    pub(crate) at: u64,
    /// The frame's header, whose checksum and lengths were checked.
    pub(crate) header: FrameHeader,
    /// Sequence number of the segment's first frame, by which a commit names the segment.
    pub(crate) first_seq: u64,
}

impl Frame {
    /// Makes a frame of which only the segment matters.
    #[cfg(test)]
    pub(crate) fn in_segment(segment: u32) -> Self {
        use zerocopy::FromZeros;
        Self { segment, at: 0, header: FrameHeader::new_zeroed(), first_seq: 0 }
    }

    /// Sequence number of the frame.
    pub(crate) fn seq(&self) -> u64 {
        self.header.seq.get()
    }
    /// Bytes of the payload as stored.
    pub(crate) fn payload(&self) -> usize {
        self.header.payload_bytes.get() as usize
    }
    /// Version of the format in which the frame was written.
    fn version(&self) -> u32 {
        self.header.version.get().into()
    }
    /// Whether the payload is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.header.flags.get() & FRAME_AES != 0
    }
    /// Whether the payload is stored in chunks.
    pub(crate) fn is_compressed(&self) -> bool {
        self.header.flags.get() & FRAME_LZ4 != 0
    }
    /// Bytes of the payload as it is in memory.
    pub(crate) fn raw(&self) -> usize {
        if self.is_compressed() { self.header.raw_bytes.get() as usize } else { self.payload() }
    }
    /// Number of extents in the frame's table.
    pub(crate) fn extents(&self) -> usize {
        self.header.extents.get() as usize
    }
    /// Bytes from this frame to the next.
    pub(crate) fn total(&self) -> u64 {
        u64::from(self.header.total_bytes.get())
    }
    /// Bytes of the frame that were written.
    pub(crate) fn written(&self) -> usize {
        written_bytes(&self.header)
    }
    /// The end of each chunk in the stored payload, if `lengths` are possible.
    pub(crate) fn chunk_ends(&self, lengths: &[u8]) -> Option<Box<[u32]>> {
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

/// Parses the header at offset `at` of a segment; `None` if the bytes are no valid header.
pub(crate) fn parse_header(
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

/// Whether the lengths of a header are possible: each follows from the others or, in a compressed
/// frame, is at most the length before compression, which fits a segment.
fn has_possible_sizes(header: &FrameHeader, segment_bytes: usize) -> bool {
    let (total, written) = (header.total_bytes.get() as usize, written_bytes(header));
    let version = header.version.get().into();
    let is_known = (OLDEST_VERSION..=FORMAT_VERSION).contains(&version);
    let is_encrypted = header.flags.get() & FRAME_AES != 0;
    if !is_known || is_encrypted && seal_bytes(version) == 0 {
        return false;
    }
    match header.flags.get() & !(FRAME_COMMIT | FRAME_AES) {
        0 => total == written,
        FRAME_LZ4 => {
            let (raw, extents) = (header.raw_bytes.get() as usize, header.extents.get() as usize);
            let raw_total = body_bytes_of(version, raw, extents).next_multiple_of(4096);
            raw_total <= segment_bytes
                && total.is_multiple_of(4096)
                && (written..=raw_total).contains(&total)
        }
        _ => false,
    }
}

/// Bytes of a frame that were written.
pub(crate) fn written_bytes(header: &FrameHeader) -> usize {
    let (payload, extents) = (header.payload_bytes.get() as usize, header.extents.get() as usize);
    let lengths = match header.flags.get() & FRAME_LZ4 {
        0 => 0,
        _ => lengths_bytes(header.raw_bytes.get() as usize),
    };
    (body_bytes_of(header.version.get().into(), payload, extents) + lengths).next_multiple_of(4096)
}

/// The tables behind a frame's payload.
pub(crate) struct FrameTail<'b> {
    /// Packed extents.
    pub(crate) table: &'b [u8],
    /// Checks of the payload's blocks.
    pub(crate) sums: &'b [u8],
    /// Stored lengths of the chunks; empty unless the frame is compressed.
    pub(crate) lengths: &'b [u8],
    /// Salt and tag, zeros unless the frame is encrypted; empty in version 1.
    pub(crate) seal: &'b [u8],
}

/// Splits the tail of a frame into its tables.
pub(crate) fn tail_of<'b>(frame: &Frame, tail: &'b [u8]) -> FrameTail<'b> {
    let (table, rest) = tail.split_at(frame.extents() * 8);
    let (sums, rest) = rest.split_at(sums_bytes(frame.version(), frame.payload()));
    let (lengths, seal) = rest.split_at(rest.len() - seal_bytes(frame.version()));
    FrameTail { table, sums, lengths, seal }
}

/// The tail of a frame, given bytes that begin behind its payload.
pub(crate) fn tail_bytes<'b>(frame: &Frame, bytes: &'b [u8]) -> &'b [u8] {
    let lengths = if frame.is_compressed() { lengths_bytes(frame.raw()) } else { 0 };
    let end = body_bytes_of(frame.version(), frame.payload(), frame.extents()) + lengths;
    &bytes[..end - FRAME_HEADER_BYTES - frame.payload()]
}
