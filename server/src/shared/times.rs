//! How often a command took how long: sixteen counters for each doubling of the time.
//!
//! A time is known to a sixteenth of itself. To count one costs a few instructions and a cache line
//! that only the command's own loop writes.

use super::stats::Counter;

/// Counters for each doubling, as a power of two.
const PART_BITS: u32 = 4;
const PARTS: usize = 1 << PART_BITS;
/// Doublings: the last one begins at half a second, and has all that is longer, too.
const DOUBLINGS: usize = 27;
const BUCKETS: usize = DOUBLINGS * PARTS;

/// Times of one command, nanoseconds.
#[derive(Debug)]
pub(crate) struct Times(Box<[Counter]>);

impl Default for Times {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| Counter::default()).collect())
    }
}

impl Times {
    /// Counts a time. Only the thread that owns the counters does.
    #[inline]
    pub fn add(&self, ns: u64) {
        self.0[bucket(ns)].add(1);
    }

    /// Adds the counts of others.
    pub fn add_all(&self, other: &Self) {
        self.0.iter().zip(&other.0).for_each(|(sum, count)| sum.add(count.get()));
    }

    /// Takes away what was counted before.
    pub fn subtract(&self, before: &Self) {
        let pairs = self.0.iter().zip(&before.0);
        pairs.for_each(|(now, then)| now.add(then.get().wrapping_neg()));
    }

    /// The count of each bucket.
    pub fn counts(&self) -> Vec<u64> {
        self.0.iter().map(Counter::get).collect()
    }

    /// The first bucket for times of `2^power` nanoseconds, and longer.
    pub fn begin_of_doubling(power: u32) -> usize {
        bucket(1 << power)
    }

    /// The longest time in a bucket, nanoseconds.
    pub fn longest(bucket: usize) -> u64 {
        longest(bucket)
    }

    /// Number of times.
    pub fn count(&self) -> u64 {
        self.0.iter().map(Counter::get).sum()
    }

    /// The longest time of the shortest `percent` of all, nanoseconds; 0 without any.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = (self.count() as f64 * percent / 100.0).ceil().max(1.0) as u64;
        let mut seen = 0;
        let is_there = |count: &Counter| {
            seen += count.get();
            seen >= wanted
        };
        self.0.iter().position(is_there).map_or(0, longest)
    }

    /// The number of times below each power of two from 1024 ns on, as far as it grows: Redis' keys
    /// in microseconds, and counts.
    pub fn doublings(&self) -> Vec<(u64, u64)> {
        let (mut found, mut seen, mut told) = (Vec::new(), 0, 0);
        for (at, counts) in self.0.chunks(PARTS).enumerate() {
            seen += counts.iter().map(Counter::get).sum::<u64>();
            // Redis' own histogram does not tell apart times that differ by less than this.
            let end_ns = PARTS as u64 * 2u64.pow(at as u32);
            if end_ns >= 1024 && seen > told {
                found.push(((end_ns + end_ns / 128 - 1) / 1000, seen));
                told = seen;
            }
        }
        found
    }
}

fn bucket(ns: u64) -> usize {
    if ns < PARTS as u64 {
        return ns as usize;
    }
    let doubling = 63 - ns.leading_zeros();
    let part = ns >> (doubling - PART_BITS) & (PARTS as u64 - 1);
    let at = ((doubling - PART_BITS + 1) as usize) << PART_BITS | part as usize;
    at.min(BUCKETS - 1)
}

/// The longest time in a bucket.
fn longest(bucket: usize) -> u64 {
    if bucket < PARTS {
        return bucket as u64;
    }
    let shift = (bucket / PARTS - 1) as u32;
    let first = (PARTS + bucket % PARTS) as u64;
    ((first + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_known_to_a_sixteenth() {
        for ns in (0..3000).chain([1 << 20, (1 << 20) - 1, 12_345_678, 999_999_999]) {
            let longest = longest(bucket(ns));
            assert!(longest >= ns && longest - ns <= ns / 16, "{ns}: {longest}");
            assert!(bucket(ns) == 0 || super::longest(bucket(ns) - 1) < ns, "{ns}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        let times = Times::default();
        (1..=100).for_each(|us| times.add(us * 1000));
        assert_eq!(times.count(), 100);
        let near = |percent, us: u64| {
            let found = times.percentile(percent);
            found >= us * 1000 && found <= us * 1000 * 17 / 16
        };
        assert!(near(50.0, 50) && near(99.0, 99) && near(100.0, 100) && near(0.0, 1));
        let doublings = times.doublings();
        assert_eq!(doublings[..3], [(1, 1), (2, 2), (4, 4)]);
        assert_eq!(doublings[3..], [(8, 8), (16, 16), (33, 32), (66, 65), (132, 100)]);
        assert_eq!(Times::default().percentile(50.0), 0);
    }
}
