//! The grains and pages that lie in blocks of capacity memory.

use super::Ledger;
use crate::extent::mask;
use crate::geometry::{BLOCK_BYTES, WORD_GRAINS};
use crate::kind::Kind;

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

impl Ledger {
    /// The grains of a bitmap word that lie in capacity blocks.
    pub fn capacity_bits(&self, word: usize) -> u64 {
        let word_bytes = self.geometry().word_bytes();
        let from = word as u64 * word_bytes;
        if word_bytes <= BLOCK_BYTES {
            return if self.is_capacity_word(word) { u64::MAX } else { 0 };
        }
        let grains = BLOCK_BYTES / self.geometry().grain_bytes();
        (0..WORD_GRAINS / grains)
            .filter(|part| self.kind(from / BLOCK_BYTES + part) == Kind::Capacity)
            .fold(0, |bits, part| bits | mask(part * grains, grains))
    }

    /// Whether a bitmap word that is no longer than a block lies in a capacity block.
    #[inline]
    pub(crate) fn is_capacity_word(&self, word: usize) -> bool {
        let block = word as u64 * self.geometry().word_bytes() / BLOCK_BYTES;
        self.kind(block) == Kind::Capacity
    }

    /// Whether a page lies in a capacity block. Async-signal-safe.
    pub fn is_capacity_page(&self, page: u64) -> bool {
        self.kind(page * PAGE_BYTES / BLOCK_BYTES) == Kind::Capacity
    }
}
