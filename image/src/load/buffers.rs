//! What a reader of frames works with, kept from frame to frame.

use perdura_dirty::SetupError;
use perdura_dirty::sys::AlignedBytes;

use super::table::{Cursor, Piece};
use crate::error::{ChunkFound, OpenError};

/// Most bytes read at a time: one huge page, which a device is handed as one piece, and little
/// enough to be in a cache still when it is placed.
const WINDOW_BYTES: usize = perdura_dirty::sys::HUGE_PAGE_BYTES;
/// What a reader works with.
pub(super) struct Buffers {
    /// As on the device.
    pub stored: AlignedBytes,
    /// Decoded; empty until a compressed frame is met.
    pub raw: Vec<u8>,
    /// A bit for each unit of the frame's payload that is needed.
    pub wanted: Vec<u64>,
    /// All pieces, where one block is loaded.
    pub own: Vec<Piece>,
    /// How far each part was placed, where a whole frame is.
    pub cursors: Vec<Cursor>,
    /// The parts, in the order in which they are taken up.
    pub order: Vec<usize>,
    /// What of one part is in a window.
    pub found: Vec<Piece>,
    /// Units of the window that are not what they should be.
    pub flaws: Vec<Flaw>,
    pub first_part: usize,
}

/// A unit that must not be used.
pub(super) struct Flaw {
    pub unit: usize,
    pub what: FlawKind,
}

pub(super) enum FlawKind {
    /// A block of the stored payload does not have its checksum.
    Sum { block: usize, expected: u64, found: u64 },
    /// A chunk is not what it was made from.
    Chunk(ChunkFound),
}

impl Buffers {
    pub fn new(segment_bytes: usize, first_part: usize) -> Result<Self, OpenError> {
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
