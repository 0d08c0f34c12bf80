//! Kinds of memory, by block: persistent, or capacity, which is memory and nothing else.
//!
//! Invariants:
//! - no grain of a capacity block has a dirty bit, so nothing that goes by those bits (cleaning,
//!   drain, flush, whoever makes it) copies or charges any of it; in trap mode its pages are not
//!   protected;
//! - the image holds zeros for a capacity block, or nothing: its newest copies are zeros that were
//!   written when it was emptied, and where compaction moves those it writes zeros;
//! - the kinds lie in the ledger, so that who takes memory over knows what to empty. The image
//!   knows no kinds.
//!
//! A kind changes in `change`, with the block's writers excluded, and by who holds the cleaner if
//! the image has copies of the block or it is dirty. After a restart of any sort every block is
//! persistent, and what was capacity reads as zeros.

mod change;

use std::ops::Range;
use std::sync::atomic::Ordering::*;

use perdura_dirty::{Kind, KindBits, RegionError};
use rustix::io::Errno;

use crate::region::Region;
use perdura_dirty::geometry::BLOCK_BYTES;
use perdura_dirty::sys::NODES_MAX;

impl Region {
    /// What a block is.
    ///
    /// # Panics
    /// The region has no such block.
    pub fn kind(&self, block: u64) -> Kind {
        let blocks = self.len_bytes() / BLOCK_BYTES;
        assert!(block < blocks, "block {block} leaves a region of {blocks} blocks");
        self.running().backed.memory.ledger.kind(block)
    }

    /// Makes blocks persistent or capacity memory. A block that is of the kind already stays as it
    /// is; any other is emptied: it reads as zeros, now and after a restart, and what was charged
    /// for it is given back. As persistent memory it begins clean, and its first store is charged.
    ///
    /// Where the image has copies of the block, zeros are written for them, and are durable on
    /// return as cleaned bytes are: with the next checkpoint. A loss without warning before that
    /// brings back what the last checkpoint had. Killed at any instruction, each block is as it
    /// was, or empty and of either kind.
    ///
    /// Nobody may use the blocks meanwhile: what is stored to them may be lost, and with it, in
    /// trap mode, the tracking of that page. Waits for prepared writes of the blocks; must be
    /// called with no lane held.
    ///
    /// # Errors
    /// The blocks before the one that failed have changed; [`Region::kind`] tells.
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
        // Zeros leave the account when they are on the device.
        if written_bytes > 0 { running.make_zeros_durable() } else { Ok(()) }
    }

    /// Takes the memory of capacity blocks from one NUMA node only (CXL memory, or NVM, as a node),
    /// what is there already included, until they become persistent again or the region is opened
    /// anew.
    ///
    /// # Errors
    /// A block is persistent, there is no such node, or the system refuses: then parts may be
    /// bound.
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
        // First: the binding outlives this process, and who takes over must know of it.
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
