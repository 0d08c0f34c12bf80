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
mod tests;
