//! Sealing: the bytes in a buffer become a frame, uncompressed, or compressed where that saves at
//! least a page; encrypted, if the ledger has a key.
//!
//! Any process can repeat sealing without compression, because table, checksums and header follow
//! from the buffer. Only the process that filled the buffer compresses. A compressed or encrypted
//! frame lies complete beside the buffer before one store marks the frame as packed. So a kill at
//! any moment leaves either a frame that is to be sealed from the buffer, or a packed one that is
//! complete, and the process that writes it again writes the same bytes that may still be on their
//! way. Emergency flushes and redone frames are not compressed, because the promise counts
//! uncompressed bytes.

use std::sync::atomic::Ordering::*;

use zerocopy::{FromZeros, IntoBytes};

use crate::cipher::{FrameKey, Key};
use crate::format::{
    CHECK_BYTES, FORMAT_VERSION, FRAME_AES, FRAME_HEADER_BYTES, FRAME_MAGIC, FrameHeader,
    SEAL_BYTES, SUM_BYTES, block_sum, checksum, frame_body_bytes, sums_bytes,
};
use perdura_dirty::extent::Extent;
use perdura_dirty::{FrameBuffer, Ledger, Packed};

/// Bytes of the buffer's frame as they are written to the device.
pub fn frame_bytes(buffer: &FrameBuffer<'_>) -> u64 {
    buffer.packed().map_or_else(|| raw_bytes(buffer), |packed| packed.stored_bytes)
}

/// Bytes that the buffer's frame takes in its segment, up to the next frame.
pub fn kept_bytes(buffer: &FrameBuffer<'_>) -> u64 {
    buffer.packed().map_or_else(|| raw_bytes(buffer), |packed| packed.kept_bytes)
}

/// Bytes of the buffer's frame before compression.
pub fn raw_bytes(buffer: &FrameBuffer<'_>) -> u64 {
    let (payload, extents) = fill(buffer);
    frame_body_bytes(payload, extents).next_multiple_of(4096) as u64
}

pub(crate) fn fill(buffer: &FrameBuffer<'_>) -> (usize, usize) {
    let fill = buffer.fill().load(Acquire);
    ((fill & 0xffff_ffff) as usize, (fill >> 32) as usize)
}

/// Writes table, checks and header of a closed frame; of an encrypted image, beside the buffer,
/// with the payload encrypted. If a killed process did a part of it, it is done again.
pub fn seal(ledger: &Ledger, buffer: &FrameBuffer<'_>, image_id: u64, epoch: u64) {
    if buffer.packed().is_some() {
        // A packed frame was complete when it was marked.
        return;
    }
    let (payload, extents) = fill(buffer);
    let total = raw_bytes(buffer) as usize;
    let is_encrypted = ledger.key_words().is_some();
    // SAFETY: a closed buffer belongs to the one who writes it: the cleaner (whose lock is held),
    // or the only process left.
    let plain = unsafe { buffer.bytes_mut(0, total) };
    let bytes = match is_encrypted {
        false => plain,
        true => {
            // SAFETY: as above; it lies beside the buffer, and nobody looks at it before the frame
            // is marked.
            let beside = unsafe { buffer.packed_mut(0, total) };
            let payload = FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + payload;
            beside[payload.clone()].copy_from_slice(&plain[payload]);
            beside
        }
    };
    let (head, tail) = bytes.split_at_mut(FRAME_HEADER_BYTES + payload);
    let mut header = FrameHeader {
        flags: (buffer.flags().load(Relaxed) as u16).into(),
        raw_bytes: ((epoch >> 32) as u32).into(),
        payload_bytes: (payload as u32).into(),
        extents: (extents as u32).into(),
        total_bytes: (total as u32).into(),
        ..header_of(ledger, buffer, image_id, epoch)
    };
    write_tail(ledger, buffer, &mut header, &mut head[FRAME_HEADER_BYTES..], &[], tail);
    write_header(header, head);
    debug_assert!(ledger.geometry().segment_bytes >= total as u64);
    if is_encrypted {
        let bytes = total as u64;
        buffer.set_packed(Some(Packed { stored_bytes: bytes, kept_bytes: bytes }));
    }
}

