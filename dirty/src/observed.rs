//! The observed rate: how fast the device is, as the cleaner's own writes show it. Pure arithmetic:
//! it is given bytes and times, and returns a judgement.
//!
//! A sample is an interval between two looks at the queue during which the device had work all the
//! time: at its end more than [`deep_bytes`] of the bytes outstanding at its beginning still are.
//! So it does not matter how long the cleaner took to copy or to be scheduled, and a busy machine
//! does not make the device look slow. The time from a submission to an idle device until the
//! device is seen idle again only says that it is *no slower* than that.
//!
//! A device that hides writes in a cache shows its rate in flushes. The shortest time by which a
//! large flush takes longer than a small one is time per byte, too. The fixed cost of a flush is
//! not counted, because the emergency flush pays it once.
//!
//! The conservative rate is the 10th percentile of the last samples, and at most the proven rate.
//! It is judged too slow only when it has been a fifth below the rate that the promise needs for
//! ten seconds, and the newest sample still is. From then on the judgement follows the rate until
//! it has recovered.
//!
//! [`deep_bytes`]: Observed::size_for

use std::collections::VecDeque;

/// Samples that are kept.
const SAMPLES_MAX: usize = 16;
/// Fast samples in a row after which an earlier slowness counts as over.
const SAMPLES_FINE: usize = 4;
/// Fewest samples that give a rate.
const SAMPLES_MIN: usize = 8;
/// Small flushes, and large ones, that are kept.
const FLUSHES_MAX: usize = 16;
/// A rate below this share of the rate needed is too slow.
const SLOW_PERCENT: u64 = 80;
/// A rate of at least this share of the rate needed is no longer too slow.
const RECOVERED_PERCENT: u64 = 90;
/// Time for which the device counts as fast enough after it was seen to be.
const SURE_FOR_NS: u64 = 2_000_000_000;
/// A short queue must reach this part of the proven rate; a medium far away does not.
const SHORT_PART: u64 = 4;
/// Time after which a short queue that did not is tried again.
const DEAR_FOR_NS: u64 = 10_000_000_000;
/// Time after which a short queue's bytes are judged, however few they are.
const SHORT_JUDGED_NS: u64 = 1_000_000_000;
/// Time for which the rate must have been too slow.
const SLOW_FOR_NS: u64 = 10_000_000_000;

/// The samples of the device's rate, and the judgement of them.
#[derive(Debug, Default)]
pub struct Observed {
    /// The proven rate, bytes per second; 0: nothing is promised, so nothing is watched.
    proven: u64,
    deep_bytes: u64,
    sample_bytes: u64,
    looked_ns: u64,
    outstanding_bytes: u64,
    /// Outstanding bytes that were submitted since the last look.
    fresh_bytes: u64,
    /// Time at which the idle device was last given work.
    began_ns: u64,
    /// Bytes submitted since the idle device was last given work.
    begun_bytes: u64,
    /// The sample that is being taken.
    busy: Sum,
    /// Bytes and time from idle to idle: a lower bound of the rate.
    at_least: Sum,
    rates: VecDeque<u64>,
    taken: u64,
    small_flushes_ns: VecDeque<u64>,
    /// Duration in nanoseconds and bytes of each large flush.
    large_flushes: VecDeque<(u64, u64)>,
    slow_since_ns: Option<u64>,
    is_slow: bool,
    /// Until when the device counts as no slower than was proven, whatever the queue holds.
    sure_until_ns: u64,
    /// Whether one write at a time is submitted.
    is_short: bool,
    /// Bytes and time from idle to idle of such writes.
    short: Sum,
    /// Until when a short queue counts as far slower than a deep one.
    dear_until_ns: u64,
}

/// Whether the promise can still be kept in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// The promise can be kept, as far as is known.
    Kept,
    /// The promise cannot be kept at this rate, bytes per second.
    Slow(u64),
}

#[derive(Debug, Default, Clone, Copy)]
struct Sum {
    bytes: u64,
    ns: u64,
}

