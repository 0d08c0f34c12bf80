//! How writes are noticed: announced by the writer, or trapped page by page.

use crate::core::Core;

/// The tracking mode of a region.
pub(crate) enum Tracking {
    /// Writers announce ranges under a lane.
    Barrier,
    /// Pages are write-protected until opened.
    Pages(PageTracker),
}

/// Trapped tracking: pages are closed (write-protected) unless entered in the ledger.
pub(crate) enum PageTracker {}

impl PageTracker {
    /// Locks and write-protects the pages `bits` of a bitmap word. Returns those that are closed now.
    pub fn close(&self, _core: &Core, _word: usize, _bits: u64) -> u64 {
        match *self {}
    }

    /// Unlocks pages closed before; `reopen` are still dirty and may be opened again.
    pub fn release(&self, _core: &Core, _word: usize, _bits: u64, _reopen: u64) {
        match *self {}
    }

    /// Runs `flip` at an instant at which no page is open.
    pub fn cut(&self, _core: &Core, _flip: impl FnOnce()) {
        match *self {}
    }
}
