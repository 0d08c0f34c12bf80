//! The account of dirty bytes: the bytes that would be lost without a flush never exceed the
//! budget.
//!
//! `used` counts credit handed out, dirty grains, and bytes copied but not yet durable. It rises
//! only by compare-and-swap against the limit, so it never overshoots, and falls only when bytes
//! are durable, were never dirtied, or ceased to matter (freed memory). Limit, used bytes and
//! high-water mark lie in the ledger, so that a test or a holder can read them.
//!
//! Waiting is a futex on a version word, so a fault handler may call everything here.

use std::time::Duration;

use perdura_media::Clock;

use crate::ledger::Ledger;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering::*, fence, wake};

/// The account of one region. The numbers that other processes must see lie in the ledger.
#[derive(Debug)]
pub struct Budget {
    /// The smaller limit that is being reached, bytes; `u64::MAX` while no change is pending.
    pending_limit: AtomicU64,
    /// Bytes that a drain into the log's spare segments could take: a limit only while the log is
    /// nearly full.
    space_limit: AtomicU64,
    /// Bytes that the device could flush in time: a limit only while the device is slower than was
    /// proven.
    rate_limit: AtomicU64,
    version: AtomicU32,
    waiters: AtomicU32,
    /// Threads whose wait the release of a lane may end.
    lane_waiters: AtomicU32,
    /// A version word for the cleaner's thread alone, so that writers who give bytes back do not
    /// wake it.
    cleaner_version: AtomicU32,
    /// More used bytes than this wake the cleaner's thread, once; `u64::MAX` while the thread
    /// works.
    call_above: AtomicU64,
    closed: AtomicBool,
    held: AtomicBool,
}

impl Default for Budget {
    /// An account with no limit but the one in the ledger.
    fn default() -> Self {
        Self {
            pending_limit: AtomicU64::new(u64::MAX),
            space_limit: AtomicU64::new(u64::MAX),
            rate_limit: AtomicU64::new(u64::MAX),
            version: AtomicU32::new(0),
            waiters: AtomicU32::new(0),
            lane_waiters: AtomicU32::new(0),
            cleaner_version: AtomicU32::new(0),
            call_above: AtomicU64::new(u64::MAX),
            closed: AtomicBool::new(false),
            held: AtomicBool::new(false),
        }
    }
}

impl Budget {
    /// Takes `bytes` from the budget if they fit now; returns whether they did.
    pub fn try_take(&self, ledger: &Ledger, bytes: u64) -> bool {
        let used = ledger.budget_used();
        let mut seen = used.load(SeqCst);
        loop {
            let Some(next) =
                seen.checked_add(bytes).filter(|next| *next <= self.effective_limit(ledger))
            else {
                return false;
            };
            match used.compare_exchange_weak(seen, next, SeqCst, SeqCst) {
                Ok(_) => return self.keep_taken(ledger, bytes, next),
                Err(now) => seen = now,
            }
        }
    }

    /// Keeps `bytes` that were just added to the account, which makes `used` bytes in use. Gives
    /// them back and returns false if the limit fell in between.
    fn keep_taken(&self, ledger: &Ledger, bytes: u64, used: u64) -> bool {
        if used > self.effective_limit(ledger) {
            // Nothing was dirtied for these bytes yet. Whoever looked meanwhile saw them in use,
            // and may have gone to sleep over them.
            ledger.budget_used().fetch_sub(bytes, SeqCst);
            self.notify();
            return false;
        }
        if used > ledger.budget_high().load(Relaxed) {
            ledger.budget_high().fetch_max(used, Relaxed);
        }
        if used > self.call_above.load(SeqCst) {
            self.call_above.store(u64::MAX, SeqCst);
            self.call_cleaner();
        }
        true
    }

    /// Gives `bytes` back to the budget and wakes those who wait.
    pub fn give_back(&self, ledger: &Ledger, bytes: u64) {
        if bytes == 0 {
            return;
        }
        if self.is_closed() {
            // The final flush counts the dirty bytes anew, without the credit that writers may
            // still hold.
            let _ = ledger
                .budget_used()
                .fetch_update(AcqRel, Acquire, |used| Some(used.saturating_sub(bytes)));
            return;
        }
        let before = ledger.budget_used().fetch_sub(bytes, AcqRel);
        assert!(before >= bytes, "budget account fell below zero: {before} - {bytes}");
        self.notify();
    }

