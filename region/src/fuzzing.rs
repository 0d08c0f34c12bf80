//! For the fuzz target of the image reader: checksums made right over bytes made wrong.

use crate::format::{
    FRAME_HEADER_BYTES, FRAME_MAGIC, SLOT_MAGIC, SUPERBLOCK_MAGIC, SlotHeader, Superblock, checksum,
};

/// Recomputes the header checksums of whatever superblocks, slots and frames stand on 4 KiB boundaries, and
/// the slots' table checksums.
pub fn repair_checksums(image: &mut [u8]) {
    for at in (0..image.len().saturating_sub(4095)).step_by(4096) {
        let block = &mut image[at..];
        let magic = block.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if magic == SUPERBLOCK_MAGIC {
            seal(block, size_of::<Superblock>());
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
            seal(block, FRAME_HEADER_BYTES);
        }
    }
}

fn seal(block: &mut [u8], len: usize) {
    let sum = checksum(&block[..len - 8]).to_le_bytes();
    block[len - 8..len].copy_from_slice(&sum);
}
