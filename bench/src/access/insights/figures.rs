//! Figures that insights are drawn from. Each was taken in rounds, every cell once in each round, so what the machine does besides
//! meets all cells alike and two cells can be compared round by round.

use serde::{Deserialize, Serialize};

use super::super::reference::PerPattern;
use super::super::workload::Persist;
use crate::pairs::Ratio;

/// What was measured on one memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlaceFigures {
    /// The memory.
    pub place: String,
    /// Loads and stores.
    pub instructions: String,
    /// Bandwidth over threads.
    pub peaks: Vec<Peak>,
    /// Writes by size and instruction.
    pub writes: Vec<Written>,
    /// Records changed in place.
    pub updates: Vec<Written>,
    /// Reads by size and order.
    pub reads: Vec<ReadIn>,
    /// Access patterns of indexes and logs.
    pub structures: Vec<StructureFigure>,
}

/// Bandwidth of a pattern with some threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// One of the names of [`PerPattern`].
    pub pattern: String,
    /// Threads.
    pub threads: u64,
    /// Bytes of an access.
    pub access_bytes: u64,
    /// GiB/s, each round.
    pub gib_per_s: Vec<f64>,
}

/// Writes of a size, made durable so.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Written {
    /// In sequence, or anywhere.
    pub is_random: bool,
    /// Bytes of a write.
    pub write_bytes: u64,
    /// `nocache`, `cache`, `cacheinv` or `none`.
    pub persist: String,
    /// Writes a second, each round.
    pub per_s: Vec<f64>,
}

/// In which order reads go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// One behind the other.
    Ascending,
    /// One before the other.
    Descending,
    /// Every fourth, ascending.
    EveryFourth,
    /// Anywhere.
    Random,
}

/// Reads of a size in an order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadIn {
    /// Which.
    pub order: Order,
    /// Bytes of a read.
    pub read_bytes: u64,
    /// Reads a second, each round.
    pub per_s: Vec<f64>,
}

/// What a structure does with some threads, and how much of it is not memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StructureFigure {
    /// Which, and what it does.
    pub name: String,
    /// A pattern of accesses, or the store itself.
    pub is_real: bool,
    /// Threads.
    pub threads: u64,
    /// Operations a second, each round.
    pub per_s: Vec<f64>,
    /// Processor time of one, nanoseconds, median.
    pub cpu_ns: f64,
    /// The same over as little memory as the nearest caches hold.
    pub cached_cpu_ns: f64,
    /// Share of the processor's cycles in which it did not wait, by its counters; none: they are not to be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_share: Option<f64>,
}

impl StructureFigure {
    /// Share of the cycles that are not spent on memory: counted, or estimated as the time that is left where caches hold all.
    pub fn not_memory(&self) -> f64 {
        let estimated = self.cached_cpu_ns / self.cpu_ns.max(f64::MIN_POSITIVE);
        self.counted_share.unwrap_or(estimated).clamp(0.0, 1.0)
    }
}

/// One thing beside another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Versus {
    /// How many times as fast.
    pub ratio: f64,
    /// The 95 % interval of that; none of a single round.
    pub ci95: Option<[f64; 2]>,
}

/// What a ratio says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Faster, and surely so.
    Faster,
    /// Slower, and surely so.
    Slower,
    /// The difference is surely not worth a word.
    Alike,
    /// The rounds differ too much to tell.
    Unclear,
}

impl Versus {
    /// Of rounds measured in turn.
    pub fn of(one: &[f64], other: &[f64]) -> Self {
        match Ratio::of(one, other) {
            Some(ratio) => Self { ratio: ratio.ratio, ci95: Some(ratio.ci95) },
            None => Self { ratio: median(one) / median(other), ci95: None },
        }
    }

    /// What it says: differences below a thirtieth are nobody's concern.
    pub fn verdict(&self) -> Verdict {
        const WORTH_A_WORD: f64 = 1.0 / 30.0;
        const SURELY_ALIKE: f64 = 0.1;
        let [low, high] = self.ci95.unwrap_or([self.ratio; 2]);
        match () {
            () if low > 1.0 && self.ratio >= 1.0 + WORTH_A_WORD => Verdict::Faster,
            () if high < 1.0 && self.ratio <= 1.0 - WORTH_A_WORD => Verdict::Slower,
            () if low >= 1.0 - SURELY_ALIKE && high <= 1.0 + SURELY_ALIKE => Verdict::Alike,
            () => Verdict::Unclear,
        }
    }
}

/// The best of the instructions for a write, beside the next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestPersist {
    /// In sequence, or anywhere.
    pub is_random: bool,
    /// Bytes of a write.
    pub write_bytes: u64,
    /// The fastest.
    pub best: String,
    /// The next.
    pub next: String,
    /// The fastest over the next.
    pub versus: Versus,
}

/// A write without any flush beside the fastest with one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WithoutFlush {
    /// Bytes of a write.
    pub write_bytes: u64,
    /// Without over with, of bare random writes.
    pub write: Option<Versus>,
    /// The same of records that are read, then changed.
    pub update: Option<Versus>,
}

impl PlaceFigures {
    /// The highest bandwidth of each pattern, GiB/s.
    pub fn highest(&self) -> PerPattern<Option<f64>> {
        let of = |name: &str| {
            let own = self.peaks.iter().filter(|peak| peak.pattern == name);
            own.map(|peak| median(&peak.gib_per_s)).max_by(f64::total_cmp)
        };
        let [sequential_read, random_read, sequential_write, random_write] =
            PerPattern::<f64>::NAMES.map(of);
        PerPattern { sequential_read, random_read, sequential_write, random_write }
    }