    /// A number that changes with every notification. A waiter reads it before it checks the
    /// condition that it waits for.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version.load(SeqCst)
    }

    /// Wakes everyone who waits for a change of any kind.
    #[inline]
    pub fn notify(&self) {
        self.version.fetch_add(1, SeqCst);
        if self.waiters.load(SeqCst) > 0 {
            wake(&self.version, i32::MAX as u32);
        }
    }

    /// Sleeps until a notification after `seen`, at most `longest`.
    pub fn wait(&self, clock: &dyn Clock, seen: u32, longest: Duration) {
        self.waiters.fetch_add(1, SeqCst);
        clock.wait_change(&self.version, seen, longest);
        self.waiters.fetch_sub(1, SeqCst);
    }

    /// Counts the caller among those whose wait the release of a lane may end, so that releases
    /// notify. Call it before looking at what lanes hold.
    pub fn wait_for_lanes(&self) -> LaneWait<'_> {
        self.lane_waiters.fetch_add(1, SeqCst);
        // Pairs with the fence of `Tell::drop`: bits of the ledger are looked at without a lane.
        fence(SeqCst);
        LaneWait(self)
    }

    /// The number that changes with every call of the cleaner's thread; see [`Budget::version`].
    #[inline]
    pub fn cleaner_version(&self) -> u32 {
        self.cleaner_version.load(SeqCst)
    }

    /// Lets the cleaner's thread sleep until it is called, or more than `call_above` bytes are
    /// used, but no longer than `longest`.
    pub fn wait_as_cleaner(
        &self,
        clock: &dyn Clock,
        ledger: &Ledger,
        seen: u32,
        call_above: u64,
        longest: Duration,
    ) {
        self.call_above.store(call_above, SeqCst);
        // A writer who went beyond it before it was set has not called.
        if ledger.budget_used().load(SeqCst) <= call_above {
            clock.wait_change(&self.cleaner_version, seen, longest);
        }
        self.call_above.store(u64::MAX, SeqCst);
    }

    /// Wakes the cleaner's thread.
    pub(crate) fn call_cleaner(&self) {
        self.cleaner_version.fetch_add(1, SeqCst);
        wake(&self.cleaner_version, 1);
    }

    /// Whether somebody waits for budget: a hint.
    #[inline]
    pub fn has_waiters(&self) -> bool {
        self.waiters.load(Relaxed) > 0
    }

    /// Begins to shrink the budget: from now on nothing new fits above `limit`.
    pub fn begin_shrink(&self, limit: u64) {
        self.pending_limit.store(limit, SeqCst);
    }

    /// Whether a smaller budget is being reached.
    pub fn is_shrinking(&self, ledger: &Ledger) -> bool {
        self.pending_limit.load(Relaxed) < ledger.budget_limit().load(Relaxed)
    }

    /// Sets the limit that the log's spare space allows, bytes.
    pub fn limit_by_space(&self, bytes: u64) {
        if self.space_limit.swap(bytes, SeqCst) < bytes {
            self.notify();
        }
    }

    /// Sets the limit that the device's rate allows, bytes. Returns the limit before.
    pub(crate) fn limit_by_rate(&self, bytes: u64) -> u64 {
        let before = self.rate_limit.swap(bytes, SeqCst);
        if before < bytes {
            self.notify();
        }
        before
    }

    /// The limit that new takes are held to: the smallest of the limit in force, the one being
    /// reached, and those that the device's rate and the log's space allow.
    pub fn effective_limit(&self, ledger: &Ledger) -> u64 {
        self.wanted_limit(ledger).min(self.space_limit.load(Relaxed))
    }

    /// The limit of new takes as [`Budget::effective_limit`] says it, but regardless of the log's
    /// space.
    pub fn wanted_limit(&self, ledger: &Ledger) -> u64 {
        // The pending limit is read first, because it is withdrawn last: in the other order this
        // could see the old limit, and then that none is pending any more.
        let pending = self.pending_limit.load(SeqCst);
        pending.min(ledger.budget_limit().load(SeqCst)).min(self.rate_limit.load(SeqCst))
    }

    /// Puts `limit` in force. Returns false if more than that is used at this moment.
    #[must_use]
    pub fn commit_limit(&self, ledger: &Ledger, limit: u64) -> bool {
        let used = ledger.budget_used().load(SeqCst);
        if used > limit {
            return false;
        }
        ledger.budget_high().store(used, SeqCst);
        ledger.budget_limit().store(limit, SeqCst);
        self.pending_limit.store(u64::MAX, SeqCst);
        self.notify();
        true
    }

    /// Gives up a change of the limit that could not be made.
    pub fn abandon_change(&self) {
        self.pending_limit.store(u64::MAX, SeqCst);
        self.notify();
    }

    /// Ends all waiting, because the region's final flush has begun.
    pub fn close(&self) {
        self.closed.store(true, SeqCst);
        self.notify();
        self.call_cleaner();
    }

    /// Lets writers wait, or go on. A writer that has its lane by now ends its operation.
    pub fn hold(&self, is_held: bool) {
        self.held.store(is_held, SeqCst);
        self.notify();
    }

    /// Whether writers wait.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.held.load(Acquire)
    }

    /// Whether the final flush has begun.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }
}

