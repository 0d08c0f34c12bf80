//! Kinds of memory, by block: persistent, or capacity, which is neither tracked nor written.
//!
//! Invariants:
//! - no grain of a capacity block has a dirty bit, so that cleaning, drains and flushes neither
//!   copy nor charge any of it; in trap mode its pages are not protected;
//! - the image holds zeros for a capacity block, or nothing: the newest copies are zeros that were
//!   written when the block was emptied, and compaction writes zeros where it moves them;
//! - the kinds lie in the ledger, so that a process which takes the memory over knows what to
//!   empty. The image has no kinds.
//!
//! A kind changes in `change`, with the block's writers excluded, and with the cleaner held if the
//! block is dirty or the image has copies of it. After a restart of any sort every block is
//! persistent, and former capacity blocks read as zeros.

mod change;

use std::ops::Range;
use std::sync::atomic::Ordering::*;

use perdura_dirty::{Kind, KindBits, RegionError};
use rustix::io::Errno;

use crate::region::Region;
use perdura_dirty::geometry::BLOCK_BYTES;
use perdura_dirty::sys::NODES_MAX;

impl Region {
    /// The kind of a block.
    ///
    /// # Panics
    /// The region has no such block.
    pub fn kind(&self, block: u64) -> Kind {
        let blocks = self.len_bytes() / BLOCK_BYTES;
        assert!(block < blocks, "block {block} leaves a region of {blocks} blocks");
        self.running().backed.memory.ledger.kind(block)
    }

    /// Makes blocks persistent or capacity memory. A block that has the kind already stays as it
    /// is. Any other block is emptied: it reads as zeros, now and after a restart, and its bytes
    /// leave the budget's account. A block that becomes persistent is clean at first.
    ///
    /// Where the image has copies of a block, zeros are written for them. Like all cleaned bytes,
    /// these count after an unwarned loss from the next checkpoint on; before that, the loss brings
    /// back the contents of the last checkpoint. If the process is killed at any instruction, each
    /// block is as it was, or empty and of either kind.
    ///
    /// Nobody may use the blocks meanwhile: stores to them may be lost, and in trap mode the
    /// tracking of those pages with them. Waits for prepared writes of the blocks. Must be called
    /// with no lane held.
    ///
    /// # Errors
    /// The blocks before the one that failed have changed; [`Region::kind`] tells which.
    pub fn set_kind(&self, blocks: Range<u64>, kind: Kind) -> Result<(), RegionError> {
        let running = self.running();
        running.check_blocks(&blocks)?;
        let mut written_bytes = 0;
        for block in blocks {
            if running.backed.memory.ledger.kind(block) == kind
                || running.change_idle(block, kind)?
            {
                continue;
            }
            match kind {
                Kind::Capacity => written_bytes += running.make_capacity(block)?,
                Kind::Persistent => running.make_persistent(block)?,
            }
        }
        // The zeros leave the account when they are on the device.
        if written_bytes > 0 { running.make_zeros_durable() } else { Ok(()) }
    }

    /// Takes the memory of capacity blocks from one NUMA node only, which may be CXL memory or NVM.
    /// Pages that exist already are moved. The binding lasts until the blocks become persistent or
    /// the region is opened again.
    ///
    /// # Errors
    /// A block is persistent, there is no such node, or the system refuses. In the last case some
    /// blocks may be bound.
    pub fn bind_capacity(&self, blocks: Range<u64>, numa_node: u32) -> Result<(), RegionError> {
        let running = self.running();
        running.check_blocks(&blocks)?;
        let _kinds_stay = running.kind_change.one.lock();
        let mut all = blocks.clone();
        if let Some(block) =
            all.find(|block| running.backed.memory.ledger.kind(*block) != Kind::Capacity)
        {
            return Err(RegionError::NotCapacity { block });
        }
        if numa_node >= NODES_MAX {
            return Err(RegionError::NoNode { node: numa_node });
        }
        if blocks.is_empty() {
            return Ok(());
        }
        // Stored before the call: the binding outlives this process, and the next one must know of
        // it.
        for kind in
            &running.backed.memory.ledger.kinds()[blocks.start as usize..blocks.end as usize]
        {
            kind.store(KindBits::BoundCapacity.to_byte(), Release);
        }
        let len = (blocks.end - blocks.start) * BLOCK_BYTES;
        let outcome =
            running.backed.memory.map.bind(blocks.start * BLOCK_BYTES, len as usize, numa_node);
        outcome.map_err(|source| match source {
            Errno::INVAL => RegionError::NoNode { node: numa_node },
            source => {
                let (first, end) = (blocks.start, blocks.end);
                RegionError::Binding { first, end, node: numa_node, source }
            }
        })
    }
}
