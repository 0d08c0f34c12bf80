//! Which dirty pages are written again (Viyojit, section 5.2): the paper clears the MMU's dirty bits once
//! an epoch; a process can only protect dirty pages again and see which of them trap.
//!
//! A page protected again stays dirty and in the ledger; its next store costs a trap and no budget. An epoch
//! ends when every page that was open has been protected once. Each call does a bounded batch, sized so
//! that protecting and the traps that follow take at most a tenth of the time between calls; so a large dirty
//! set stretches the epoch instead of slowing the writers. Policies that ask nothing of it cost nothing, and
//! neither does a dirty set below half of the budget: nothing of it will be cleaned soon.

use std::sync::atomic::Ordering::*;
use std::time::Duration;

use super::pages::PageTracker;
use crate::core::Core;
use crate::policy::PolicyKind;
use crate::stats::Counters;

/// Share of the writers' and the cleaner's time that sampling may take: one part in this many.
const COST_SHARE: u64 = 10;
/// What a trap on a dirty page costs the writer, nanoseconds (measured: 5-8 us).
const TRAP_NS: u64 = 7_000;
/// What protecting a page costs until it has been measured, nanoseconds.
const PROTECT_NS: u64 = 1_000;
/// Pages protected again in one call, at most.
const BATCH_MAX: u64 = 4_096;

/// Where sampling is; the cleaner's alone.
#[derive(Debug)]
pub(super) struct Recency {
    call_ns: u64,
    /// Bitmap word to go on from.
    hand: usize,
    epoch_began_ns: u64,
    called_ns: u64,
    /// Moving average of protecting one page.
    protect_ns: u64,
    /// Moving average of the pages of a batch that trapped again, in 1/256.
    touched: u64,
    last_batch: u64,
    touches_before: u64,
}

impl Recency {
    pub fn new(call_every: Duration) -> Self {
        Self {
            call_ns: (call_every.as_nanos() as u64).max(1),
            hand: 0,
            epoch_began_ns: 0,
            called_ns: 0,
            protect_ns: PROTECT_NS,
            touched: 256,
            last_batch: 0,
            touches_before: 0,
        }
    }

    /// Pages that may be protected now.
    fn batch(&mut self, touches: u64) -> u64 {
        let new = touches.wrapping_sub(self.touches_before);
        self.touches_before = touches;
        if let Some(share) = (new.min(self.last_batch) * 256).checked_div(self.last_batch) {
            self.touched = (self.touched * 3 + share) / 4;
        }
        let page_ns = self.protect_ns + TRAP_NS * self.touched / 256;
        (self.call_ns / COST_SHARE / page_ns.max(1)).clamp(1, BATCH_MAX)
    }
}

impl PageTracker {
    /// One call of the cleaner's thread, which may come early because a fault waits: a batch of sampling if
    /// one is due. Advances the policy's epoch at its end.
    pub(crate) fn sample(&self, core: &Core) {
        let mut recency = self.recency.lock();
        let now_ns = core.clock.now_ns();
        if now_ns.saturating_sub(recency.called_ns) < recency.call_ns {
            return;
        }
        recency.called_ns = now_ns;
        let used = core.ledger.budget_used().load(Relaxed);
        let needed = core.recency
            && matches!(
                core.policy,
                PolicyKind::ClockPro | PolicyKind::Segmented | PolicyKind::LeastRecentlyUpdated
            );
        if !needed || used < core.budget.effective_limit(&core.ledger) / 2 {
            recency.last_batch = 0;
            return self.end_epoch(core, &mut recency);
        }
        let batch = recency.batch(self.touches.load(Relaxed));
        let began_ns = core.clock.now_ns();
        let (pages, next) = self.close_open(core, recency.hand, batch);
        recency.last_batch = pages;
        let took_ns = core.clock.now_ns().saturating_sub(began_ns);
        if let Some(page_ns) = took_ns.checked_div(pages) {
            recency.protect_ns = (recency.protect_ns * 3 + page_ns) / 4;
        }
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
