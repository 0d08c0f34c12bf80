//! Counts of requests and their times, by the model and by the clock.
//!
//! All threads count without a lock: sums in shards, latencies in buckets, none of which is wider
//! than a 128th of its values.

use std::sync::atomic::{AtomicU64, Ordering::*};

use perdura_media::recording::Kind;
use serde_json::{Value, json};

const SHARDS: usize = 64;
/// Bits of the sub-buckets' number in a power of two.
const FINE_BITS: u32 = 7;
const BUCKETS: usize = (64 - FINE_BITS as usize + 1) << FINE_BITS;

/// Sums of one kind of requests.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Sums {
    pub requests: u64,
    pub bytes: u64,
    pub modelled_ps: u64,
    pub measured_ps: u64,
}

#[derive(Default)]
#[repr(align(128))]
struct Shard([[AtomicU64; 4]; 3]);

struct Latencies(Box<[AtomicU64]>);

/// All counts of a process.
pub struct Tally {
    shards: Box<[Shard]>,
    modelled: [Latencies; 3],
    measured: [Latencies; 3],
    /// Requests that entered the kernel because a file grew or an offset was shared.
    pub in_kernel: AtomicU64,
}

impl Tally {
    pub fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            modelled: [(); 3].map(|()| Latencies::new()),
            measured: [(); 3].map(|()| Latencies::new()),
            in_kernel: AtomicU64::new(0),
        }
    }

    #[inline]
    pub fn count(&self, thread: u32, kind: Kind, bytes: u64, modelled_ps: u64, measured_ps: u64) {
        let kind = kind as usize;
        let sums = &self.shards[thread as usize % SHARDS].0[kind];
        for (sum, by) in sums.iter().zip([1, bytes, modelled_ps, measured_ps]) {
            sum.fetch_add(by, Relaxed);
        }
        self.modelled[kind].count(modelled_ps / 1000);
        self.measured[kind].count(measured_ps / 1000);
    }

    pub fn sums(&self, kind: Kind) -> Sums {
        let sum = |of: usize| {
            self.shards.iter().map(|shard| shard.0[kind as usize][of].load(Relaxed)).sum()
        };
        Sums { requests: sum(0), bytes: sum(1), modelled_ps: sum(2), measured_ps: sum(3) }
    }

    /// Sums of all kinds.
    pub fn all(&self) -> Sums {
        KINDS.iter().fold(Sums::default(), |all, (kind, _)| {
            let sums = self.sums(*kind);
            Sums {
                requests: all.requests + sums.requests,
                bytes: all.bytes + sums.bytes,
                modelled_ps: all.modelled_ps + sums.modelled_ps,
                measured_ps: all.measured_ps + sums.measured_ps,
            }
        })
    }

    /// The counts for a line of a report. Without a model only measured times are given.
    pub fn json(&self, is_modelled: bool) -> Value {
        let of = |kind: Kind| {
            let (sums, at) = (self.sums(kind), kind as usize);
            let modelled = |ns: u64| if is_modelled { json!(ns) } else { Value::Null };
            json!({
                "requests": sums.requests,
                "bytes": sums.bytes,
                "modelled_ns": modelled(sums.modelled_ps / 1000),
                "measured_ns": sums.measured_ps / 1000,
                "modelled_ns_p50": modelled(self.modelled[at].median()),
                "measured_ns_p50": self.measured[at].median(),
            })
        };
        KINDS.iter().map(|(kind, name)| ((*name).to_owned(), of(*kind))).collect()
    }

    /// Sets all counts to 0, for a forked child.
    pub fn clear(&self) {
        let sums = self.shards.iter().flat_map(|shard| shard.0.as_flattened());
        let latencies = self.modelled.iter().chain(&self.measured).flat_map(|some| some.0.iter());
        sums.chain(latencies).chain([&self.in_kernel]).for_each(|count| count.store(0, Relaxed));
    }
}

const KINDS: [(Kind, &str); 3] =
    [(Kind::Read, "reads"), (Kind::Write, "writes"), (Kind::Flush, "flushes")];

impl Latencies {
    fn new() -> Self {
        Self((0..BUCKETS).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    fn count(&self, ns: u64) {
        self.0[bucket(ns)].fetch_add(1, Relaxed);
    }

    /// The middle of the median's bucket; 0 if nothing was counted.
    fn median(&self) -> u64 {
        let all: u64 = self.0.iter().map(|count| count.load(Relaxed)).sum();
        let mut below = 0;
        for (index, count) in self.0.iter().enumerate() {
            below += count.load(Relaxed);
            if below * 2 >= all && below > 0 {
                return middle(index);
            }
        }
        0
    }
}

#[inline]
fn bucket(ns: u64) -> usize {
    let shift = (63 - (ns | 1).leading_zeros()).saturating_sub(FINE_BITS);
    ((shift as usize) << FINE_BITS) + (ns >> shift) as usize
}

fn middle(bucket: usize) -> u64 {
    let shift = (bucket >> FINE_BITS).saturating_sub(1);
    let from = (bucket - (shift << FINE_BITS)) as u64;
    (from << shift) + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_kept_to_a_hundredth() {
        for ns in (0..2000).chain((0..64).flat_map(|bit| [1 << bit, (1 << bit) + (1 << bit) / 3])) {
            let found = middle(bucket(ns));
            assert!(found.abs_diff(ns) <= ns / 100, "{ns} ns is kept as {found} ns");
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn sums_and_medians_are_those_of_a_list() {
        let tally = Tally::new();
        let mut all: Vec<u64> = (0..999).map(|n: u64| 1000 + n * 7919 % 5003).collect();
        for (thread, ns) in all.iter().enumerate() {
            tally.count(thread as u32, Kind::Write, 10, ns * 1000, ns * 2000);
        }
        all.sort_unstable();
        let sum: u64 = all.iter().sum();
        let expected =
            Sums { requests: 999, bytes: 9990, modelled_ps: sum * 1000, measured_ps: sum * 2000 };
        assert_eq!((tally.sums(Kind::Write), tally.all()), (expected, expected));
        let median = tally.modelled[Kind::Write as usize].median();
        assert!(median.abs_diff(all[499]) <= all[499] / 100, "{median} for {}", all[499]);
        tally.clear();
        assert_eq!((tally.all(), tally.measured[1].median()), (Sums::default(), 0));
    }
}
