//! The size of a frame that is not compressed.

use crate::format::frame_body_bytes;
use crate::ledger::FrameBuffer;
use crate::sync::Ordering::Acquire;

/// Bytes of the buffer's frame as they are written to the device.
pub(crate) fn frame_bytes(buffer: &FrameBuffer<'_>) -> u64 {
    let fill = buffer.fill().load(Acquire);
    let (payload, extents) = ((fill & 0xffff_ffff) as usize, (fill >> 32) as usize);
    frame_body_bytes(payload, extents).next_multiple_of(4096) as u64
}