    /// For each size and order, the fastest of the instructions that make durable.
    pub fn best_persists(&self) -> Vec<BestPersist> {
        let mut found: Vec<BestPersist> = Vec::new();
        for written in &self.writes {
            let (is_random, write_bytes) = (written.is_random, written.write_bytes);
            if found
                .iter()
                .any(|best| (best.is_random, best.write_bytes) == (is_random, write_bytes))
            {
                continue;
            }
            let mut durable: Vec<&Written> =
                durable(&self.writes, is_random, write_bytes).collect();
            durable.sort_by(|one, other| median(&other.per_s).total_cmp(&median(&one.per_s)));
            if let [best, next, ..] = durable[..] {
                let versus = Versus::of(&best.per_s, &next.per_s);
                let (best, next) = (best.persist.clone(), next.persist.clone());
                found.push(BestPersist { is_random, write_bytes, best, next, versus });
            }
        }
        found
    }

    /// Random writes of these sizes without a flush beside the fastest with one.
    pub fn without_flush(&self, sizes: &[u64]) -> Vec<WithoutFlush> {
        let beside = |of: &[Written], bytes| {
            let none = of.iter().find(|one| {
                one.is_random && one.write_bytes == bytes && one.persist == Persist::None.name()
            })?;
            let best = durable(of, true, bytes)
                .max_by(|one, other| median(&one.per_s).total_cmp(&median(&other.per_s)))?;
            Some(Versus::of(&none.per_s, &best.per_s))
        };
        let one = |bytes: &u64| WithoutFlush {
            write_bytes: *bytes,
            write: beside(&self.writes, *bytes),
            update: beside(&self.updates, *bytes),
        };
        sizes.iter().map(one).collect()
    }

    /// Reads of a size in one order beside another.
    pub fn order_versus(&self, read_bytes: u64, order: Order, other: Order) -> Option<Versus> {
        let of = |order| {
            self.reads.iter().find(|read| (read.order, read.read_bytes) == (order, read_bytes))
        };
        Some(Versus::of(&of(order)?.per_s, &of(other)?.per_s))
    }
}

fn durable(of: &[Written], is_random: bool, bytes: u64) -> impl Iterator<Item = &Written> {
    let wanted = move |one: &&Written| {
        (one.is_random, one.write_bytes) == (is_random, bytes)
            && one.persist != Persist::None.name()
    };
    of.iter().filter(wanted)
}

/// The one in the middle; of an even number, the lower of the two there.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: u64, persist: &str, per_s: &[f64]) -> Written {
        Written {
            is_random: true,
            write_bytes: bytes,
            persist: persist.into(),
            per_s: per_s.into(),
        }
    }

    fn figures(writes: Vec<Written>) -> PlaceFigures {
        PlaceFigures {
            place: "DRAM".into(),
            instructions: "sse2".into(),
            peaks: Vec::new(),
            writes,
            updates: Vec::new(),
            reads: Vec::new(),
            structures: Vec::new(),
        }
    }

    #[test]
    fn the_fastest_durable_write_is_found_and_none_is_not_durable() {
        let place = figures(vec![
            written(64, "nocache", &[10.0, 11.0, 12.0]),
            written(64, "cache", &[20.0, 22.0, 24.0]),
            written(64, "none", &[90.0, 90.0, 90.0]),
        ]);
        let [best] = &place.best_persists()[..] else { panic!("one size") };
        assert_eq!((best.best.as_str(), best.next.as_str()), ("cache", "nocache"));
        assert!((best.versus.ratio - 2.0).abs() < 1e-9);
        assert_eq!(best.versus.verdict(), Verdict::Faster);
        let [without] = &place.without_flush(&[64])[..] else { panic!("one size") };
        assert!(without.write.as_ref().unwrap().ratio > 3.7 && without.update.is_none());
    }

    #[test]
    fn what_the_rounds_do_not_agree_on_is_not_taken_for_alike() {
        let versus = Versus::of(&[10.0, 30.0, 10.0], &[20.0, 10.0, 12.0]);
        assert_eq!(versus.verdict(), Verdict::Unclear);
        assert_eq!(Versus::of(&[100.0, 101.0], &[99.0, 100.0]).verdict(), Verdict::Alike);
        assert_eq!(Versus::of(&[1.0, 1.01, 1.0], &[2.0, 2.0, 2.01]).verdict(), Verdict::Slower);
        // Of one round there is a ratio, and no interval.
        assert_eq!(Versus::of(&[4.0], &[2.0]), Versus { ratio: 2.0, ci95: None });
    }

    #[test]
    fn the_highest_bandwidth_is_that_of_the_best_number_of_threads() {
        let peak = |pattern: &str, threads, gib_per_s: f64| Peak {
            pattern: pattern.into(),
            threads,
            access_bytes: 64,
            gib_per_s: vec![gib_per_s],
        };
        let peaks = vec![
            peak("random read", 1, 5.0),
            peak("random read", 2, 8.0),
            peak("random read", 4, 7.0),
        ];
        let highest = PlaceFigures { peaks, ..figures(Vec::new()) }.highest();
        assert_eq!((highest.random_read, highest.random_write), (Some(8.0), None));
    }

    #[test]
    fn the_share_that_is_not_memory_is_counted_or_else_estimated() {
        let structure = StructureFigure {
            name: "hash lookup".into(),
            is_real: false,
            threads: 1,
            per_s: vec![1.0],
            cpu_ns: 200.0,
            cached_cpu_ns: 50.0,
            counted_share: None,
        };
        assert_eq!(structure.not_memory(), 0.25);
        let counted = StructureFigure { counted_share: Some(0.3), ..structure.clone() };
        assert_eq!(counted.not_memory(), 0.3);
        let upside_down = StructureFigure { cached_cpu_ns: 300.0, ..structure };
        assert_eq!(upside_down.not_memory(), 1.0);
    }
}
