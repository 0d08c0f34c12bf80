//! The state of loading: memory is filled segment by segment, or a block at a time for a reader
//! that needs it first.
//!
//! Recovery reads no payload. The extent tables say which copy of each grain is the newest. This
//! copy has *won*, and the grain is *pending* until its bytes are in memory. Invariants:
//! - A pending grain is clean, because a thread that would write or move it first loads its whole
//!   block. Its segment counts it as live, and is never reused while it is pending.
//! - A grain's location is entered in the ledger with its bytes, not before: until then
//!   [`Ledger::loading`] is set, and a process that takes the ledger over begins anew.
//! - Only copies that won are used. A payload block is verified first; a damaged one fills nothing.
//! - A grain's bytes and its pending bit change under the lock of its part; a block counts as
//!   loaded when none of its grains is pending.

use std::sync::atomic::Ordering::*;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

use perdura_media::Device;

use crate::cipher::Key;
use crate::error::OpenError;
use crate::format::Layout;
use perdura_dirty::geometry::{Geometry, WORD_GRAINS};
use perdura_dirty::planted::Planted;
use perdura_dirty::sys::Mapping;
use perdura_dirty::{CachePadded, HugePages, Ledger, Rank, Ranked};

use super::buffers::Buffers;
use super::give_way::Traffic;
use super::newest::{Found, SmallTables, find_all};
use super::table::{Parts, Table};

/// The memory that loading fills, and a callback for complete blocks.
pub struct Target<'t> {
    /// The device of the image.
    pub device: &'t dyn Device,
    /// The ledger of the memory that is filled.
    pub ledger: &'t Ledger,
    /// The memory that is filled.
    pub map: &'t Mapping,
    /// Called with each block that is complete.
    pub loaded: &'t (dyn Fn(u64) + Sync),
    /// Gives blocks their memory in huge pages; `None`: memory comes page by page, by faults.
    pub huge_pages: Option<&'t HugePages>,
}

/// The part of an image that is not in memory yet.
pub struct Loading {
    pub(super) geometry: Geometry,
    pub(super) layout: Layout,
    /// The key that frames are encrypted with.
    pub(super) key: Option<Key>,
    pub(super) planted: Planted,
    pub(super) parts: Parts,
    /// All tables, the newest first.
    pub(super) tables: Vec<Table>,
    /// Numbers of the tables in each segment, ascending.
    pub(super) by_segment: Vec<Vec<u32>>,
    /// A bit for each grain that is pending.
    pub(super) pending: Box<[AtomicU64]>,
    /// Number of pending grains of each block.
    pub(super) blocks_left: Box<[AtomicU32]>,
    /// Number of pending grains of each segment.
    pub(super) segments_left: Box<[AtomicU64]>,
    /// Blocks whose memory has been asked for.
    pub(super) given: Box<[AtomicBool]>,
    /// The small tables of each part.
    pub(super) small: Vec<SmallTables>,
    /// Numbers of the tables that are not small.
    pub(super) large: Vec<u32>,
    /// The locks of the parts. Each is locked thousands of times.
    pub(super) locks: Box<[CachePadded<Ranked<()>>]>,
    /// The segments in the order in which they are taken up.
    pub(super) order: Vec<u32>,
    /// Place in the order of the segment that is taken up next.
    pub(super) next: AtomicUsize,
    pub(super) traffic: Traffic,
    pub(super) bytes_left: AtomicU64,
    pub(super) total_bytes: u64,
    pub(super) failure: OnceLock<Arc<OpenError>>,
    pub(super) buffers: Ranked<Vec<Buffers>>,
    pub(super) buffers_made: AtomicUsize,
}

/// The part of a frame that is to be loaded.
#[derive(Debug, Clone, Copy)]
pub(super) enum Scope {
    All,
    Block(u64),
}

impl Loading {
    /// Finds the newest copy of each grain among `tables`, which come newest first, and enters the
    /// live bytes of segments in an empty ledger. Everything is pending then.
    pub(crate) fn resolve(
        ledger: &Ledger,
        tables: Vec<Table>,
        parts: Parts,
        region_bytes: u64,
        threads: usize,
        planted: Planted,
    ) -> Self {
        let geometry = *ledger.geometry();
        let words = (region_bytes >> geometry.grain_shift).div_ceil(WORD_GRAINS) as usize;
        let segments = tables.iter().map(|table| table.frame.segment + 1).max().unwrap_or(0);
        let pending: Box<[_]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let segments_left: Box<[_]> = (0..segments).map(|_| AtomicU64::new(0)).collect();
        let found = find_all(&tables, &parts, &pending, &segments_left, threads);
        let mut blocks_left = Vec::new();
        let of_part = |Found { blocks, small }| {
            blocks_left.extend(blocks.into_iter().map(AtomicU32::new));
            small
        };
        let small = found.into_iter().map(of_part).collect();
        let is_large = |number: &u32| !tables[*number as usize].is_small();
        let large = (0..tables.len() as u32).filter(is_large).collect();
        let mut grains = 0;
        for (number, left) in (0..segments).zip(&segments_left) {
            let left = left.load(Relaxed);
            ledger.segment(number).live_bytes().store(left << geometry.grain_shift, Relaxed);
            grains += left;
        }
        let mut by_segment: Vec<Vec<u32>> = (0..segments).map(|_| Vec::new()).collect();
        for (number, table) in tables.iter().enumerate().rev() {
            by_segment[table.frame.segment as usize].push(number as u32);
        }
        let total_bytes = grains << geometry.grain_shift;
        Self {
            geometry,
            layout: Layout::of(&geometry),
            key: ledger.key_words().map(Key::from_words),
            planted,
            parts,
            tables,
            by_segment,
            pending,
            given: blocks_left.iter().map(|_| AtomicBool::new(false)).collect(),
            blocks_left: blocks_left.into(),
            small,
            large,
            segments_left,
            locks: (0..parts.count as u32)
                .map(|part| CachePadded(Ranked::new(Rank::Loading(part), ())))
                .collect(),
            order: (0..segments).collect(),
            next: AtomicUsize::new(0),
            traffic: Traffic::new(),
            bytes_left: AtomicU64::new(total_bytes),
            total_bytes,
            failure: OnceLock::new(),
            buffers: Ranked::new(Rank::LoadBuffers, Vec::new()),
            buffers_made: AtomicUsize::new(0),
        }
    }

    /// Blocks with pending grains.
    pub fn blocks(&self) -> impl Iterator<Item = u64> + '_ {
        let left = self.blocks_left.iter().enumerate();
        left.filter(|(_, left)| left.load(Relaxed) > 0).map(|(block, _)| block as u64)
    }

    /// Bytes that are in memory, and all bytes.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.total_bytes - self.bytes_left.load(Acquire), self.total_bytes)
    }

    /// Whether nothing is pending.
    pub fn is_complete(&self) -> bool {
        self.bytes_left.load(Acquire) == 0
    }

    /// The first failure to read the image.
    pub(crate) fn failure(&self) -> Option<&Arc<OpenError>> {
        self.failure.get()
    }

    pub(super) fn fail(&self, error: OpenError) -> Arc<OpenError> {
        let error = Arc::new(error);
        let _ = self.failure.set(Arc::clone(&error));
        error
    }
}
