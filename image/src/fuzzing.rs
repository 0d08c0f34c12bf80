//! Valid checksums over invalid bytes, for the fuzz target of the image reader.

use zerocopy::FromBytes;

use crate::format::{
    CHECK_BYTES, FRAME_HEADER_BYTES, FRAME_LZ4, FRAME_MAGIC, FrameHeader, SLOT_MAGIC,
    SUPERBLOCK_BYTES_V1, SUPERBLOCK_MAGIC, SlotHeader, Superblock, block_sum, checksum,
    lengths_bytes, seal_bytes, sums_bytes,
};

/// Recomputes the checksums of all superblocks, slots and frames on 4 KiB boundaries: those of
/// their headers, of the slots' tables, and of the frames' payload and tables.
pub fn repair_checksums(image: &mut [u8]) {
    for at in (0..image.len().saturating_sub(4095)).step_by(4096) {
        let block = &mut image[at..];
        let magic = block.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if magic == SUPERBLOCK_MAGIC {
            let is_old = block[8..12] == [1, 0, 0, 0];
            seal(block, if is_old { SUPERBLOCK_BYTES_V1 } else { size_of::<Superblock>() });
        } else if magic == SLOT_MAGIC {
            let head = size_of::<SlotHeader>();
            let segments =
                u32::from_le_bytes([block[48], block[49], block[50], block[51]]) as usize;
            if let Some(table) = block.get(head..head + segments.saturating_mul(16)) {
                let sum = checksum(table).to_le_bytes();
                block[head - 16..head - 8].copy_from_slice(&sum);
            }
            seal(block, head);
        } else if magic as u32 == FRAME_MAGIC {
            repair_tail(block);
            seal(block, FRAME_HEADER_BYTES);
        }
    }
}

/// Recomputes the checksums of a frame's payload and tables, if its lengths lie within the bytes.
fn repair_tail(frame: &mut [u8]) {
    let Ok((header, _)) = FrameHeader::read_from_prefix(frame) else { return };
    let payload_end = FRAME_HEADER_BYTES + header.payload_bytes.get() as usize;
    let sums_at = payload_end.saturating_add(header.extents.get() as usize * 8);
    let version = header.version.get().into();
    let (width, payload) = (sums_bytes(version, 1), header.payload_bytes.get() as usize);
    let sums_bytes = sums_bytes(version, payload);
    let behind = seal_bytes(version)
        + match header.flags.get() & FRAME_LZ4 {
            0 => 0,
            _ => lengths_bytes(header.raw_bytes.get() as usize),
        };
    if frame.len() < sums_at.saturating_add(sums_bytes).saturating_add(behind) {
        return;
    }
    let (payload, tail) = frame.split_at_mut(payload_end);
    let sums = tail[sums_at - payload_end..][..sums_bytes].chunks_exact_mut(width);
    for (place, block) in sums.zip(payload[FRAME_HEADER_BYTES..].chunks(CHECK_BYTES)) {
        match width {
            8 => place.copy_from_slice(&checksum(block).to_le_bytes()),
            _ => place.copy_from_slice(&block_sum(block)),
        }
    }
    let sum = checksum(&tail[..sums_at - payload_end + sums_bytes + behind]);
    frame[48..56].copy_from_slice(&sum.to_le_bytes());
}

fn seal(block: &mut [u8], len: usize) {
    let sum = checksum(&block[..len - 8]).to_le_bytes();
    block[len - 8..len].copy_from_slice(&sum);
}