/// Fills the tail of a frame: extents, checks of `payload`, lengths of chunks, seal, zeros. Encrypts
/// the payload if the ledger has a key, and completes the header but for the length that the frame
/// keeps and the header's checksum.
pub(crate) fn write_tail(
    ledger: &Ledger,
    buffer: &FrameBuffer<'_>,
    header: &mut FrameHeader,
    payload: &mut [u8],
    lengths: &[u32],
    tail: &mut [u8],
) {
    let key = ledger.key_words().map(|words| {
        header.flags = (header.flags.get() | FRAME_AES).into();
        FrameKey::new(&Key::from_words(words), header)
    });
    let (filled, extents) = fill(buffer);
    let (table, rest) = tail.split_at_mut(extents * 8);
    // A kill may have come between a longer table entry and the fill that published its bytes.
    let mut grains_left = filled as u64 >> ledger.geometry().grain_shift;
    for (place, word) in table.chunks_exact_mut(8).zip(buffer.table()) {
        let mut extent = Extent::unpack(word.load(Relaxed));
        extent.len = extent.len.min(grains_left);
        grains_left -= extent.len;
        place.copy_from_slice(&extent.pack().to_le_bytes());
    }
    let sums_bytes = sums_bytes(FORMAT_VERSION, payload.len());
    let (sums, rest) = rest.split_at_mut(sums_bytes);
    write_checks(key.as_ref(), payload, sums);
    let (places, padding) = rest.split_at_mut(lengths.len() * 4);
    for (place, len) in places.chunks_exact_mut(4).zip(lengths) {
        place.copy_from_slice(&len.to_le_bytes());
    }
    padding.fill(0);
    let (tables, rest) = tail.split_at_mut(extents * 8 + sums_bytes + lengths.len() * 4);
    if let Some(key) = key {
        rest[..SEAL_BYTES].copy_from_slice(&key.seal(header, tables));
    }
    let end = tables.len() + SEAL_BYTES;
    header.tail_checksum = checksum(&tail[..end]).into();
}

/// Writes the check of each block of a payload, and encrypts the payload if there is a key.
fn write_checks(key: Option<&FrameKey>, payload: &mut [u8], sums: &mut [u8]) {
    let blocks = payload.chunks_mut(CHECK_BYTES).enumerate();
    for (place, (number, block)) in sums.chunks_exact_mut(SUM_BYTES).zip(blocks) {
        place.copy_from_slice(&match key {
            None => block_sum(block),
            Some(key) => key.seal_block(number, block),
        });
    }
}

/// Does the work of sealing a payload that is no frame's, for the proof of a flush rate: writes its
/// checks to `sums` and, where frames are encrypted, encrypts it.
pub fn seal_for_proof(ledger: &Ledger, payload: &mut [u8], sums: &mut [u8]) {
    let of_no_frame = |words| FrameKey::new(&Key::from_words(words), &FrameHeader::new_zeroed());
    write_checks(ledger.key_words().map(of_no_frame).as_ref(), payload, sums);
}

/// A header with the fields that all frames have in common; flags, lengths and checksums are still
/// missing.
pub(crate) fn header_of(
    ledger: &Ledger,
    buffer: &FrameBuffer<'_>,
    image_id: u64,
    epoch: u64,
) -> FrameHeader {
    FrameHeader {
        magic: FRAME_MAGIC.into(),
        version: (FORMAT_VERSION as u16).into(),
        flags: 0.into(),
        image_id: image_id.into(),
        seq: buffer.seq().load(Relaxed).into(),
        epoch: (epoch as u32).into(),
        raw_bytes: 0.into(),
        payload_bytes: 0.into(),
        extents: 0.into(),
        total_bytes: 0.into(),
        incarnation: (ledger.incarnation().load(Relaxed) as u32).into(),
        tail_checksum: 0.into(),
        checksum: 0.into(),
    }
}