impl Observed {
    /// Begins to watch a device whose proven rate is `proven` bytes per second; 0 ends watching.
    /// What is outstanding counts as submitted just now, because the time before says nothing, and
    /// its own bytes count in no sample.
    pub(crate) fn watch(&mut self, proven: u64, budget_bytes: u64, now_ns: u64) {
        let (outstanding_bytes, fresh_bytes) = (self.outstanding_bytes, self.outstanding_bytes);
        let (looked_ns, began_ns) = (now_ns, now_ns);
        let before =
            Self { outstanding_bytes, fresh_bytes, looked_ns, began_ns, ..Self::default() };
        *self = Self { proven, ..before };
        self.size_for(budget_bytes);
    }

    /// Sizes the samples for a limit of dirty bytes, from which follows how much the cleaner keeps
    /// outstanding.
    pub(crate) fn size_for(&mut self, limit_bytes: u64) {
        self.deep_bytes = (limit_bytes / 16).clamp(128 << 10, 4 << 20);
        self.sample_bytes = (limit_bytes / 8).clamp(1 << 20, 32 << 20);
    }

    /// Whether the rate is watched; otherwise the clock need not be read.
    pub fn is_watching(&self) -> bool {
        self.proven > 0
    }

    /// Whether so much is outstanding that waiting for it in two steps shows the device's rate.
    pub fn is_deep(&self) -> bool {
        self.is_watching() && self.outstanding_bytes >= 2 * self.deep_bytes
    }

    /// Whether one write at a time is enough: the device was seen to be about as fast as proven a
    /// moment ago, and such writes were not seen to be far slower than that. If not, only a deep
    /// queue tells how fast it is, and makes use of it.
    pub fn may_be_short(&self, now_ns: u64) -> bool {
        let is_sure = now_ns < self.sure_until_ns && now_ns >= self.dear_until_ns;
        !self.is_watching() || is_sure
    }

    /// Notes whether one write at a time is submitted from now on.
    pub fn set_short(&mut self, is_short: bool) {
        if !std::mem::replace(&mut self.is_short, is_short) {
            self.short = Sum::default();
        }
    }

    /// Whether the device is idle, so that the time of the next submission matters.
    pub fn is_idle(&self) -> bool {
        self.is_watching() && self.outstanding_bytes == 0
    }

    /// Notes that a write was submitted. If the device was idle, `now_ns` is a time before the
    /// submission.
    pub fn submitted(&mut self, bytes: u64, now_ns: u64) {
        if self.outstanding_bytes == 0 {
            (self.began_ns, self.begun_bytes) = (now_ns, 0);
        }
        self.begun_bytes += bytes;
        self.outstanding_bytes += bytes;
        self.fresh_bytes += bytes;
    }

