//! The bytes that memory must have, and the states to which a power cut may lead back, kept as
//! plainly as possible.

use std::sync::atomic::Ordering::Acquire;

use perdura_dirty::BufferState;
use perdura_dirty::extent::Extent;
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus as Random;

use super::{LANES, lane_of};
use crate::{BLOCK_BYTES, Need, Region};

/// Percentages of durable operations before which the writer beside the cleaner writes a little,
/// and before which it writes so much that the frame buffers for captures may not be enough.
const LITTLE_PERCENT: u32 = 30;
const MUCH_PERCENT: u32 = 8;
/// Lengths of writes, bytes: a record, several, and so many that a few fill a frame buffer.
const LENGTHS: [usize; 6] = [8, 200, 1_088, 5_000, 20_000, 60_000];

/// The contents of a region's memory by the writes that were done.
pub(super) struct Model {
    random: Random,
    pub(super) now: Vec<u8>,
    /// The state of the last commit that returned, and those at the cuts made since.
    pub(super) allowed: Vec<Vec<u8>>,
    /// Number of the epoch at the last look.
    epoch: u64,
    /// Whether anything was written since the last cut.
    pub(super) is_changed: bool,
    /// Writes beside the cleaner that found no frame buffer for a capture.
    pub(super) refused_captures: u64,
}

impl Model {
    pub(super) fn new(random: Random, len_bytes: u64) -> Self {
        let now = vec![0; len_bytes as usize];
        let allowed = vec![now.clone()];
        Self { random, now, allowed, epoch: 0, is_changed: false, refused_captures: 0 }
    }

    /// Goes on with a region that was just opened or attached.
    pub(super) fn follow(&mut self, region: &Region) {
        self.epoch = epoch_of(region);
        self.now.resize(region.len_bytes() as usize, 0);
    }

    /// Notes the state at a cut, if one was made since the last look. Nothing was written between.
    pub(super) fn notice_cut(&mut self, region: &Region) {
        let epoch = epoch_of(region);
        if std::mem::replace(&mut self.epoch, epoch) != epoch {
            self.allowed.push(self.now.clone());
            self.is_changed = false;
        }
    }

    /// Notes that a commit has returned, and that of the cuts the last one counts.
    pub(super) fn committed(&mut self, region: &Region) {
        self.notice_cut(region);
        self.allowed.drain(..self.allowed.len() - 1);
    }

    /// Notes that a flush has made everything durable.
    pub(super) fn flushed(&mut self) {
        self.allowed = vec![self.now.clone()];
    }

    /// Draws a write: its offset and its bytes. Half of the writes go to the last eighth of the
    /// memory, which a drain reaches last.
    pub(super) fn draw(&mut self) -> (u64, Vec<u8>) {
        let blocks = self.now.len() as u64 / BLOCK_BYTES;
        let within = if self.random.random() { blocks } else { blocks / 8 };
        let len = LENGTHS[self.random.random_range(0..LENGTHS.len())];
        let block = blocks - 1 - self.random.random_range(0..within);
        let offset = block * BLOCK_BYTES + self.random.random_range(0..=BLOCK_BYTES - len as u64);
        let mut bytes = vec![0; len];
        self.random.fill(&mut bytes[..]);
        if self.random.random() {
            // Bytes that can be compressed.
            bytes[len / 8..].fill(0x5a);
        }
        (offset, bytes)
    }

    /// Draws a grain with a copy in the open frame, which may get a second copy there.
    fn draw_copied(&mut self, region: &Region) -> Option<u64> {
        let ledger = &region.running().backed.memory.ledger;
        let mut buffers = (0..ledger.geometry().buffers).map(|number| ledger.buffer(number));
        let open = buffers.find(|buffer| buffer.state() == BufferState::Filling)?;
        let extents = (open.fill().load(Acquire) >> 32) as usize;
        let number = self.random.random_range(0..extents.max(1));
        let extent = Extent::unpack(open.table()[..extents].get(number)?.load(Acquire));
        Some(extent.grain * ledger.geometry().grain_bytes())
    }

    /// Writes as a user of the region does, once.
    pub(super) fn write(
        &mut self,
        region: &Region,
        credit: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Need> {
        self.notice_cut(region);
        region.lock_with(lane_of(offset), credit).write(offset, bytes)?;
        self.now[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        self.is_changed = true;
        Ok(())
    }

    /// Acts as the writer beside the cleaner: writes now and then, and gives up what finds no room.
    pub(super) fn beside(&mut self, region: &Region) {
        let writes = match self.random.random_range(0..100) {
            drawn if drawn < MUCH_PERCENT => 60,
            drawn if drawn < LITTLE_PERCENT => 2,
            _ => 0,
        };
        for number in 0..writes {
            let (mut offset, mut bytes) = self.draw();
            if number == 0
                && let Some(copied) = self.draw_copied(region)
            {
                (offset, bytes) = (copied, vec![self.random.random(); 8]);
            }
            // Without room nothing has changed; this writer does not wait.
            let refused = self.write(region, 0, offset, &bytes).err();
            self.refused_captures += u64::from(refused == Some(Need::Buffer));
        }
        self.notice_cut(region);
    }
}

fn epoch_of(region: &Region) -> u64 {
    region.running().backed.memory.ledger.epoch().load(Acquire)
}

/// All bytes of the region.
pub(super) fn memory(region: &Region) -> Vec<u8> {
    let block = |block| {
        let offset = block * BLOCK_BYTES;
        region.lock(lane_of(offset)).bytes(offset, BLOCK_BYTES as usize).to_vec()
    };
    (0..region.len_bytes() / BLOCK_BYTES).flat_map(block).collect()
}

/// Gives the blocks to the lanes in turn.
pub(super) fn assign(region: &Region) {
    assert_eq!(region.lanes(), LANES);
    for block in 0..region.geometry().blocks() as u64 {
        region.assign_block(block, lane_of(block * BLOCK_BYTES));
    }
}
