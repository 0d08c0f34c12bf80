//! Where things lie in region memory. Little-endian; all sizes in bytes.
//!
//! ```text
//! block 0…     heap header (4 KiB): magic, version, lanes, spans, named roots     meta lane
//!              span table: 8 B per 64 KiB span of the reserved range              meta lane
//!              kinds: 1 B per block; 0 = as the span table says, 1 = capacity (room only)  meta lane
//! then         one lane block (64 KiB) per shard lane: undo log 60 KiB, lane roots 4 KiB
//! then         spans
//! ```
//! A span table word counts only at the head of a run: words inside a run are zero.

use perdura_region::{BLOCK_BYTES, Geometry, LaneId};

/// Bytes of a span: a block of the region, the unit that belongs to one lane.
pub(crate) const SPAN_BYTES: u64 = BLOCK_BYTES;
/// What the ledger keeps a bit of. An object whose size is a multiple of it begins with one and
/// shares none; others share theirs with neighbours of the same size and lane, never with the
/// heap's own tables.
pub(crate) const GRAIN_BYTES: u64 = 64;
/// Every object's offset is a multiple of it.
pub const OBJECT_ALIGN_BYTES: u64 = 16;
/// Largest object: a value of 512 MiB with header, key and slack.
pub const OBJECT_BYTES_MAX: u64 = (512 << 20) + (128 << 10);
/// Bytes of a lane's root area.
pub const LANE_ROOT_BYTES: u64 = 4096;

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"PERDHEAP");
pub(crate) const VERSION: u64 = 2;
/// Without slots that share grains. It is opened, and of the newer version from then on.
pub(crate) const VERSION_WHOLE_GRAINS: u64 = 1;

pub(crate) const AT_MAGIC: u64 = 0;
pub(crate) const AT_VERSION: u64 = 8;
pub(crate) const AT_LANES: u64 = 16;
pub(crate) const AT_SPANS: u64 = 24;
/// Where the kind bytes begin, for readers that do not know the span table's size.
pub(crate) const AT_KINDS: u64 = 32;
/// Named roots: [`ROOTS_MAX`] times 24 B name (zero-padded) and 8 B value.
pub(crate) const AT_ROOTS: u64 = 1024;
pub(crate) const ROOT_BYTES: u64 = 32;
pub(crate) const ROOT_NAME_BYTES: usize = 24;
pub(crate) const ROOTS_MAX: u64 = 32;
pub(crate) const AT_TABLE: u64 = 4096;
const _: () = assert!(AT_ROOTS + ROOTS_MAX * ROOT_BYTES <= AT_TABLE);

/// Undo log of a lane: the front of its lane block.
pub(crate) const LOG_BYTES: u64 = SPAN_BYTES - LANE_ROOT_BYTES;

/// Positions that follow from the region's geometry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    pub spans_max: u64,
    pub header_spans: u64,
    pub shards: u16,
}

impl Layout {
    pub fn of(geometry: &Geometry, lanes: u16) -> Self {
        let spans_max = geometry.reserved_bytes / SPAN_BYTES;
        let header_bytes = AT_TABLE + spans_max * 9;
        Self { spans_max, header_spans: header_bytes.div_ceil(SPAN_BYTES), shards: lanes - 1 }
    }

    pub fn kinds_at(&self) -> u64 {
        AT_TABLE + self.spans_max * 8
    }

    pub fn table_word(&self, span: u64) -> u64 {
        AT_TABLE + span * 8
    }

    /// The lane block: its undo log begins here.
    pub fn lane_block(&self, lane: LaneId) -> u64 {
        (self.header_spans + u64::from(lane.0)) * SPAN_BYTES
    }

    pub fn lane_roots(&self, lane: LaneId) -> u64 {
        self.lane_block(lane) + LOG_BYTES
    }

    /// First span that objects may use.
    pub fn first_span(&self) -> u64 {
        self.header_spans + u64::from(self.shards)
    }
}

/// What a span table word says about a run of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanWord {
    Free,
    /// A run of slots of one size class.
    Small {
        class: u8,
        lane: LaneId,
        spans: u32,
    },
    /// One object.
    Large {
        lane: LaneId,
        spans: u32,
    },
}

impl SpanWord {
    /// `kind | class << 8 | lane << 16 | spans << 32`.
    pub fn encode(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Small { class, lane, spans } => {
                1 | u64::from(class) << 8 | u64::from(lane.0) << 16 | u64::from(spans) << 32
            }
            Self::Large { lane, spans } => 2 | u64::from(lane.0) << 16 | u64::from(spans) << 32,
        }
    }

    /// `None`: no correct program writes this.
    pub fn decode(word: u64) -> Option<Self> {
        let (class, lane, spans) = ((word >> 8) as u8, LaneId((word >> 16) as u16), word >> 32);
        let spans = spans as u32;
        match word as u8 {
            0 if word == 0 => Some(Self::Free),
            1 if spans > 0 => Some(Self::Small { class, lane, spans }),
            2 if spans > 0 && class == 0 => Some(Self::Large { lane, spans }),
            _ => None,
        }
    }
}