    /// Notes that the queue was looked at, and that `done_bytes` had completed since the last look.
    /// Returns whether there is a new sample.
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
            let one = Sum { bytes: self.begun_bytes, ns: now_ns.saturating_sub(self.began_ns) };
            self.at_least.add(one);
            if self.is_short {
                self.short.add(one);
                self.judge_short(now_ns);
            }
        }
        self.take_sample(now_ns)
    }

    /// Forgets the outstanding writes, which have ended without a look at the queue.
    pub fn forget_outstanding(&mut self) {
        (self.outstanding_bytes, self.fresh_bytes) = (0, 0);
    }

    /// Notes a flush of the otherwise idle device after writes of `bytes`.
    pub fn flushed(&mut self, bytes: u64, took_ns: u64) {
        if bytes >= self.deep_bytes {
            push(&mut self.large_flushes, (took_ns, bytes), FLUSHES_MAX);
        } else if bytes <= self.deep_bytes / 8 {
            push(&mut self.small_flushes_ns, took_ns, FLUSHES_MAX);
        }
    }

    /// The number of samples so far.
    pub(crate) fn samples(&self) -> u64 {
        self.taken
    }

    /// The conservative rate, bytes per second, at most the proven one; 0: not known.
    pub(crate) fn rate(&self) -> u64 {
        if self.rates.len() < SAMPLES_MIN {
            return 0;
        }
        let mut sorted: Vec<u64> = self.rates.iter().copied().collect();
        sorted.sort_unstable();
        self.with_flush(sorted[sorted.len() / 10])
    }

    /// The rate of writing and flushing, given the rate of writing alone; at most the proven rate.
    fn with_flush(&self, written: u64) -> u64 {
        // Nanoseconds per MiB.
        let ns = (1u64 << 20).saturating_mul(NS_PER_S) / written.max(1) + self.flush_ns_per_mib();
        ((1u64 << 20) * NS_PER_S / ns.max(1)).min(self.proven)
    }

    /// Whether `needed` bytes per second can still be promised.
    pub(crate) fn judge(&mut self, now_ns: u64, needed: u64) -> Judgement {
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
        // Time without samples is no evidence, so the newest sample must be slow, too.
        self.is_slow |= !is_fine_now && now_ns.saturating_sub(since_ns) >= SLOW_FOR_NS;
        if self.is_slow { Judgement::Slow(rate) } else { Judgement::Kept }
    }

    fn take_sample(&mut self, now_ns: u64) -> bool {
        if let Some(rate) = self.busy.full(self.sample_bytes) {
            (self.busy, self.at_least) = (Sum::default(), Sum::default());
            self.note_sure(rate, now_ns);
            self.push_rate(rate);
            return true;
        }
        if let Some(rate) = self.at_least.full(self.sample_bytes) {
            self.at_least = Sum::default();
            self.note_sure(rate, now_ns);
            // A lower bound only raises the rate; it is no evidence of slowness.
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

    /// Judges what a short queue has reached.
    fn judge_short(&mut self, now_ns: u64) {
        let least_bytes = if self.short.ns >= SHORT_JUDGED_NS { 1 } else { self.sample_bytes };
        if let Some(rate) = self.short.full(least_bytes) {
            self.short = Sum::default();
            if rate < self.proven / SHORT_PART {
                self.dear_until_ns = now_ns + DEAR_FOR_NS;
            }
        }
    }

    /// Notes a sample, if it shows that the device is fast enough.
    fn note_sure(&mut self, written: u64, now_ns: u64) {
        if self.with_flush(written) >= self.proven.saturating_mul(SLOW_PERCENT) / 100 {
            self.sure_until_ns = now_ns + SURE_FOR_NS;
        }
    }

    fn push_rate(&mut self, rate: u64) {
        self.taken += 1;
        push(&mut self.rates, rate, SAMPLES_MAX);
    }

    /// Nanoseconds per MiB by which a large flush takes longer than a small one. The shortest
    /// flushes count, because noise only adds time.
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
    fn add(&mut self, one: Self) {
        self.bytes += one.bytes;
        self.ns += one.ns;
    }

    /// Bytes per second, if at least `sample_bytes` have been seen and took any time.
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
        observed.watch(PROVEN, 64 * MIB, 0);
        observed
    }

    /// Keeps the queue full: `mib` writes of 1 MiB that complete at `rate`.
    fn saturate(observed: &mut Observed, now_ns: &mut u64, rate: u64, mib: u64) -> u64 {
        let mut samples = 0;
        observed.submitted(16 * MIB, *now_ns);
        observed.looked(*now_ns, 0);
        for _ in 0..mib {
            *now_ns += MIB * NS_PER_S / rate;
            samples += u64::from(observed.looked(*now_ns, MIB));
            observed.submitted(MIB, *now_ns);
        }
        // The rest ends at any time, because nobody looks for a while.
        *now_ns += NS_PER_S;
        observed.looked(*now_ns, 16 * MIB);
        samples
    }

    fn close_to(rate: u64, expected: u64) -> bool {
        rate.abs_diff(expected) <= expected / 20
    }

    #[test]
    fn the_size_of_samples_follows_the_limit_between_bounds() {
        let mut observed = Observed::default();
        for (limit_bytes, deep_bytes, sample_bytes) in [
            (64 * MIB, 4 * MIB, 8 * MIB),
            (30 * MIB, 30 * MIB / 16, 30 * MIB / 8),
            (MIB, MIB / 8, MIB),
            (1 << 40, 4 * MIB, 32 * MIB),
        ] {
            observed.watch(PROVEN, limit_bytes, 0);
            assert_eq!((observed.deep_bytes, observed.sample_bytes), (deep_bytes, sample_bytes));
            observed.outstanding_bytes = 2 * deep_bytes - 1;
            assert!(!observed.is_deep());
            observed.submitted(1, 0);
            assert!(observed.is_deep() && !observed.is_idle());
            observed.looked(0, 2 * deep_bytes);
            assert!(observed.is_idle());
        }
        observed.watch(0, MIB, 0);
        assert!(!observed.is_watching() && !observed.is_deep() && !observed.is_idle());
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
    fn what_was_submitted_before_is_outstanding_until_it_has_ended_and_gives_no_sample() {
        let mut observed = Observed::default();
        observed.submitted(100 * MIB, 0);
        assert!(!observed.looked(0, 40 * MIB));
        observed.watch(PROVEN, 64 * MIB, 0);
        // The first look comes long after all that.
        assert!(!observed.is_idle() && !observed.looked(1000 * NS_PER_S, 20 * MIB));
        assert_eq!((observed.busy.bytes, observed.at_least.bytes), (0, 0));
        assert!(observed.looked(1000 * NS_PER_S + 1, 20 * MIB), "the second shows the rate");
        observed.looked(2000 * NS_PER_S, 20 * MIB);
        assert!(observed.is_idle());
        observed.submitted(MIB, 0);
        observed.looked(0, MIB);
        observed.watch(PROVEN, 64 * MIB, 0);
        assert!(observed.is_idle());
    }

    #[test]
    fn what_is_submitted_behind_it_is_timed_from_the_beginning_of_the_watch() {
        let mut observed = Observed::default();
        observed.submitted(10 * MIB, 0);
        observed.watch(PROVEN, 64 * MIB, 50 * NS_PER_S);
        observed.submitted(MIB, 50 * NS_PER_S);
        observed.looked(51 * NS_PER_S, 11 * MIB);
        assert_eq!((observed.at_least.bytes, observed.at_least.ns), (MIB, NS_PER_S));
    }

    #[test]
    fn a_cleaner_that_is_slow_itself_says_nothing_of_the_device() {
        let (mut observed, mut now) = (watching(), 0);
        for _ in 0..10_000 {
            // Writes of 4 MiB one after another, each seen long after its end: 4 MiB/s.
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
        // A promise that needs less is kept.
        assert_eq!(observed.judge(now, 200 * MIB), Judgement::Kept);
        assert_eq!(observed.judge(now, PROVEN), Judgement::Kept);
        assert!(matches!(observed.judge(now + SLOW_FOR_NS, PROVEN), Judgement::Slow(_)));
        // The device is faster, but not fast enough: the judgement follows it.
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
    fn a_device_is_surely_fast_enough_for_a_while_after_it_was_seen_to_be() {
        assert!(Observed::default().may_be_short(0), "nothing is promised");
        let (mut observed, mut now) = (watching(), 0);
        assert!(!observed.may_be_short(now));
        let one_at_a_time = |observed: &mut Observed, now: &mut u64, rate: u64| {
            for _ in 0..8 {
                observed.looked(*now, 0);
                observed.submitted(MIB, *now);
                *now += MIB * NS_PER_S / rate;
                observed.looked(*now, MIB);
            }
        };
        one_at_a_time(&mut observed, &mut now, PROVEN / 100 * SLOW_PERCENT - MIB);
        assert!(!observed.may_be_short(now), "a deeper queue may be faster");
        one_at_a_time(&mut observed, &mut now, PROVEN / 100 * SLOW_PERCENT + MIB);
        assert!(
            observed.may_be_short(now + SURE_FOR_NS - 1)
                && !observed.may_be_short(now + SURE_FOR_NS)
        );
        now += SURE_FOR_NS;
        saturate(&mut observed, &mut now, PROVEN / 2, 80);
        assert!(!observed.may_be_short(now));
        saturate(&mut observed, &mut now, PROVEN, 80);
        // The end of the last sample is up to a second before that.
        assert!(observed.may_be_short(now));
        observed.watch(PROVEN, 64 * MIB, now);
        assert!(!observed.may_be_short(now), "another promise");
    }

    #[test]
    fn a_short_queue_that_is_far_slower_than_a_deep_one_is_given_up_for_a_while() {
        let (mut observed, mut now) = (watching(), 0);
        saturate(&mut observed, &mut now, PROVEN, 400);
        let one_at_a_time = |observed: &mut Observed, now: &mut u64, rate: u64, mib: u64| {
            for _ in 0..mib {
                observed.looked(*now, 0);
                observed.submitted(MIB, *now);
                *now += MIB * NS_PER_S / rate;
                observed.looked(*now, MIB);
            }
        };
        // A cleaner that is late itself says nothing of a short queue, if it has none.
        one_at_a_time(&mut observed, &mut now, MIB, 1);
        saturate(&mut observed, &mut now, PROVEN, 400);
        assert!(observed.may_be_short(now));
        observed.set_short(true);
        one_at_a_time(&mut observed, &mut now, PROVEN / SHORT_PART + MIB, 8);
        assert!(observed.may_be_short(now));
        one_at_a_time(&mut observed, &mut now, PROVEN / SHORT_PART - MIB, 8);
        assert!(!observed.may_be_short(now));
        // The deep queue is as fast as ever, which says nothing of the short one.
        observed.set_short(false);
        now += DEAR_FOR_NS - 2 * NS_PER_S;
        saturate(&mut observed, &mut now, PROVEN, 400);
        assert!(!observed.may_be_short(now));
        now += DEAR_FOR_NS;
        saturate(&mut observed, &mut now, PROVEN, 400);
        assert!(observed.may_be_short(now));
        // A device that has become very slow is judged by time, and not by a whole sample.
        observed.set_short(true);
        one_at_a_time(&mut observed, &mut now, MIB / 2, 1);
        assert!(!observed.may_be_short(now));
    }

    #[test]
    fn the_time_of_flushes_counts_for_whether_a_device_is_fast_enough() {
        let (mut observed, mut now) = (watching(), 0);
        for _ in 0..10 {
            observed.flushed(4 << 10, 5_000_000);
            observed.flushed(4 * MIB, 5_000_000 + 4 * NS_PER_S / 100);
        }
        saturate(&mut observed, &mut now, PROVEN, 400);
        assert!(!observed.may_be_short(now));
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
    fn a_flush_of_middling_bytes_counts_neither_as_a_small_nor_as_a_large_one() {
        let mut observed = watching();
        let deep_bytes = observed.deep_bytes;
        for (bytes, counted) in [
            (0, (1, 0)),
            (deep_bytes / 8, (2, 0)),
            (deep_bytes / 8 + 1, (2, 0)),
            (deep_bytes - 1, (2, 0)),
            (deep_bytes, (2, 1)),
            (100 * deep_bytes, (2, 2)),
        ] {
            observed.flushed(bytes, 1_000);
            let found = (observed.small_flushes_ns.len(), observed.large_flushes.len());
            assert_eq!(found, counted, "{bytes}");
        }
    }

    #[test]
    fn a_device_that_is_fast_for_a_moment_has_been_slow_all_the_same() {
        for fine in 0..=SAMPLES_FINE {
            let mut observed = watching();
            let mut judged = |rate: u64, now_ns: u64| {
                observed.push_rate(rate);
                observed.judge(now_ns, PROVEN)
            };
            for _ in 0..SAMPLES_MAX {
                assert_eq!(judged(200 * MIB, 0), Judgement::Kept);
            }
            for now in 0..fine as u64 {
                assert_eq!(judged(PROVEN, now), Judgement::Kept);
            }
            // Only several fast samples in a row end what began.
            let is_slow = matches!(judged(200 * MIB, SLOW_FOR_NS), Judgement::Slow(_));
            assert_eq!(is_slow, fine < SAMPLES_FINE, "{fine} fast samples");
            assert!(matches!(judged(200 * MIB, 2 * SLOW_FOR_NS), Judgement::Slow(_)));
        }
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
