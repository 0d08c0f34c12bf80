//! A frame's header and what follows its payload, from bytes: nothing of it is used before its
//! checksum and its lengths agree.

use zerocopy::FromBytes;

use super::Frame;
use crate::format::{
    CHECK_BYTES, FORMAT_VERSION, FRAME_COMMIT, FRAME_HEADER_BYTES, FRAME_LZ4, FRAME_MAGIC,
    FrameHeader, checksum, frame_body_bytes, lengths_bytes,
};

pub(super) fn parse_header(
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

pub(super) fn written_bytes(header: &FrameHeader) -> usize {
    let (payload, extents) = (header.payload_bytes.get() as usize, header.extents.get() as usize);
    let lengths = match header.flags.get() & FRAME_LZ4 {
        0 => 0,
        _ => lengths_bytes(header.raw_bytes.get() as usize),
    };
    (frame_body_bytes(payload, extents) + lengths).next_multiple_of(4096)
}

/// What follows a frame's payload.
pub(super) struct FrameTail<'b> {
    pub table: &'b [u8],
    pub sums: &'b [u8],
    /// Empty unless the frame is compressed.
    pub lengths: &'b [u8],
}

/// The parts of a frame's tail.
pub(super) fn tail_of<'b>(frame: &Frame, tail: &'b [u8]) -> FrameTail<'b> {
    let (table, rest) = tail.split_at(frame.extents() * 8);
    let (sums, lengths) = rest.split_at(frame.payload().div_ceil(CHECK_BYTES) * 8);
    FrameTail { table, sums, lengths }
}

/// A frame's tail, of the bytes that follow its payload.
pub(super) fn tail_bytes<'b>(frame: &Frame, bytes: &'b [u8]) -> &'b [u8] {
    let lengths = if frame.is_compressed() { lengths_bytes(frame.raw()) } else { 0 };
    let end = frame_body_bytes(frame.payload(), frame.extents()) + lengths;
    &bytes[..end - FRAME_HEADER_BYTES - frame.payload()]
}
