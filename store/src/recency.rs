//! When and how often keys were used lately: a word for each of many classes of hashes.
//!
//! ```text
//! seconds of the last use (24 bits) | times used, on a logarithmic scale (8 bits)
//! ```
//! The words decide which keys are evicted, and OBJECT IDLETIME and OBJECT FREQ show them. They are
//! hints: keys whose hashes fall in the same class share a word, and threads may lose a use between
//! them. Both halves mean what they mean in Redis: a count grows the more seldom the larger it is,
//! and falls by one for each period without a use.

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use perdura_region::{Mapping, prefetch};

use crate::error::OpenError;

/// Bytes of memory for each word.
const MEMORY_BYTES_PER_WORD: u64 = 256;
const WORD_BYTES: u64 = 4;
/// Bytes of words from which on huge pages are worth the time that it takes to clear one.
const HUGE_FROM_BYTES: u64 = 8 << 20;
const COUNT_BITS: u32 = 8;
const SECONDS_MASK: u32 = u32::MAX >> COUNT_BITS;
/// The count of a key that is new, so that it is not evicted before it had a chance of being used.
const FIRST_COUNT: u32 = 5;

pub(crate) struct Recency {
    words: Mapping,
    mask: u64,
    /// Seconds since the opening, cut to 24 bits.
    now_s: AtomicU32,
    opened_ms: u64,
    /// Whether uses are counted.
    counts: AtomicBool,
    /// How much seldom a larger count grows (Redis' `lfu-log-factor`).
    log_factor: AtomicU32,
    /// Minutes without a use that take one off a count; 0: none do (Redis' `lfu-decay-time`).
    decay_minutes: AtomicU32,
}

impl Recency {
    /// Words for a store in so much memory that is opened now; all keys count as used now.
    ///
    /// # Errors
    /// The system has no memory for the words.
    pub fn new(region_bytes: u64, unix_ms: u64) -> Result<Self, OpenError> {
        let words = (region_bytes / MEMORY_BYTES_PER_WORD).next_power_of_two().max(1024);
        let bytes = words * WORD_BYTES;
        let mapping = Mapping::anonymous(bytes)
            .map_err(|errno| OpenError::Counts { bytes, source: errno.into() })?;
        if bytes >= HUGE_FROM_BYTES {
            mapping.prefer_huge_pages();
        }
        Ok(Self {
            words: mapping,
            mask: words - 1,
            now_s: AtomicU32::new(0),
            opened_ms: unix_ms,
            counts: AtomicBool::new(false),
            log_factor: AtomicU32::new(10),
            decay_minutes: AtomicU32::new(1),
        })
    }

    /// Takes the time at which keys are used from now on.
    pub fn set_time(&self, unix_ms: u64) {
        let seconds = unix_ms.saturating_sub(self.opened_ms) / 1000;
        self.now_s.store(seconds as u32 & SECONDS_MASK, Relaxed);
    }

    /// Counts uses from now on, or does not.
    pub fn count_uses(&self, counts: bool, log_factor: u32, decay_minutes: u32) {
        self.log_factor.store(log_factor, Relaxed);
        self.decay_minutes.store(decay_minutes, Relaxed);
        self.counts.store(counts, Relaxed);
    }

    /// Notes that the key with this hash is used.
    #[inline]
    pub fn note(&self, hash: u64) {
        if IS_QUIET.get() {
            return;
        }
        let word = self.at(hash);
        let before = word.load(Relaxed);
        let mut after = before & !SECONDS_MASK | self.now_s.load(Relaxed);
        if self.counts.load(Relaxed) {
            after = self.counted(before) << (32 - COUNT_BITS) | after & SECONDS_MASK;
        }
        // The words of keys that are used all the time are only read, but for once a second.
        if after != before {
            word.store(after, Relaxed);
        }
    }

    /// Sets what is known of the key with this hash, as RESTORE does.
    pub fn set(&self, hash: u64, idle_s: u32, count: u8) {
        let at_s = self.now_s.load(Relaxed).wrapping_sub(idle_s) & SECONDS_MASK;
        self.at(hash).store(u32::from(count) << (32 - COUNT_BITS) | at_s, Relaxed);
    }

