//! Which dirty pages are written again (Viyojit, section 5.2): the paper clears the MMU's dirty
//! bits once an epoch; a process can only protect dirty pages again and see which of them trap.
//!
//! A page protected again stays dirty and in the ledger; its next store costs a trap and no budget.
//! An epoch ends when every page that was open has been protected once. Each call does a bounded
//! batch, sized so that protecting and the traps that follow take at most a tenth of the time
//! between calls; so a large dirty set stretches the epoch instead of slowing the writers. Policies
//! that ask nothing of it cost nothing, and neither does a dirty set below half of the budget:
//! nothing of it will be cleaned soon.

use std::sync::atomic::Ordering::*;
use std::time::Duration;

use super::pages::PageTracker;
use crate::core::Core;
use perdura_dirty::policy::sampling::Sampling;
use perdura_dirty::stats::Counters;

/// Where sampling is; the cleaner's alone.
#[derive(Debug)]
pub(super) struct Recency {
    sampling: Sampling,
    /// Bitmap word to go on from.
    hand: usize,
    epoch_began_ns: u64,
}

impl Recency {
    pub fn new(call_every: Duration) -> Self {
        let sampling = Sampling::new(call_every.as_nanos() as u64);
        Self { sampling, hand: 0, epoch_began_ns: 0 }
    }
}

impl PageTracker {
    /// One call of the cleaner's thread, which may come early because a fault waits: a batch of
    /// sampling if one is due. Advances the policy's epoch at its end.
    pub(crate) fn sample(&self, core: &Core) {
        let mut recency = self.recency.lock();
        if !recency.sampling.is_due(core.clock.now_ns()) {
            return;
        }
        let used = core.ledger.budget_used().load(Relaxed);
        let limit = core.budget.effective_limit(&core.ledger);
        if !core.recency || !Sampling::is_needed(core.policy, used, limit) {
            recency.sampling.rest();
            return self.end_epoch(core, &mut recency);
        }
        let batch = recency.sampling.batch(self.touches.load(Relaxed));
        let began_ns = core.clock.now_ns();
        let (pages, next) = self.close_open(core, recency.hand, batch);
        recency.sampling.protected(pages, core.clock.now_ns().saturating_sub(began_ns));
        match next {
            Some(word) => recency.hand = word,
            None => self.end_epoch(core, &mut recency),
        }
    }

    fn end_epoch(&self, core: &Core, recency: &mut Recency) {
        recency.hand = 0;
        core.tick.fetch_add(1, Relaxed);
        Counters::add(&core.stats.epochs, 1);
        let now_ns = core.clock.now_ns();
        if recency.epoch_began_ns != 0 {
            let took_ns = now_ns.saturating_sub(recency.epoch_began_ns);
            core.stats.epoch_ns_last.store(took_ns, Relaxed);
        }
        recency.epoch_began_ns = now_ns;
    }

    /// Makes room in the mapping table by closing what is open; dirty pages stay dirty.
    pub(crate) fn relieve(&self, core: &Core) {
        if self.crowded.swap(false, AcqRel) {
            self.close_open(core, 0, u64::MAX);
            self.door.notify();
        }
    }

    /// Closes about `batch` open pages from word `from` on. Returns how many, and where to go on.
    fn close_open(&self, core: &Core, from: usize, batch: u64) -> (u64, Option<usize>) {
        let (mut pages, mut next) = (0, None);
        self.for_open_words(from, |word, open| {
            if pages >= batch {
                next = Some(word);
                return false;
            }
            let closed = self.close(core, word, open);
            pages += u64::from((closed & open).count_ones());
            self.release(core, word, closed, 0);
            true
        });
        (pages, next)
    }
}
