//! Compressing frames on their way to the device.

use crate::backed::Backed;
use crate::codec::{Compression, Scratch, compress};
use crate::format::{
    CHECK_BYTES, FORMAT_VERSION, FRAME_HEADER_BYTES, FRAME_LZ4, FrameHeader, frame_body_bytes,
    lengths_bytes,
};
use crate::seal::{fill, header_of, raw_bytes, write_header, write_tail};
use perdura_dirty::planted::Planted;
use perdura_dirty::{Counters, FrameBuffer, Packed};
use std::sync::atomic::Ordering::*;

/// Compresses frames on their way to the device. The cleaner has one.
#[derive(Debug, Default)]
pub struct Packer {
    scratch: Scratch,
}

impl Packer {
    /// Compresses a closed frame, if that is wanted and saves at least a page. The last frame of a
    /// group commit (most have only one) is left as it is, because somebody waits for it.
    pub fn pack(&mut self, backed: &Backed, buffer: &FrameBuffer<'_>) {
        let is_wanted = backed.log.compression == Compression::Lz4
            // The final flush waits for the cleaner, and the promise's time has no room for
            // compressing.
            && !backed.memory.budget.is_closed()
            && buffer.flags().load(Relaxed) == 0;
        if !is_wanted {
            return;
        }
        let began_ns = backed.memory.clock.thread_cpu_ns();
        let (raw, _) = fill(buffer);
        let stored = self.try_pack(backed, buffer);
        let took_ns = backed.memory.clock.thread_cpu_ns().saturating_sub(began_ns);
        Counters::add(&backed.memory.stats.compression_in_bytes, raw as u64);
        Counters::add(&backed.memory.stats.compression_out_bytes, stored.unwrap_or(raw) as u64);
        Counters::add(&backed.memory.stats.compression_cpu_ns, took_ns);
        Counters::add(&backed.memory.stats.compressed_frames, u64::from(stored.is_some()));
    }

    /// Compresses a closed frame if that saves a page. Returns the bytes of the payload as stored.
    fn try_pack(&mut self, backed: &Backed, buffer: &FrameBuffer<'_>) -> Option<usize> {
        let ledger = &backed.memory.ledger;
        let (raw, extents) = fill(buffer);
        let raw_total = raw_bytes(buffer) as usize;
        let lengths = lengths_bytes(raw);
        // The compressed frame must be a page shorter, headers and tables included.
        let room = raw_total.checked_sub(4096 + FRAME_HEADER_BYTES + extents * 8 + lengths)?;
        let room = room.checked_sub(room.div_ceil(CHECK_BYTES) * 8)?;
        // SAFETY: as in `seal`.
        let payload = unsafe { buffer.bytes_mut(FRAME_HEADER_BYTES as u64, raw) };
        // SAFETY: as in `seal`; it lies beside the buffer, and nobody looks at it before the frame
        // is marked.
        let bytes = unsafe { buffer.packed_mut(0, raw_total) };
        let place = &mut bytes[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + room];
        let stored = compress(payload, place, &mut self.scratch)?;
        let total = (frame_body_bytes(stored, extents) + lengths).next_multiple_of(4096);
        assert!(total < raw_total, "a frame of {raw_total} bytes grew to {total}");
        let (head, tail) = bytes[..total].split_at_mut(FRAME_HEADER_BYTES + stored);
        let (_, payload) = head.split_at(FRAME_HEADER_BYTES);
        let tail_checksum = write_tail(ledger, buffer, payload, &self.scratch.lengths, tail);
        let (image_id, epoch) = (ledger.image_id().load(Relaxed), ledger.epoch().load(Relaxed));
        let mut header = FrameHeader {
            version: (FORMAT_VERSION as u16).into(),
            flags: FRAME_LZ4.into(),
            raw_bytes: (raw as u32).into(),
            payload_bytes: (stored as u32).into(),
            extents: (extents as u32).into(),
            tail_checksum: tail_checksum.into(),
            ..header_of(ledger, buffer, image_id, epoch)
        };
        // The lock is held until the frame is marked, so that no frame is begun behind it: they
        // would overlap if this one had to be written uncompressed after a kill.
        let mut appender = backed.log.appender.lock();
        let kept_bytes = match backed.memory.planted.is(Planted::GiveBackAlways) {
            true => total as u64,
            false => appender.give_back(ledger, buffer, raw_total as u64, total as u64),
        };
        header.total_bytes = (kept_bytes as u32).into();
        write_header(header, head);
        buffer.set_packed(Some(Packed { stored_bytes: total as u64, kept_bytes }));
        drop(appender);
        Some(stored)
    }
}