    /// Starts loading the word of keys of this hash into the cache.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        prefetch(std::ptr::from_ref(self.at(hash)).cast());
    }

    /// Seconds since a key of this hash was used, at most 24 bits of them.
    pub fn idle_s(&self, hash: u64) -> u32 {
        self.idle_s_of(self.at(hash).load(Relaxed))
    }

    /// How often keys of this hash were used lately, on a logarithmic scale.
    pub fn count(&self, hash: u64) -> u8 {
        self.decayed(self.at(hash).load(Relaxed)) as u8
    }

    fn idle_s_of(&self, word: u32) -> u32 {
        self.now_s.load(Relaxed).wrapping_sub(word) & SECONDS_MASK
    }

    fn decayed(&self, word: u32) -> u32 {
        let minutes = self.decay_minutes.load(Relaxed);
        let periods = (self.idle_s_of(word) / 60).checked_div(minutes).unwrap_or(0);
        (word >> (32 - COUNT_BITS)).saturating_sub(periods)
    }

    /// The count after one more use: one more with a chance of 1 in `(count - first) * factor + 1`.
    fn counted(&self, word: u32) -> u32 {
        if word == 0 {
            return FIRST_COUNT;
        }
        let count = self.decayed(word);
        let above = u64::from(count.saturating_sub(FIRST_COUNT));
        let chance_in = above * u64::from(self.log_factor.load(Relaxed)) + 1;
        let grows = count < u32::from(u8::MAX) && draw().is_multiple_of(chance_in);
        count + u32::from(grows)
    }

    #[inline]
    fn at(&self, hash: u64) -> &AtomicU32 {
        // The lower bits pick the bucket of the index, so keys of one bucket have words of their
        // own only if other bits are used, too.
        &self.words.half_words(0, self.mask as usize + 1)
            [((hash ^ hash >> 29) & self.mask) as usize]
    }
}

thread_local!(static IS_QUIET: Cell<bool> = const { Cell::new(false) });

/// Runs `f` so that the keys which it reads and writes do not count as used (Redis' CLIENT
/// NO-TOUCH).
pub fn quietly<R>(f: impl FnOnce() -> R) -> R {
    /// Ends it, also when `f` panics.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            IS_QUIET.set(false);
        }
    }
    IS_QUIET.set(true);
    let _end = End;
    f()
}

/// A random number of this thread (xorshift64): counts of threads need not be drawn from one state.
fn draw() -> u64 {
    thread_local!(static STATE: Cell<u64> = const { Cell::new(0x9e37_79b9_7f4a_7c15) });
    let mut x = STATE.get();
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    STATE.set(x);
    x >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_begins_anew_with_each_use() {
        let recency = Recency::new(1 << 16, 5_000).unwrap();
        recency.note(7);
        recency.set_time(95_999);
        assert_eq!((recency.idle_s(7), recency.count(7)), (90, 0));
        quietly(|| recency.note(7));
        assert_eq!(recency.idle_s(7), 90);
        recency.note(7);
        assert_eq!(recency.idle_s(7), 0);
        recency.set(7, 1000, 9);
        assert_eq!((recency.idle_s(7), recency.count(7)), (1000, 0), "a count falls by the minute");
        recency.set(7, 59, 9);
        assert_eq!((recency.idle_s(7), recency.count(7)), (59, 9));
    }

    #[test]
    fn counts_begin_at_five_grow_ever_more_slowly_and_fall_by_the_minute() {
        let recency = Recency::new(1 << 16, 0).unwrap();
        recency.count_uses(true, 10, 1);
        recency.set_time(1000);
        recency.note(7);
        assert!(recency.count(7) <= FIRST_COUNT as u8 + 1);
        (0..1000).for_each(|_| recency.note(7));
        // Redis' table: a thousand uses with factor 10 give about 18.
        assert!((12..=26).contains(&recency.count(7)), "{}", recency.count(7));
        let before = recency.count(7);
        (0..1_000_000).for_each(|_| recency.note(7));
        assert!(recency.count(7) > 100, "{}", recency.count(7));
        assert!(before < recency.count(7));
        let before = recency.count(7);
        recency.set_time(1000 + 3 * 60_000 + 1000);
        assert_eq!(recency.count(7), before - 3);
        recency.count_uses(true, 10, 0);
        assert_eq!(recency.count(7), before, "no period takes anything off");
    }
}