pub(crate) fn write_header(mut header: FrameHeader, head: &mut [u8]) {
    let covered = size_of::<FrameHeader>() - 8;
    header.checksum = checksum(&header.as_bytes()[..covered]).into();
    head[..FRAME_HEADER_BYTES].copy_from_slice(header.as_bytes());
}

/// The planted bug: overwrites the bytes of a packed frame that a process which takes over would
/// have to write again.
pub(crate) fn let_go(buffer: &FrameBuffer<'_>) {
    if let Some(packed) = buffer.packed() {
        // SAFETY: the device has read it, and it is the cleaner's; that it is not durable is the
        // bug.
        unsafe { buffer.packed_mut(0, packed.stored_bytes as usize) }.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, parse_header, tail_bytes, tail_of};
    use perdura_dirty::geometry::{BLOCK_BYTES, GRAIN_SHIFT_BARRIER, Geometry};

    /// After a kill between the entry of an extent and the fill that publishes its bytes, the
    /// table says more than there is.
    #[test]
    fn a_sealed_frame_has_a_table_of_just_its_bytes_and_their_sums() {
        let geometry = Geometry::new(BLOCK_BYTES, GRAIN_SHIFT_BARRIER, None, 4).unwrap();
        let ledger = Ledger::create(geometry, 7, BLOCK_BYTES).unwrap();
        ledger.incarnation().store(3, Relaxed);
        let buffer = ledger.buffer(2);
        let entries = [(3, 60), (500, 10), (700, 40)];
        for (filled, expected) in
            [(110, [60, 10, 40]), (75, [60, 10, 5]), (70, [60, 10, 0]), (64, [60, 4, 0])]
        {
            let payload = filled * 64;
            // SAFETY: nobody else uses the buffer.
            let bytes = unsafe { buffer.bytes_mut(0, 16_384) };
            bytes.fill(0xee);
            for (place, (grain, len)) in buffer.table().iter().zip(entries) {
                place.store(Extent { grain, len }.pack(), Relaxed);
            }
            buffer.fill().store(3 << 32 | payload as u64, Relaxed);
            buffer.seq().store(9, Relaxed);
            buffer.flags().store(1, Relaxed);
            // To seal it again changes nothing.
            for _ in 0..2 {
                seal(&ledger, &buffer, 7, 5 << 32 | 6);
            }
            let header = parse_header(&bytes[..FRAME_HEADER_BYTES], 7, 1 << 20, 0).unwrap();
            let frame = Frame { segment: 0, at: 0, header, first_seq: 9 };
            assert_eq!((frame.seq(), frame.payload(), frame.extents()), (9, payload, 3));
            assert_eq!((header.epoch.get(), header.raw_bytes.get()), (6, 5));
            assert_eq!((header.flags.get(), header.incarnation.get()), (1, 3));
            assert_eq!(frame.total(), raw_bytes(&buffer));
            assert_eq!((frame_bytes(&buffer), kept_bytes(&buffer)), (frame.total(), frame.total()));
            let tail = tail_bytes(&frame, &bytes[FRAME_HEADER_BYTES + payload..]);
            assert_eq!(header.tail_checksum.get(), checksum(tail));
            let parts = tail_of(&frame, tail);
            let words = parts.table.as_chunks().0.iter();
            let table = words.map(|word| Extent::unpack(u64::from_le_bytes(*word)));
            let wanted = entries.iter().zip(expected).map(|((grain, _), len)| (*grain, len));
            let found: Vec<_> = table.map(|extent| (extent.grain, extent.len)).collect();
            assert_eq!(found, Vec::from_iter(wanted), "{filled} grains");
            let payload_bytes = &bytes[FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + payload];
            let sums: Vec<_> = payload_bytes.chunks(CHECK_BYTES).flat_map(block_sum).collect();
            assert_eq!((parts.sums, parts.lengths.len()), (&sums[..], 0));
            let end = FRAME_HEADER_BYTES + payload + tail.len();
            let (padding, beyond) = bytes[end..].split_at(frame.total() as usize - end);
            assert!(padding.iter().all(|byte| *byte == 0));
            assert!(beyond.iter().all(|byte| *byte == 0xee), "bytes behind the frame");
        }
    }
}
