//! Stores that go through memory in order: pages are opened before their first store, so that they
//! trap once for many pages.
//!
//! A page that is opened ahead is as dirty as any other: it is in the ledger and paid for before it
//! is open, whether it will be stored to or not. Nothing waits for it: a page that is owed, locked,
//! dirty already or beyond the budget is left to its own trap.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use super::pages::{Guard, PAGE_BYTES, PageTracker, mask_of};
use crate::extent::Extent;
use crate::geometry::WORD_GRAINS;
use crate::planted::Planted;
use crate::schedule::point;
use crate::stats::Counters;

/// Streams that are told apart.
const STREAMS: usize = 16;
/// Where the budget is smaller than the region, what a stream has opened is this many times what is
/// opened ahead of it: a page that was opened in vain drives out another. Elsewhere it costs no
/// more than its write at the next checkpoint, and as much is opened as was.
const SHARE_OF_SCARCE: u64 = 4;
/// Pages that are entered in the page table by one system call. Fewer are entered faster by the
/// fault that each of them takes at its first store, even when it is open.
const ENTERED_AT_ONCE: u64 = 16;

/// What the last traps say about streams of stores. These are hints: a lost change does no harm.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// For each stream the pages that it has opened without a gap, as a packed [`Extent`].
    opened: [AtomicU64; STREAMS],
    /// The stream that is forgotten next.
    oldest: AtomicUsize,
}

impl Streams {
    /// Notes a trap. Returns the number of the stream that it belongs to, and how many pages the
    /// stream had opened before.
    fn trapped(&self, page: u64) -> (usize, u64) {
        for (number, opened) in self.opened.iter().enumerate() {
            let before = Extent::unpack(opened.load(Relaxed));
            if before.len > 0 && before.grain + before.len == page {
                self.note(number, Extent { len: before.len + 1, ..before });
                return (number, before.len);
            }
        }
        let number = self.oldest.fetch_add(1, Relaxed) % STREAMS;
        self.note(number, Extent { grain: page, len: 1 });
        (number, 0)
    }

    /// Notes that `pages` behind `page`, the last trap of the stream, were opened, too.
    fn went_ahead(&self, number: usize, page: u64, pages: u64) {
        let before = Extent::unpack(self.opened[number].load(Relaxed));
        if before.grain + before.len == page + 1 {
            self.note(number, Extent { len: before.len + pages, ..before });
        }
    }

    fn note(&self, number: usize, opened: Extent) {
        let forgotten = opened.len.saturating_sub(Extent::LEN_MAX);
        let kept = Extent { grain: opened.grain + forgotten, len: opened.len - forgotten };
        self.opened[number].store(kept.pack(), Relaxed);
    }
}

impl PageTracker {
    /// Opens pages behind `page`, which has trapped and is open now, if stores come in order. The
    /// caller is inside the gate.
    pub(super) fn open_ahead(&self, page: u64) {
        let (stream, before) = self.streams.trapped(page);
        let budget = &self.memory.budget;
        let is_scarce = budget.effective_limit(&self.memory.ledger) < self.memory.region_bytes();
        let wanted = if is_scarce { before / SHARE_OF_SCARCE } else { before };
        if wanted == 0 || budget.has_waiters() {
            return;
        }
        // The pages of one bitmap word at most. The region's last word may not be whole.
        let end = self.memory.region_bytes() / PAGE_BYTES;
        let end = end.min((page | (WORD_GRAINS - 1)) + 1).min(page + 1 + wanted);
        if page + 1 >= end {
            return;
        }
        let word = (page / WORD_GRAINS) as usize;
        let clean = self.clean_run(Extent { grain: page + 1, len: end - page - 1 });
        if clean.len == 0 {
            return;
        }
        let locked = self.lock_pages(word, mask_of(clean));
        let mine = u64::from((locked >> (clean.grain % WORD_GRAINS)).trailing_ones());
        // Looked at again, because a fault may have come in between.
        let clean = self.clean_run(Extent { len: mine, ..clean });
        if clean.len > 0 && self.open_clean(clean) {
            self.streams.went_ahead(stream, page, clean.len);
        }
        self.unlock_pages(word, locked);
        self.unblocked.notify();
    }

    /// The first pages of a run in one word as far as they are clean, closed and not owed, and not
    /// of capacity memory. A page that is owed is not even locked, because the drain relies on it;
    /// none becomes owed inside the gate.
    fn clean_run(&self, run: Extent) -> Extent {
        let (ledger, word) = (&self.memory.ledger, (run.grain / WORD_GRAINS) as usize);
        let parity = self.memory.parity();
        let owed = match self.memory.planted.is(Planted::OpenOwedAhead) {
            true => 0,
            false => ledger.bitmap(parity ^ 1)[word].load(Acquire),
        };
        let used = ledger.bitmap(parity)[word].load(Acquire) | owed | self.open_bits(word);
        let free = run.len.min(u64::from((used >> (run.grain % WORD_GRAINS)).trailing_zeros()));
        let is_tracked = |page: &u64| !ledger.is_capacity_page(*page);
        let len = (run.grain..run.grain + free).take_while(is_tracked).count() as u64;
        Extent { len, ..run }
    }

    /// Enters pages of one word in the ledger and opens them. Returns false if they do not fit the
    /// budget, or the table of mappings.
    fn open_clean(&self, run: Extent) -> bool {
        let bytes = run.len * PAGE_BYTES;
        if self.open_pages.load(Relaxed) + run.len > self.open_pages_max
            || !self.memory.budget.try_take(&self.memory.ledger, bytes)
        {
            return false;
        }
        let (word, bits) = ((run.grain / WORD_GRAINS) as usize, mask_of(run));
        let parity = self.memory.parity();
        if !self.memory.planted.is(Planted::OpenAheadBeforeAccounting) {
            point();
            self.memory.ledger.bitmap(parity)[word].fetch_or(bits, AcqRel);
            self.memory.summary(parity).mark(word);
            point();
        }
        Counters::add(&self.memory.stats.dirtied_bytes, bytes);
        for page in run.grain..run.grain + run.len {
            self.memory.hints.mark_written(page, false);
        }
        self.note_open(word, bits, run.len);
        // After a failure here the pages count as open though they are closed or not entered; their
        // next stores trap or fault.
        if self.protect(run.grain, run.len, false).is_ok()
            && run.len >= ENTERED_AT_ONCE
            && matches!(self.guard, Guard::Uffd(..))
        {
            let _ = self.memory.map.populate(run.grain * PAGE_BYTES, bytes as usize);
        }
        true
    }
}

#[cfg(test)]
mod tests;
