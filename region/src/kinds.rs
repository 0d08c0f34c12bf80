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

pub(crate) use change::KindChange;

use std::ops::Range;
use std::sync::atomic::Ordering::*;

use perdura_dirty::kind::{Kind, KindBits};
use rustix::io::Errno;

use crate::attachment::map_region;
use crate::core::Core;
use crate::error::OpenError;
use crate::region::Region;
use crate::tracking::PAGE_BYTES;
use perdura_dirty::error::RegionError;
use perdura_dirty::geometry::{BLOCK_BYTES, WORD_GRAINS};
use perdura_dirty::ledger::Ledger;
use perdura_dirty::planted::Planted;
use perdura_dirty::sys::{NODES_MAX, SharedMemory};

impl Region {
    /// What a block is.
    ///
    /// # Panics
    /// The region has no such block.
    pub fn kind(&self, block: u64) -> Kind {
        let blocks = self.len_bytes() / BLOCK_BYTES;
        assert!(block < blocks, "block {block} leaves a region of {blocks} blocks");
        self.core().ledger.kind(block)
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
        let core = self.core();
        core.check_blocks(&blocks)?;
        let mut written_bytes = 0;
        for block in blocks {
            if core.ledger.kind(block) == kind || core.change_idle(block, kind)? {
                continue;
            }
            match kind {
                Kind::Capacity => written_bytes += core.make_capacity(block)?,
                Kind::Persistent => core.open_cleaner()?.make_persistent(core, block)?,
            }
        }
        // Zeros leave the account when they are on the device.
        if written_bytes > 0 { core.open_cleaner()?.settle_zeros(core) } else { Ok(()) }
    }

    /// Takes the memory of capacity blocks from one NUMA node only (CXL memory, or NVM, as a node),
    /// what is there already included, until they become persistent again or the region is opened
    /// anew.
    ///
    /// # Errors
    /// A block is persistent, there is no such node, or the system refuses: then parts may be
    /// bound.
    pub fn bind_capacity(&self, blocks: Range<u64>, numa_node: u32) -> Result<(), RegionError> {
        let core = self.core();
        core.check_blocks(&blocks)?;
        let _kinds_stay = core.kind_change.one.lock();
        let mut all = blocks.clone();
        if let Some(block) = all.find(|block| core.ledger.kind(*block) != Kind::Capacity) {
            return Err(RegionError::NotCapacity { block });
        }
        if numa_node >= NODES_MAX {
            return Err(RegionError::NoNode { node: numa_node });
        }
        if blocks.is_empty() {
            return Ok(());
        }
        // First: the binding outlives this process, and who takes over must know of it.
        for kind in &core.ledger.kinds()[blocks.start as usize..blocks.end as usize] {
            kind.store(KindBits::BoundCapacity.to_byte(), Release);
        }
        let len = (blocks.end - blocks.start) * BLOCK_BYTES;
        let outcome = core.map.bind(blocks.start * BLOCK_BYTES, len as usize, numa_node);
        outcome.map_err(|source| match source {
            Errno::INVAL => RegionError::NoNode { node: numa_node },
            source => {
                let (first, end) = (blocks.start, blocks.end);
                RegionError::Binding { first, end, node: numa_node, source }
            }
        })
    }
}

impl Core {
    /// The grains of a bitmap word that lie in capacity blocks.
    pub fn capacity_bits(&self, word: usize) -> u64 {
        let word_bytes = self.ledger.geometry().word_bytes();
        let from = word as u64 * word_bytes;
        if word_bytes <= BLOCK_BYTES {
            return if self.is_capacity_word(word) { u64::MAX } else { 0 };
        }
        let grains = BLOCK_BYTES / self.ledger.geometry().grain_bytes();
        (0..WORD_GRAINS / grains)
            .filter(|part| self.ledger.kind(from / BLOCK_BYTES + part) == Kind::Capacity)
            .fold(0, |bits, part| bits | perdura_dirty::extent::mask(part * grains, grains))
    }

    /// Whether a bitmap word that is no longer than a block lies in a capacity block.
    #[inline]
    pub fn is_capacity_word(&self, word: usize) -> bool {
        let block = word as u64 * self.ledger.geometry().word_bytes() / BLOCK_BYTES;
        self.ledger.kind(block) == Kind::Capacity
    }

    /// Whether a page lies in a capacity block. Async-signal-safe.
    pub fn is_capacity_page(&self, page: u64) -> bool {
        self.ledger.kind(page * PAGE_BYTES / BLOCK_BYTES) == Kind::Capacity
    }

    fn check_blocks(&self, blocks: &Range<u64>) -> Result<(), RegionError> {
        self.check()?;
        let region_blocks = self.region_bytes() / BLOCK_BYTES;
        if blocks.start <= blocks.end && blocks.end <= region_blocks {
            return Ok(());
        }
        Err(RegionError::Blocks { first: blocks.start, end: blocks.end, region_blocks })
    }
}

/// Empties what a region that is gone had as capacity memory, and makes it persistent: first the
/// one, then the other, so that who is killed in between leaves it to the next.
pub(crate) fn empty_capacity(
    ledger: &Ledger,
    memory: &SharedMemory,
    planted: Planted,
) -> Result<(), OpenError> {
    let blocks = (ledger.region_bytes().load(Acquire) / BLOCK_BYTES) as usize;
    let refused = |source| OpenError::Memory {
        what: "capacity blocks of the region, which were to be emptied,",
        len_bytes: blocks as u64 * BLOCK_BYTES,
        source,
    };
    for (block, kind) in ledger.kinds()[..blocks].iter().enumerate() {
        let bits = kind.load(Acquire);
        if !KindBits::is_capacity(bits) {
            continue;
        }
        let offset = block as u64 * BLOCK_BYTES;
        if bits == KindBits::BoundCapacity.to_byte() {
            map_region(memory)?.unbind(offset, BLOCK_BYTES as usize).map_err(refused)?;
        }
        if !planted.is(Planted::KeepCapacity) {
            memory.punch(offset, BLOCK_BYTES).map_err(refused)?;
        }
        kind.store(KindBits::Persistent.to_byte(), Release);
    }
    Ok(())
}
