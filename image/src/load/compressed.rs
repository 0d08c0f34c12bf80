//! Loading from compressed frames, whose unit is a chunk where it is a block of payload in others.
//!
//! Checks are of the bytes as stored, so a chunk is decoded only if every block that it touches is
//! right. It must decode to exactly as many bytes as its frame says. That the extents need just
//! these bytes was checked when the tables were read.

use super::buffers::FlawKind;
use super::table::Table;
use crate::codec::{chunk_bytes, decompress};
use crate::error::ChunkFound;

/// Decodes a chunk, whose stored bytes were checked, to the beginning of `raw`.
pub(super) fn decode(
    table: &Table,
    chunk: usize,
    stored: &[u8],
    raw: &mut [u8],
) -> Result<(), FlawKind> {
    let raw = &mut raw[..chunk_bytes(table.frame.raw(), chunk)];
    decompress(stored, raw).map_err(|became| {
        let found = became.map_or(ChunkFound::NotLz4, |len| ChunkFound::Bytes(len as u64));
        FlawKind::Chunk(found)
    })
}
