//! The huge pages of a region's memory and of its ledger, given block by block.

use crate::gathered::Gathered;
use crate::geometry::BLOCK_BYTES;
use crate::ledger::Ledger;
use crate::sys::Mapping;

/// The pieces of a region's memory and of its ledger that have been given huge pages.
pub struct HugePages {
    memory: Gathered,
    ledger: Gathered,
}

impl HugePages {
    /// No piece has huge pages yet.
    pub fn new(map: &Mapping, ledger: &Ledger) -> Self {
        let ledger = Gathered::new(ledger.memory().len_bytes());
        Self { memory: Gathered::new(map.len_bytes()), ledger }
    }

    /// Gives huge pages to a block and to the ledger's entries about it.
    #[inline]
    pub fn for_block(&self, map: &Mapping, ledger: &Ledger, block: u64) {
        self.memory.cover(map, block * BLOCK_BYTES, BLOCK_BYTES);
        ledger.gather_for(&self.ledger, block);
    }
}
