//! The device's rate, as the cleaner's own writes show it. Pure arithmetic: bytes and times in, a
//! judgement out.
//!
//! What counts is an interval between two looks at the queue over which the device had work all the
//! time: after it, more than [`deep_bytes`] of what was outstanding before it still are. How long
//! the cleaner took to copy, or to be scheduled, does not matter then: a busy machine does not make
//! a slow device. The time from a submission to an idle device until it is seen idle again says at
//! most that it is *no slower* than that. A device that hides its writes in a cache shows in its
//! flushes: what a large flush takes longer than a small one, at the shortest, is time per byte
//! too. The fixed cost of a flush is not: the emergency flush pays it once.
//!
//! The conservative rate is the 10th percentile of the last samples. It is judged too slow only
//! when it has been a fifth below what the promise needs for ten seconds, and the newest sample
//! still is; once it is, the judgement follows it until it is back. It never says that the device
//! is faster than was proven.
//!
//! [`deep_bytes`]: Observed::size_for

use std::collections::VecDeque;

/// Samples looked back at.
const SAMPLES_MAX: usize = 16;
/// When so many in a row are fine, what was slow before them is over.
const SAMPLES_FINE: usize = 4;
/// Fewer say nothing.
const SAMPLES_MIN: usize = 8;
/// Flushes of a kind looked back at.
const FLUSHES_MAX: usize = 16;
/// A rate below this share of what is needed is too slow.
const SLOW_PERCENT: u64 = 80;
/// A rate of this share of what is needed is no longer too slow.
const RECOVERED_PERCENT: u64 = 90;
/// So long it must have been too slow.
const SLOW_FOR_NS: u64 = 10_000_000_000;

/// What is known of the device's rate, and what is made of it.
#[derive(Debug, Default)]
pub struct Observed {
    /// Rate that was proven, bytes per second; 0: nothing is promised, nothing is watched.
    proven: u64,
    deep_bytes: u64,
    sample_bytes: u64,
    looked_ns: u64,
    outstanding_bytes: u64,
    /// Of them, submitted since the last look.
    fresh_bytes: u64,
    /// When the device was given work, idle before.
    began_ns: u64,
    /// Submitted since then.
    begun_bytes: u64,
    /// The sample being taken.
    busy: Sum,
    /// What was done from idle to idle.
    at_least: Sum,
    rates: VecDeque<u64>,
    taken: u64,
    small_flushes_ns: VecDeque<u64>,
    /// Nanoseconds and bytes.
    large_flushes: VecDeque<(u64, u64)>,
    slow_since_ns: Option<u64>,
    is_slow: bool,
}

/// Whether the promise can still be kept in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// As far as is known.
    Kept,
    /// Not at this rate, bytes per second.
    Slow(u64),
}

#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    bytes: u64,
    ns: u64,
}

impl Observed {
    /// From now on watches a device of which `proven` bytes per second are expected; 0 ends it.
    pub fn watch(&mut self, proven: u64, budget_bytes: u64) {
        *self = Self { proven, outstanding_bytes: self.outstanding_bytes, ..Self::default() };
        self.size_for(budget_bytes);
    }

    /// What the cleaner keeps outstanding follows from what may be dirty, and so does an eighth of
    /// a proof.
    pub fn size_for(&mut self, limit_bytes: u64) {
        self.deep_bytes = (limit_bytes / 16).clamp(128 << 10, 4 << 20);
        self.sample_bytes = (limit_bytes / 8).clamp(1 << 20, 32 << 20);
    }

    /// Whether anything is watched: without, the clock need not be asked.
    pub fn is_watching(&self) -> bool {
        self.proven > 0
    }

    /// Enough is outstanding that waiting for it in two steps shows the device's rate.
    pub fn is_deep(&self) -> bool {
        self.is_watching() && self.outstanding_bytes >= 2 * self.deep_bytes
    }

    /// Whether the time of the next submission matters.
    pub fn is_idle(&self) -> bool {
        self.is_watching() && self.outstanding_bytes == 0
    }

    /// A write was submitted; `now_ns` is a time before that, if the device was idle.
    pub fn submitted(&mut self, bytes: u64, now_ns: u64) {
        if self.outstanding_bytes == 0 {
            (self.began_ns, self.begun_bytes) = (now_ns, 0);
        }
        self.begun_bytes += bytes;
        self.outstanding_bytes += bytes;
        self.fresh_bytes += bytes;
    }

