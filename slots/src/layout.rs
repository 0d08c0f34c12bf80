//! Where a heap's tables lie in region memory. Words are little-endian, sizes are in bytes.
//!
//! ```text
//! block 0…   heap header (4 KiB): magic, version, lanes, spans, named roots           meta lane
//!            span table: 8 B for each 8 KiB span of the reserved range                meta lane
//! then       a lane block (64 KiB) for each shard lane: undo log 60 KiB, lane roots 4 KiB
//! then       spans
//! ```
//! A span table word stands at the head of a run of spans; the words of the run's other spans are
//! zero. A block of the region, 64 KiB, belongs to one lane: all runs that lie in it, or reach into
//! it, are of that lane. So a block's free spans are that lane's as long as the block has a run.

use perdura_region::{BLOCK_BYTES, Geometry, LaneId};

/// Bytes of a span, the unit that runs are made of.
pub(crate) const SPAN_BYTES: u64 = 8 << 10;
/// Spans of a block of the region, the unit that belongs to one lane.
pub(crate) const BLOCK_SPANS: u64 = BLOCK_BYTES / SPAN_BYTES;
/// Bytes of a grain, for which the ledger keeps one bit.
pub(crate) const GRAIN_BYTES: u64 = 64;
/// Every object's offset is a multiple of this many bytes.
pub const OBJECT_ALIGN_BYTES: u64 = 16;
/// Bytes of the largest object: a value of 512 MiB with its header, its key and slack.
pub const OBJECT_BYTES_MAX: u64 = (512 << 20) + (128 << 10);
/// Bytes of a lane's root area.
pub const LANE_ROOT_BYTES: u64 = 4096;

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"PERDHEAP");
pub(crate) const VERSION: u64 = 1;

pub(crate) const AT_MAGIC: u64 = 0;
pub(crate) const AT_VERSION: u64 = 8;
pub(crate) const AT_LANES: u64 = 16;
pub(crate) const AT_SPANS: u64 = 24;
/// Named roots begin here: [`ROOTS_MAX`] times 24 B of name, padded with zeros, and 8 B of value.
pub(crate) const AT_ROOTS: u64 = 1024;
pub(crate) const ROOT_BYTES: u64 = 32;
pub(crate) const ROOT_NAME_BYTES: usize = 24;
pub(crate) const ROOTS_MAX: u64 = 32;
pub(crate) const AT_TABLE: u64 = 4096;
const _: () = assert!(AT_ROOTS + ROOTS_MAX * ROOT_BYTES <= AT_TABLE);

/// Bytes of a lane's undo log, which is the front of its lane block.
pub(crate) const LOG_BYTES: u64 = BLOCK_BYTES - LANE_ROOT_BYTES;

/// Positions that follow from the region's geometry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Spans of the reserved range, all of which have a word in the span table.
    pub spans_max: u64,
    /// Blocks that header and span table take.
    pub header_blocks: u64,
    /// Lanes that users may lock; the lane behind them is the meta lane.
    pub shards: u16,
}

impl Layout {
    pub fn of(geometry: &Geometry, lanes: u16) -> Self {
        let spans_max = geometry.reserved_bytes / SPAN_BYTES;
        Self { spans_max, header_blocks: header_blocks(spans_max), shards: lanes - 1 }
    }

    pub fn meta(&self) -> LaneId {
        LaneId(self.shards)
    }

    pub fn table_word(&self, span: u64) -> u64 {
        AT_TABLE + span * 8
    }

    /// Offset of a lane's block, which begins with its undo log.
    pub fn lane_block(&self, lane: LaneId) -> u64 {
        (self.header_blocks + u64::from(lane.0)) * BLOCK_BYTES
    }

    pub fn lane_roots(&self, lane: LaneId) -> u64 {
        self.lane_block(lane) + LOG_BYTES
    }

    /// The lane whose lane block holds `offset`.
    pub fn lane_of_block(&self, offset: u64) -> Option<LaneId> {
        let block = (offset / BLOCK_BYTES).checked_sub(self.header_blocks)?;
        (block < u64::from(self.shards)).then_some(LaneId(block as u16))
    }

    /// The first span that objects may use.
    pub fn first_span(&self) -> u64 {
        (self.header_blocks + u64::from(self.shards)) * BLOCK_SPANS
    }
}

/// Blocks that header and span table take in a heap that can grow to `spans_max` spans.
pub(crate) fn header_blocks(spans_max: u64) -> u64 {
    spans_max.saturating_mul(8).saturating_add(AT_TABLE).div_ceil(BLOCK_BYTES)
}
