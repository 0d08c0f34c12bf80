//! Reading a lane's blocks, which are loaded on first use.

use std::sync::atomic::Ordering::Acquire;

use crate::backing::Backing;
use crate::geometry::BLOCK_BYTES;
use crate::lanes::LaneId;
use crate::tracked::Tracked;

/// The right to read a lane's blocks.
#[derive(Clone, Copy)]
pub struct LaneMemory<'g> {
    pub(crate) tracked: &'g Tracked,
    pub(crate) backing: &'g dyn Backing,
    pub(crate) lane: LaneId,
}

impl<'g> LaneMemory<'g> {
    /// Reads bytes of the region, which must belong to this lane.
    #[inline]
    pub fn bytes(&self, offset: u64, len: usize) -> &'g [u8] {
        self.own(offset, len as u64);
        // SAFETY: the range belongs to a lane whose guard is borrowed for `'g`, so no one changes
        // it.
        unsafe { self.tracked.memory.map.bytes(offset, len) }
    }

    /// Reads the 8-byte word at `offset`, which is a multiple of 8.
    // Searches read a word for each entry that they compare: a call costs more than the read.
    #[inline(always)]
    pub fn load(&self, offset: u64) -> u64 {
        // An aligned word lies in one block.
        if !self.tracked.lanes.is_ready(offset, self.lane) {
            self.own_and_load(offset, 8);
        }
        self.tracked.memory.map.words(offset, 1)[0].load(Acquire)
    }

    /// Asserts that a range belongs to the lane, and loads its blocks if they are not loaded. A
    /// write outside the own lane would race with the cleaner and be lost.
    #[inline]
    pub(crate) fn own(&self, offset: u64, len: u64) {
        if !self.tracked.lanes.is_range_ready(offset, len, self.lane) {
            self.own_and_load(offset, len);
        }
    }

    /// Asserts the owner of each block and loads it; unwinds with `Unreadable` where a block cannot
    /// be loaded.
    #[inline(never)]
    fn own_and_load(&self, offset: u64, len: u64) {
        self.own_blocks(offset, len);
        for block in offset / BLOCK_BYTES..=(offset + len.max(1) - 1) / BLOCK_BYTES {
            self.backing.load_or_unwind(block);
        }
    }

    /// Asserts that the blocks of a range belong to the lane, and loads nothing.
    pub(crate) fn own_blocks(&self, offset: u64, len: u64) {
        for block in offset / BLOCK_BYTES..=(offset + len.max(1) - 1) / BLOCK_BYTES {
            let owner = self.tracked.lanes.of(block * BLOCK_BYTES);
            assert!(owner == self.lane, "block {block} belongs to {owner:?}, not {:?}", self.lane);
        }
    }
}
