//! Loading from compressed frames, whose unit is a chunk where it is a block of payload in others.
//!
//! Checksums are of the bytes as stored, so a chunk is decoded only if every block that it touches
//! has its checksum. It must decode to exactly as many bytes as its frame says. That the extents
//! need just these bytes was checked when the tables were read.

use super::buffers::FlawKind;
use super::loading::Loading;
use super::table::Table;
use crate::codec::{chunk_bytes, decompress};
use crate::error::ChunkFound;
use crate::format::CHECK_BYTES;

impl Loading {
    /// Decodes a chunk to the beginning of `raw`. `bytes` are those of the stored payload from
    /// `first_block` on.
    pub(super) fn decode(
        &self,
        table: &Table,
        chunk: usize,
        first_block: usize,
        bytes: &[u8],
        raw: &mut [u8],
    ) -> Result<(), FlawKind> {
        let stored = table.stored(chunk..chunk + 1);
        for block in stored.start / CHECK_BYTES..stored.end.div_ceil(CHECK_BYTES) {
            self.verify(table, block, &bytes[(block - first_block) * CHECK_BYTES..])?;
        }
        let from = stored.start - first_block * CHECK_BYTES;
        let raw = &mut raw[..chunk_bytes(table.frame.raw(), chunk)];
        decompress(&bytes[from..from + stored.len()], raw).map_err(|became| {
            let found = became.map_or(ChunkFound::NotLz4, |len| ChunkFound::Bytes(len as u64));
            FlawKind::Chunk(found)
        })
    }
}