    /// The queue was looked at, and `done_bytes` had completed since the last look. True: there is
    /// a new sample.
    pub fn looked(&mut self, now_ns: u64, done_bytes: u64) -> bool {
        let interval_ns = now_ns.saturating_sub(self.looked_ns);
        self.outstanding_bytes = self.outstanding_bytes.saturating_sub(done_bytes);
        let stayed_bytes = self.outstanding_bytes.saturating_sub(self.fresh_bytes);
        self.looked_ns = now_ns;
        self.fresh_bytes = 0;
        if !self.is_watching() {
            return false;
        }
        if stayed_bytes >= self.deep_bytes {
            self.busy.bytes += done_bytes;
            self.busy.ns += interval_ns;
        } else if self.outstanding_bytes == 0 && done_bytes > 0 {
            self.at_least.bytes += self.begun_bytes;
            self.at_least.ns += now_ns.saturating_sub(self.began_ns);
        }
        self.take_sample()
    }

    /// What was outstanding has ended, unseen.
    pub fn forget_outstanding(&mut self) {
        (self.outstanding_bytes, self.fresh_bytes) = (0, 0);
    }

    /// The device, idle otherwise, was flushed after writes of `bytes`.
    pub fn flushed(&mut self, bytes: u64, took_ns: u64) {
        if bytes >= self.deep_bytes {
            push(&mut self.large_flushes, (took_ns, bytes), FLUSHES_MAX);
        } else if bytes <= self.deep_bytes / 8 {
            push(&mut self.small_flushes_ns, took_ns, FLUSHES_MAX);
        }
    }

    /// Samples taken so far.
    pub fn samples(&self) -> u64 {
        self.taken
    }

    /// The conservative rate, bytes per second, at most the proven one; 0: not known.
    pub fn rate(&self) -> u64 {
        if self.rates.len() < SAMPLES_MIN {
            return 0;
        }
        let mut sorted: Vec<u64> = self.rates.iter().copied().collect();
        sorted.sort_unstable();
        self.with_flush(sorted[sorted.len() / 10])
    }

    /// A rate of writing, and the time to flush what was written; at most the proven rate.
    fn with_flush(&self, written: u64) -> u64 {
        // Time per MiB.
        let ns = (1u64 << 20).saturating_mul(NS_PER_S) / written.max(1) + self.flush_ns_per_mib();
        ((1u64 << 20) * NS_PER_S / ns.max(1)).min(self.proven)
    }

    /// Whether `needed` bytes per second can still be promised.
    pub fn judge(&mut self, now_ns: u64, needed: u64) -> Judgement {
        let rate = self.rate();
        let bound = if self.is_slow { RECOVERED_PERCENT } else { SLOW_PERCENT };
        let bound = needed.saturating_mul(bound) / 100;
        if rate == 0 || rate >= bound {
            (self.is_slow, self.slow_since_ns) = (false, None);
            return Judgement::Kept;
        }
        let mut newest = self.rates.iter().rev().map(|rate| self.with_flush(*rate) >= bound);
        let is_fine_now = newest.next() == Some(true);
        if !self.is_slow && is_fine_now && newest.take(SAMPLES_FINE - 1).all(|is_fine| is_fine) {
            self.slow_since_ns = None;
            return Judgement::Kept;
        }
        let since_ns = *self.slow_since_ns.get_or_insert(now_ns);
        // Time in which nothing was seen is no evidence: what comes after it is.
        self.is_slow |= !is_fine_now && now_ns.saturating_sub(since_ns) >= SLOW_FOR_NS;
        if self.is_slow { Judgement::Slow(rate) } else { Judgement::Kept }
    }

    fn take_sample(&mut self) -> bool {
        if let Some(rate) = self.busy.full(self.sample_bytes) {
            (self.busy, self.at_least) = (Sum::default(), Sum::default());
            self.push_rate(rate);
            return true;
        }
        if let Some(rate) = self.at_least.full(self.sample_bytes) {
            self.at_least = Sum::default();
            // A lower bound is news only where less was believed, and no evidence of what is slow.
            if self.rate() != 0
                && rate > self.rate()
                && let Some(lowest) = self.rates.iter_mut().min()
            {
                *lowest = rate;
                self.taken += 1;
                return true;
            }
        }
        false
    }

