//! The buffers of a thread that loads frames, kept from frame to frame.

use perdura_dirty::SetupError;
use perdura_dirty::sys::AlignedBytes;

use super::table::{Cursor, Piece};
use crate::checks::Wrong;
use crate::error::{ChunkFound, OpenError};

/// Most bytes that are read at a time: one huge page, which a device is handed as one piece, and so
/// few that they are still in a cache when they are placed.
const WINDOW_BYTES: usize = perdura_dirty::sys::HUGE_PAGE_BYTES;
/// The buffers of a thread that loads frames.
pub(super) struct Buffers {
    /// Bytes as they are on the device.
    pub(crate) stored: AlignedBytes,
    /// Decoded bytes; empty until a compressed frame is met.
    pub(crate) raw: Vec<u8>,
    /// Whether each unit of the frame's payload is needed.
    pub(crate) wanted: Vec<bool>,
    /// All pieces of the block, where a single block is loaded.
    pub(crate) own: Vec<Piece>,
    /// How far each part was placed, where a whole frame is loaded.
    pub(crate) cursors: Vec<Cursor>,
    /// The parts, in the order in which they are taken up.
    pub(crate) order: Vec<usize>,
    /// The pieces of one part that are in the window.
    pub(crate) found: Vec<Piece>,
    /// Units of the window that are damaged.
    pub(crate) flaws: Vec<Flaw>,
    pub(crate) first_part: usize,
}

/// A damaged unit, which must not be used.
pub(super) struct Flaw {
    pub(crate) unit: usize,
    pub(crate) what: FlawKind,
}

#[derive(Clone, Copy)]
pub(super) enum FlawKind {
    /// A block of the stored payload is not what was written.
    Block { block: usize, wrong: Wrong },
    /// A chunk does not decode to its bytes.
    Chunk(ChunkFound),
}

impl Buffers {
    pub(crate) fn new(segment_bytes: usize, first_part: usize) -> Result<Self, OpenError> {
        let len = WINDOW_BYTES.min(segment_bytes);
        let stored = AlignedBytes::in_huge_pages(len).map_err(|source| SetupError::Memory {
            what: "I/O buffer",
            len_bytes: len as u64,
            source,
        })?;
        Ok(Self {
            stored,
            raw: Vec::new(),
            wanted: Vec::new(),
            own: Vec::new(),
            cursors: Vec::new(),
            order: Vec::new(),
            found: Vec::new(),
            flaws: Vec::new(),
            first_part,
        })
    }
}
