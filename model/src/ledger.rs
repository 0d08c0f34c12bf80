//! The words of the ledger that the checked code uses, for one frame buffer and two segments.

#[path = "../../dirty/src/ledger/buffer.rs"]
mod buffer;
#[path = "../../dirty/src/ledger/segment.rs"]
mod segment;

use crate::geometry::{GRAIN_SHIFT_BARRIER, Geometry};
use crate::locations::Locations;
use crate::sync::{AtomicU16, AtomicU64};
use crate::sys::Mapping;

pub use buffer::{BufferState, FrameBuffer};
pub use segment::{SegmentEntry, SegmentState};

const SEGMENTS: usize = 2;
/// Extents that a frame may have here.
const TABLE: usize = 2;
/// Grains that have a location here.
const GRAINS: usize = 2;
const GEOMETRY: Geometry = Geometry {
    reserved_bytes: 1 << 16,
    grain_shift: GRAIN_SHIFT_BARRIER,
    segment_bytes: 1 << 16,
    segments_max: SEGMENTS as u32,
    buffers: 1,
};

/// The words of the account, of the frame buffer and of the segments.
#[derive(Debug)]
pub struct Ledger {
    limit: AtomicU64,
    used: AtomicU64,
    high: AtomicU64,
    next_seq: AtomicU64,
    uncounted: AtomicU64,
    /// The eight words of the buffer, its table, and four words of each segment.
    map: Mapping,
    locations: [AtomicU16; GRAINS],
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            limit: AtomicU64::default(),
            used: AtomicU64::default(),
            high: AtomicU64::default(),
            next_seq: AtomicU64::new(1),
            uncounted: AtomicU64::default(),
            map: Mapping::new(8 + TABLE + 4 * SEGMENTS, 1024),
            locations: Default::default(),
        }
    }
}

impl Ledger {
    pub(crate) fn budget_limit(&self) -> &AtomicU64 {
        &self.limit
    }

    pub(crate) fn budget_used(&self) -> &AtomicU64 {
        &self.used
    }

    pub(crate) fn budget_high(&self) -> &AtomicU64 {
        &self.high
    }

    pub(crate) fn next_seq(&self) -> &AtomicU64 {
        &self.next_seq
    }

    pub(crate) fn uncounted(&self) -> &AtomicU64 {
        &self.uncounted
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &GEOMETRY
    }

    pub(crate) fn locations(&self) -> Locations<'_> {
        Locations::Narrow(&self.locations)
    }

    pub(crate) fn segment(&self, number: u32) -> SegmentEntry<'_> {
        let at = 8 + TABLE as u64 + 4 * u64::from(number);
        SegmentEntry { words: self.map.words(at * 8, 4) }
    }

    pub(crate) fn buffer(&self, number: u32) -> FrameBuffer<'_> {
        assert_eq!(number, 0, "there is one frame buffer");
        FrameBuffer {
            map: &self.map,
            words: self.map.words(0, 8),
            table_at: 64,
            table_capacity: TABLE,
            bytes_at: 0,
            packed_at: 0,
            len_bytes: 1024,
        }
    }
}