    fn push_rate(&mut self, rate: u64) {
        self.taken += 1;
        push(&mut self.rates, rate, SAMPLES_MAX);
    }

    /// What a large flush takes longer than a small one, for each MiB: the shortest of both, for
    /// noise only adds.
    fn flush_ns_per_mib(&self) -> u64 {
        let Some(fixed_ns) = self.small_flushes_ns.iter().min() else { return 0 };
        self.large_flushes
            .iter()
            .map(|(took_ns, bytes)| {
                took_ns.saturating_sub(*fixed_ns).saturating_mul(1 << 20) / bytes
            })
            .min()
            .unwrap_or(0)
    }
}

impl Sum {
    /// Bytes per second, if so many bytes have been seen and took any time.
    fn full(&self, sample_bytes: u64) -> Option<u64> {
        let full = self.bytes >= sample_bytes && self.ns > 0;
        full.then(|| {
            let rate = u128::from(self.bytes) * u128::from(NS_PER_S) / u128::from(self.ns);
            u64::try_from(rate).unwrap_or(u64::MAX)
        })
    }
}

fn push<T>(ring: &mut VecDeque<T>, item: T, most: usize) {
    if ring.len() == most {
        ring.pop_front();
    }
    ring.push_back(item);
}

const NS_PER_S: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const PROVEN: u64 = 1000 * MIB;

    fn watching() -> Observed {
        let mut observed = Observed::default();
        observed.watch(PROVEN, 64 * MIB);
        observed
    }

    /// A full queue, kept full: writes of 1 MiB at `rate` for `mib`.
    fn saturate(observed: &mut Observed, now_ns: &mut u64, rate: u64, mib: u64) -> u64 {
        let mut samples = 0;
        observed.submitted(16 * MIB, *now_ns);
        observed.looked(*now_ns, 0);
        for _ in 0..mib {
            *now_ns += MIB * NS_PER_S / rate;
            samples += u64::from(observed.looked(*now_ns, MIB));
            observed.submitted(MIB, *now_ns);
        }
        // The rest ends whenever it likes; nobody looks for a while.
        *now_ns += NS_PER_S;
        observed.looked(*now_ns, 16 * MIB);
        samples
    }

    fn close_to(rate: u64, expected: u64) -> bool {
        rate.abs_diff(expected) <= expected / 20
    }

    #[test]
    fn a_saturated_queue_shows_the_rate_and_never_more_than_was_proven() {
        let (mut observed, mut now) = (watching(), 0);
        assert_eq!(observed.rate(), 0);
        assert_eq!(saturate(&mut observed, &mut now, 300 * MIB, 80), 10);
        assert!(close_to(observed.rate(), 300 * MIB), "{}", observed.rate());
        saturate(&mut observed, &mut now, 5000 * MIB, 400);
        assert_eq!(observed.rate(), PROVEN);
    }

    #[test]
    fn a_cleaner_that_is_slow_itself_says_nothing_of_the_device() {
        let (mut observed, mut now) = (watching(), 0);
        for _ in 0..10_000 {
            // 4 MiB, one after another, each looked for long after it was done: 4 MiB/s.
            observed.submitted(4 * MIB, now);
            now += NS_PER_S;
            observed.looked(now, 4 * MIB);
            assert_eq!(observed.judge(now, PROVEN), Judgement::Kept);
        }
        assert_eq!((observed.samples(), observed.rate()), (0, 0));
        // Small writes outstanding all the time are no burden either.
        observed.submitted(64 << 10, now);
        for _ in 0..10_000 {
            observed.submitted(4 << 10, now);
            now += NS_PER_S;
            observed.looked(now, 4 << 10);
        }
        assert_eq!(observed.samples(), 0);
    }

    #[test]
    fn slow_is_said_late_and_taken_back_when_it_is_over() {
        let (mut observed, mut now) = (watching(), 0);
        saturate(&mut observed, &mut now, 200 * MIB, 400);
        assert_eq!(observed.judge(now, PROVEN), Judgement::Kept);
        assert_eq!(observed.judge(now + SLOW_FOR_NS - 1, PROVEN), Judgement::Kept);
        let Judgement::Slow(rate) = observed.judge(now + SLOW_FOR_NS, PROVEN) else { panic!() };
        assert!(close_to(rate, 200 * MIB));
        now += SLOW_FOR_NS;
        // Not for a promise that needs less.
        assert_eq!(observed.judge(now, 200 * MIB), Judgement::Kept);
        assert_eq!(observed.judge(now, PROVEN), Judgement::Kept);
        assert!(matches!(observed.judge(now + SLOW_FOR_NS, PROVEN), Judgement::Slow(_)));
        // Better, not yet good: it follows.
        saturate(&mut observed, &mut now, 850 * MIB, 400);
        let Judgement::Slow(rate) = observed.judge(now, PROVEN) else { panic!() };
        assert!(close_to(rate, 850 * MIB));
        saturate(&mut observed, &mut now, PROVEN, 400);
        assert_eq!(observed.judge(now, PROVEN), Judgement::Kept);
    }

    #[test]
    fn a_pause_now_and_then_is_not_slowness() {
        let (mut observed, mut now) = (watching(), 0);
        for round in 0..100 {
            saturate(&mut observed, &mut now, PROVEN, 80);
            if round % 10 == 0 {
                saturate(&mut observed, &mut now, 20 * MIB, 8);
            }
            now += SLOW_FOR_NS;
            assert_eq!(observed.judge(now, PROVEN), Judgement::Kept, "round {round}");
        }
    }

    #[test]
    fn a_lower_bound_raises_what_is_believed_and_never_lowers_it() {
        let (mut observed, mut now) = (watching(), 0);
        saturate(&mut observed, &mut now, 200 * MIB, 400);
        let shallow = |observed: &mut Observed, now: &mut u64, rate: u64| {
            for _ in 0..400 {
                observed.looked(*now, 0);
                observed.submitted(MIB, *now);
                *now += MIB * NS_PER_S / rate;
                observed.looked(*now, MIB);
            }
        };
        shallow(&mut observed, &mut now, 50 * MIB);
        assert!(close_to(observed.rate(), 200 * MIB));
        shallow(&mut observed, &mut now, 600 * MIB);
        assert!(close_to(observed.rate(), 600 * MIB), "{}", observed.rate());
    }

    #[test]
    fn a_flush_that_takes_time_per_byte_counts_and_a_fixed_cost_does_not() {
        let (mut observed, mut now) = (watching(), 0);
        saturate(&mut observed, &mut now, PROVEN, 400);
        for _ in 0..10 {
            observed.flushed(4 << 10, 5_000_000);
            observed.flushed(4 * MIB, 5_000_000);
        }
        assert!(close_to(observed.rate(), PROVEN));
        for _ in 0..20 {
            observed.flushed(4 * MIB, 5_000_000 + 4 * NS_PER_S / 100);
        }
        // 1 ms to write a MiB, 10 ms to flush it.
        assert!(close_to(observed.rate(), MIB * 1000 / 11), "{}", observed.rate());
    }

    #[test]
    fn a_hiccup_before_a_pause_is_not_slowness() {
        let (mut observed, mut now) = (watching(), 0);
        saturate(&mut observed, &mut now, PROVEN, 400);
        saturate(&mut observed, &mut now, 20 * MIB, 16);
        assert!(observed.rate() < PROVEN / 2);
        assert_eq!(observed.judge(now, PROVEN), Judgement::Kept);
        now += 100 * SLOW_FOR_NS;
        for _ in 0..50 {
            saturate(&mut observed, &mut now, PROVEN, 8);
            assert_eq!(observed.judge(now, PROVEN), Judgement::Kept);
        }
    }

    #[test]
    fn a_device_that_is_slow_in_its_flushes_is_slow() {
        let (mut observed, mut now) = (watching(), 0);
        saturate(&mut observed, &mut now, PROVEN, 400);
        for _ in 0..20 {
            observed.flushed(4 << 10, 5_000_000);
            observed.flushed(4 * MIB, 5_000_000 + 4 * NS_PER_S / 100);
        }
        assert_eq!(observed.judge(now, PROVEN), Judgement::Kept);
        assert!(matches!(observed.judge(now + SLOW_FOR_NS, PROVEN), Judgement::Slow(_)));
    }
}
