//! Sampling: dirty pages are protected again, a batch at a time, to see which are written again.

use std::sync::atomic::Ordering::*;

use super::pages::PageTracker;
use super::recency::Recency;
use crate::policy::sampling::Sampling;
use crate::stats::Counters;

impl PageTracker {
    /// Protects a batch of pages again, if a batch is due: the cleaner's thread may call early
    /// because a fault waits. Advances the policy's epoch when all open pages have been sampled.
    pub fn sample(&self) {
        let mut recency = self.recency.lock();
        if !recency.sampling.is_due(self.memory.clock.now_ns()) {
            return;
        }
        let used = self.memory.ledger.budget_used().load(Relaxed);
        let limit = self.memory.budget.effective_limit(&self.memory.ledger);
        let hints = &self.memory.hints;
        let may_clean = limit < self.memory.region_bytes();
        if !(may_clean && hints.recency && Sampling::is_needed(hints.policy, used, limit)) {
            recency.sampling.rest();
            return self.end_epoch(&mut recency);
        }
        let batch = recency.sampling.batch(self.touches.load(Relaxed));
        let began_ns = self.memory.clock.now_ns();
        let (pages, next) = self.close_open(recency.hand, batch);
        recency.sampling.protected(pages, self.memory.clock.now_ns().saturating_sub(began_ns));
        match next {
            Some(word) => recency.hand = word,
            None => self.end_epoch(&mut recency),
        }
    }

    fn end_epoch(&self, recency: &mut Recency) {
        recency.hand = 0;
        self.memory.hints.advance();
        Counters::add(&self.memory.stats.epochs, 1);
        let now_ns = self.memory.clock.now_ns();
        if recency.epoch_began_ns != 0 {
            let took_ns = now_ns.saturating_sub(recency.epoch_began_ns);
            self.memory.stats.epoch_ns_last.store(took_ns, Relaxed);
        }
        recency.epoch_began_ns = now_ns;
    }

    /// Makes room in the mapping table by closing all open pages, if a fault has asked for that.
    /// Dirty pages stay dirty.
    pub fn relieve(&self) {
        if self.crowded.swap(false, AcqRel) {
            self.close_open(0, u64::MAX);
            self.unblocked.notify();
        }
    }

    /// Closes about `batch` open pages from word `from` on. Returns how many, and the word at which
    /// to continue.
    fn close_open(&self, from: usize, batch: u64) -> (u64, Option<usize>) {
        let (mut pages, mut next) = (0, None);
        self.for_open_words(from, |word, open| {
            if pages >= batch {
                next = Some(word);
                return false;
            }
            let closed = self.close(word, open);
            pages += u64::from((closed & open).count_ones());
            self.release(word, closed, 0);
            true
        });
        (pages, next)
    }
}