/// A wait that the release of a lane may end, for as long as this lives.
pub struct LaneWait<'b>(&'b Budget);

impl Drop for LaneWait<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.lane_waiters.fetch_sub(1, SeqCst);
    }
}

/// Notifies waiters when it is dropped. Declared after a lock, it does so once that is released.
#[derive(Default)]
pub struct Tell<'b>(Whom<'b>);

/// Whom a release notifies. Without a `Drop` of its own, so that another choice notifies nobody.
#[derive(Default, Clone, Copy)]
enum Whom<'b> {
    #[default]
    Nobody,
    All(&'b Budget),
    LaneWaiters(&'b Budget),
}

impl<'b> Tell<'b> {
    /// Notifies everybody who waits for budget.
    pub fn all(budget: &'b Budget) -> Self {
        Self(Whom::All(budget))
    }

    /// From now on notifies those who wait for the release of a lane ([`Budget::wait_for_lanes`]).
    /// Nearly always there is nobody, and the line of the version stays with the processor that
    /// has it.
    pub(crate) fn lane_waiters(&mut self, budget: &'b Budget) {
        self.0 = Whom::LaneWaiters(budget);
    }

    /// From now on notifies nobody, because nothing has changed that could end a wait.
    pub fn nobody(&mut self) {
        self.0 = Whom::Nobody;
    }
}

impl Drop for Tell<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.0 {
            Whom::Nobody => {}
            Whom::All(budget) => budget.notify(),
            Whom::LaneWaiters(budget) => {
                // Either this sees the waiter, or the waiter sees what was done under the lane: it
                // counts itself before it looks.
                fence(SeqCst);
                if budget.lane_waiters.load(Relaxed) > 0 {
                    budget.notify();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{BLOCK_BYTES, GRAIN_SHIFT_TRAP, Geometry};

    fn ledger() -> Ledger {
        let geometry = Geometry::new(4 * BLOCK_BYTES, GRAIN_SHIFT_TRAP, None, 4).unwrap();
        Ledger::create(geometry, 7, geometry.reserved_bytes).unwrap()
    }

    #[test]
    fn bytes_taken_while_the_limit_falls_are_given_back_and_who_waits_for_them_is_notified() {
        let (ledger, budget) = (ledger(), Budget::default());
        assert!(budget.commit_limit(&ledger, 4 * BLOCK_BYTES));
        assert!(budget.try_take(&ledger, BLOCK_BYTES));
        // Another thread is between its addition and its second look at the limit. Whoever shrinks
        // the budget meanwhile sees its bytes in use, and waits.
        let used = ledger.budget_used().fetch_add(BLOCK_BYTES, SeqCst) + BLOCK_BYTES;
        budget.begin_shrink(BLOCK_BYTES);
        let seen = budget.version();
        assert!(!budget.commit_limit(&ledger, BLOCK_BYTES));
        assert!(!budget.keep_taken(&ledger, BLOCK_BYTES, used));
        assert_ne!(budget.version(), seen, "whoever waits was not notified");
        assert!(budget.commit_limit(&ledger, BLOCK_BYTES));
        assert_eq!(ledger.budget_high().load(SeqCst), BLOCK_BYTES);
    }

    #[test]
    fn bytes_that_are_given_back_and_limits_that_rise_notify() {
        let (ledger, budget) = (ledger(), Budget::default());
        let notifies = |act: &dyn Fn()| {
            let seen = budget.version();
            act();
            budget.version() != seen
        };
        assert!(notifies(&|| assert!(budget.commit_limit(&ledger, 4 * BLOCK_BYTES))));
        assert!(budget.try_take(&ledger, 4096));
        assert!(notifies(&|| budget.give_back(&ledger, 4096)));
        for (bytes, expected) in [(BLOCK_BYTES, false), (2 * BLOCK_BYTES, true)] {
            assert_eq!(notifies(&|| _ = budget.limit_by_rate(bytes)), expected);
            assert_eq!(notifies(&|| budget.limit_by_space(bytes)), expected);
            assert!(!notifies(&|| budget.begin_shrink(bytes)));
        }
        assert!(notifies(&|| budget.abandon_change()));
        assert!(notifies(&|| budget.close()));
    }

    #[test]
    fn a_release_tells_whom_it_was_to_tell_and_after_the_close_no_account_is_kept() {
        let (ledger, budget) = (ledger(), Budget::default());
        let notifies = |act: &dyn Fn()| {
            let seen = budget.version();
            act();
            budget.version() != seen
        };
        let to_lanes = || Tell::default().lane_waiters(&budget);
        assert!(notifies(&|| drop(Tell::all(&budget))));
        assert!(!notifies(&|| drop(Tell::default())) && !notifies(&to_lanes));
        assert!(!notifies(&|| Tell::all(&budget).nobody()));
        {
            let _wait = budget.wait_for_lanes();
            let _other = budget.wait_for_lanes();
            assert!(notifies(&to_lanes) && !notifies(&|| Tell::all(&budget).nobody()));
        }
        assert!(!notifies(&to_lanes), "nobody waits any more");
        assert!(budget.commit_limit(&ledger, 4 * BLOCK_BYTES));
        assert!(budget.try_take(&ledger, 10));
        assert!(!notifies(&|| budget.give_back(&ledger, 0)));
        budget.give_back(&ledger, 4);
        assert!(!budget.is_closed());
        budget.close();
        assert!(budget.is_closed());
        // The flush counts anew, so more may come back than is in the account.
        for used in [1, 0] {
            budget.give_back(&ledger, 5);
            assert_eq!(ledger.budget_used().load(SeqCst), used);
        }
    }

    #[test]
    fn the_cleaner_is_called_once_when_more_is_used_than_it_said() {
        let (ledger, budget) = (ledger(), Budget::default());
        assert!(budget.commit_limit(&ledger, 4 * BLOCK_BYTES));
        let calls = |act: &dyn Fn()| {
            let seen = budget.cleaner_version();
            act();
            budget.cleaner_version() != seen
        };
        let take = || assert!(budget.try_take(&ledger, 4096));
        assert!(!calls(&take), "nobody asked to be called");
        budget.call_above.store(2 * 4096, SeqCst);
        assert!(!calls(&take), "as much is used as the cleaner leaves");
        assert!(calls(&take));
        assert!(!calls(&take), "it was called already");
        assert!(calls(&|| budget.call_cleaner()) && calls(&|| budget.close()));
    }

    #[test]
    fn every_limit_holds_for_new_takes_and_the_smallest_counts() {
        let (ledger, budget) = (ledger(), Budget::default());
        assert!(budget.commit_limit(&ledger, 4 * BLOCK_BYTES));
        let lower: [(&str, &dyn Fn(u64)); 3] = [
            ("pending", &|bytes| budget.begin_shrink(bytes)),
            ("space", &|bytes| budget.limit_by_space(bytes)),
            ("rate", &|bytes| _ = budget.limit_by_rate(bytes)),
        ];
        for (name, limit) in lower {
            limit(2 * BLOCK_BYTES);
            assert_eq!(budget.effective_limit(&ledger), 2 * BLOCK_BYTES, "{name}");
            let wanted = if name == "space" { 4 } else { 2 };
            assert_eq!(budget.wanted_limit(&ledger), wanted * BLOCK_BYTES, "{name}");
            assert!(!budget.try_take(&ledger, 2 * BLOCK_BYTES + 1), "{name}");
            assert!(budget.try_take(&ledger, 2 * BLOCK_BYTES), "{name}");
            assert!(!budget.try_take(&ledger, 1), "{name}");
            budget.give_back(&ledger, 2 * BLOCK_BYTES);
            limit(u64::MAX);
        }
        assert!(budget.try_take(&ledger, 3 * BLOCK_BYTES));
        assert!(!budget.commit_limit(&ledger, 3 * BLOCK_BYTES - 1), "more is used");
        assert!(budget.commit_limit(&ledger, 3 * BLOCK_BYTES));
        assert!(!budget.try_take(&ledger, 1) && !budget.try_take(&ledger, u64::MAX));
    }
}
