//! Loading from compressed frames: the chunks that the wanted pieces lie in are read, verified, decoded, and the pieces
//! taken from them.
//!
//! Checksums are of the bytes as stored: a chunk is decoded only if every block it touches has its own. It must become
//! exactly as many bytes as its frame says; that these are the extents' was checked when the tables were read.

use super::{Buffers, GAP_BLOCKS, Loading, Piece, Table, Target};
use crate::codec::{chunk_bytes, decompress};
use crate::error::{ChunkFound, ImageError, OpenError};
use crate::format::{CHECK_BYTES, CHUNK_BYTES, FRAME_HEADER_BYTES};

impl Loading {
    /// As [`Loading::load_pieces`].
    pub(super) fn load_compressed(
        &self,
        to: &Target<'_>,
        table: &Table,
        mut pieces: &[Piece],
        buffers: &mut Buffers,
    ) -> Result<(), OpenError> {
        let chunks = |piece: &Piece| {
            let len = (piece.run.len << self.geometry.grain_shift) as usize;
            piece.at / CHUNK_BYTES..(piece.at + len).div_ceil(CHUNK_BYTES)
        };
        while let Some(first) = pieces.first() {
            let mut range = chunks(first);
            let near = |piece: &&Piece| {
                let own = chunks(piece);
                let gap = own.start > range.end && {
                    let unwanted = table.stored(range.end).start..table.stored(own.start).start;
                    unwanted.len() > GAP_BLOCKS * CHECK_BYTES
                };
                range.end = if gap { range.end } else { range.end.max(own.end) };
                !gap
            };
            let (here, rest) = pieces.split_at(pieces.iter().take_while(near).count());
            self.load_chunks(to, table, here, range, buffers)?;
            pieces = rest;
        }
        Ok(())
    }

    /// Reads these chunks in one go, and places the pieces, which lie in them.
    fn load_chunks(
        &self,
        to: &Target<'_>,
        table: &Table,
        pieces: &[Piece],
        range: std::ops::Range<usize>,
        buffers: &mut Buffers,
    ) -> Result<(), OpenError> {
        let frame_at = self.layout.segment_at(table.frame.segment) + table.frame.at;
        let first_block = table.stored(range.start).start / CHECK_BYTES;
        let end = table.stored(range.end - 1).end.next_multiple_of(CHECK_BYTES);
        let end = FRAME_HEADER_BYTES + end.min(table.frame.payload());
        let len = end.next_multiple_of(4096) - first_block * CHECK_BYTES;
        let stored = &mut buffers.stored.as_mut()[..len];
        to.device.read_at(frame_at + (first_block * CHECK_BYTES) as u64, stored)?;
        let source =
            Source { loading: self, table, first_block, bytes: &stored[FRAME_HEADER_BYTES..] };
        buffers.raw.resize(range.len() * CHUNK_BYTES, 0);
        let (raw, first_chunk) = (&mut buffers.raw[..], range.start);
        let mut decoded_to = first_chunk;
        for piece in pieces {
            let last = piece.at + ((piece.run.len << self.geometry.grain_shift) as usize) - 1;
            let mut outcome = Ok(());
            for chunk in decoded_to.max(piece.at / CHUNK_BYTES)..=last / CHUNK_BYTES {
                outcome =
                    source.decode(chunk, &mut raw[(chunk - first_chunk) * CHUNK_BYTES..], piece);
                if outcome.is_err() {
                    break;
                }
                decoded_to = chunk + 1;
            }
            match outcome {
                Ok(()) => {
                    self.place(to, table, piece, &raw[piece.at - first_chunk * CHUNK_BYTES..]);
                }
                // One that nobody needs any more may have been overwritten while it was read.
                Err(_) if !self.is_wanted(table, piece) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Stored chunks of a frame, as read.
struct Source<'s> {
    loading: &'s Loading,
    table: &'s Table,
    /// Block of the payload that `bytes` begin with.
    first_block: usize,
    bytes: &'s [u8],
}

impl Source<'_> {
    /// Puts a chunk's bytes at the beginning of `raw`. `piece`: who needs it.
    fn decode(&self, chunk: usize, raw: &mut [u8], piece: &Piece) -> Result<(), OpenError> {
        let Self { loading, table, first_block, bytes } = *self;
        let stored = table.stored(chunk);
        for block in stored.start / CHECK_BYTES..stored.end.div_ceil(CHECK_BYTES) {
            loading
                .verify(table, block, &bytes[(block - first_block) * CHECK_BYTES..])
                .map_err(|sums| loading.damaged(table, piece, block, sums))?;
        }
        let from = stored.start - first_block * CHECK_BYTES;
        let expected_bytes = chunk_bytes(table.frame.raw(), chunk);
        let raw = &mut raw[..expected_bytes];
        decompress(&bytes[from..from + stored.len()], raw).map_err(|became| {
            let region_offset = piece.run.grain << loading.geometry.grain_shift;
            let frame_at = loading.layout.segment_at(table.frame.segment) + table.frame.at;
            ImageError::DamagedChunk {
                page: region_offset / 4096,
                region_offset,
                segment: table.frame.segment,
                offset_bytes: frame_at + (FRAME_HEADER_BYTES + stored.start) as u64,
                stored_bytes: stored.len() as u64,
                expected_bytes: expected_bytes as u64,
                found: became.map_or(ChunkFound::NotLz4, |len| ChunkFound::Bytes(len as u64)),
            }
            .into()
        })
    }
}

impl Table {
    /// Where a chunk lies in the stored payload.
    fn stored(&self, chunk: usize) -> std::ops::Range<usize> {
        let start = chunk.checked_sub(1).map_or(0, |before| self.chunk_ends[before]);
        start as usize..self.chunk_ends[chunk] as usize
    }
}
