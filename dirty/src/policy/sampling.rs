//! The number of open pages that are protected again in one call, to see which of them are written
//! again (Viyojit, section 5.2). Pure arithmetic.
//!
//! The batch is sized so that protecting and the traps that follow take at most a tenth of the time
//! between calls.

use super::kind::PolicyKind;

/// Share of the writers' and the cleaner's time that sampling may take: one part in this many.
const COST_SHARE: u64 = 10;
/// The cost for the writer of a trap that a signal handler serves, nanoseconds (measured: 5 to 8
/// us).
pub const SIGNAL_TRAP_NS: u64 = 7_000;
/// The same where another thread serves it (measured: 15 us while no processor sleeps, 46 to 65 us
/// in a virtual machine whose processors do).
pub const MESSAGE_TRAP_NS: u64 = 50_000;
/// The assumed cost of protecting a page until it has been measured, nanoseconds.
const PROTECT_NS: u64 = 1_000;
/// Pages protected again in one call, at most.
const BATCH_MAX: u64 = 4_096;

/// The state of sampling, which only the cleaner uses.
#[derive(Debug, Clone, Copy)]
pub struct Sampling {
    call_ns: u64,
    trap_ns: u64,
    called_ns: u64,
    /// Moving average of the time to protect a page, nanoseconds.
    protect_ns: u64,
    /// Moving average of the share of a batch's pages that trapped again, in 1/256.
    touched: u64,
    last_batch: u64,
    touches_before: u64,
}

impl Sampling {
    /// For calls that come every `call_ns`, and traps that cost the writer `trap_ns`.
    pub fn new(call_ns: u64, trap_ns: u64) -> Self {
        Self {
            call_ns: call_ns.max(1),
            trap_ns,
            called_ns: 0,
            protect_ns: PROTECT_NS,
            touched: 256,
            last_batch: 0,
            touches_before: 0,
        }
    }

    /// Whether a call is due; it may come early because a fault waits.
    pub fn is_due(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns.saturating_sub(self.called_ns) >= self.call_ns;
        if is_due {
            self.called_ns = now_ns;
        }
        is_due
    }

    /// Whether sampling is needed: the policy heeds rewrites, and at least half of the budget is in
    /// use. With less in use nothing will be cleaned soon.
    pub fn is_needed(policy: PolicyKind, used_bytes: u64, limit_bytes: u64) -> bool {
        policy.heeds_rewrites() && used_bytes >= limit_bytes / 2
    }

    /// Notes that no page is protected in this call.
    pub fn rest(&mut self) {
        self.last_batch = 0;
    }

    /// The number of pages that may be protected now. `touches`: traps on dirty pages so far.
    pub fn batch(&mut self, touches: u64) -> u64 {
        let new = touches.wrapping_sub(self.touches_before);
        self.touches_before = touches;
        if let Some(share) = (new.min(self.last_batch) * 256).checked_div(self.last_batch) {
            self.touched = (self.touched * 3 + share) / 4;
        }
        let page_ns = self.protect_ns + self.trap_ns * self.touched / 256;
        (self.call_ns / COST_SHARE / page_ns.max(1)).clamp(1, BATCH_MAX)
    }

    /// Notes that `pages` were protected in `took_ns`.
    pub fn protected(&mut self, pages: u64, took_ns: u64) {
        self.last_batch = pages;
        if let Some(page_ns) = took_ns.checked_div(pages) {
            self.protect_ns = (self.protect_ns * 3 + page_ns) / 4;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_and_its_traps_take_a_tenth_of_the_time() {
        let mut sampling = Sampling::new(1_000_000, SIGNAL_TRAP_NS);
        assert!(
            sampling.is_due(1_000_000) && !sampling.is_due(1_999_999) && sampling.is_due(2_000_000)
        );
        // At first every page is taken to trap again.
        assert_eq!(sampling.batch(0), 100_000 / 8_000);
        sampling.protected(12, 12 * 200);
        // None trapped again, so pages are cheaper than assumed, and batches grow step by step.
        let batches: Vec<u64> = (0..40)
            .map(|_| {
                let batch = sampling.batch(0);
                sampling.protected(batch, batch * 200);
                batch
            })
            .collect();
        assert!(batches.is_sorted());
        assert_eq!(batches.last(), Some(&(100_000 / 200)));
        assert!(Sampling::is_needed(PolicyKind::ClockPro, 50, 100));
        assert!(!Sampling::is_needed(PolicyKind::ClockPro, 49, 100));
        assert!(!Sampling::is_needed(PolicyKind::Fifo, 100, 100));
    }
}
