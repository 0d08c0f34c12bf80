//! The figures from which insights are drawn. They were taken in rounds, every cell once in each
//! round, so that other work on the machine disturbs all cells alike and two cells can be compared
//! round by round.

use serde::{Deserialize, Serialize};

use super::super::reference::PerPattern;
use super::super::workload::Persist;
use perdura_bench::pairs::Ratio;

/// Figures of one memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceFigures {
    /// Name of the memory.
    pub place: String,
    /// Instructions that load and store.
    pub instructions: String,
    /// Settings that differ from what the workloads ask for.
    pub bounded: Vec<String>,
    /// Instructions that the processor lacks; cells that need them were left out.
    pub lacking: Vec<String>,
    /// Fewest bytes that a cell of random writes wrote.
    pub random_written_bytes_min: u64,
    /// Shortest range over which bandwidth was measured.
    pub range_bytes: u64,
    /// Bandwidth by number of threads.
    pub peaks: Vec<Peak>,
    /// Writes by size and persist instruction.
    pub writes: Vec<Written>,
    /// Records changed in place, by size and persist instruction.
    pub updates: Vec<Written>,
    /// Reads by size and order.
    pub reads: Vec<ReadIn>,
    /// Access patterns of indexes and logs.
    pub structures: Vec<StructureFigure>,
}

/// Bandwidth of a pattern with a number of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Name of the pattern, one of [`PerPattern::NAMES`].
    pub pattern: String,
    /// Number of threads.
    pub threads: u64,
    /// Size of an access.
    pub access_bytes: u64,
    /// Median share of a thread's time in which it had a processor.
    pub cpu_share: f64,
    /// Bandwidth in each round, GiB/s.
    pub gib_per_s: Vec<f64>,
}

/// The highest bandwidth of a pattern.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Highest {
    /// Median over the rounds, GiB/s.
    pub gib_per_s: f64,
    /// Number of threads that reached it.
    pub threads: u64,
}

/// Writes of one size with one persist instruction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Written {
    /// Whether places are random; otherwise writes follow one another.
    pub is_random: bool,
    /// Size of a write.
    pub write_bytes: u64,
    /// `nocache`, `cache`, `cacheinv` or `none`.
    pub persist: String,
    /// Writes a second in each round.
    pub per_s: Vec<f64>,
}

/// Order of the places of reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Each read follows the one before.
    Ascending,
    /// Each read precedes the one before.
    Descending,
    /// Every fourth read, ascending.
    EveryFourth,
    /// Random places.
    Random,
}

/// Reads of one size in one order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadIn {
    /// Order of the reads.
    pub order: Order,
    /// Size of a read.
    pub read_bytes: u64,
    /// Reads a second in each round.
    pub per_s: Vec<f64>,
}

/// Figures of a structure with a number of threads, and the share of its time that is not memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StructureFigure {
    /// Name of the structure and its operation.
    pub name: String,
    /// Whether it is the store itself; otherwise a pattern of accesses.
    pub is_real: bool,
    /// Number of threads.
    pub threads: u64,
    /// Operations a second in each round.
    pub per_s: Vec<f64>,
    /// Bandwidth of the measured memory in each round, GiB/s; empty for the store.
    pub gib_per_s: Vec<f64>,
    /// Median share of a thread's time in which it had a processor.
    pub cpu_share: f64,
    /// Median processor time of an operation, nanoseconds.
    pub cpu_ns: f64,
    /// Median processor time of an operation on data that fit the nearest caches, nanoseconds.
    pub cached_cpu_ns: f64,
    /// Share of the processor's cycles without waiting, by its counters; none if there are no
    /// counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_share: Option<f64>,
}

/// Share of the cycles that are not spent on memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Share {
    /// Share of the cycles in which the processor's back end did not wait, by its counters.
    Counted(f64),
    /// Time that is left where caches hold all data, as a share of the whole.
    Estimated(f64),
}

impl Share {
    /// The share, 0 to 1.
    pub fn value(self) -> f64 {
        match self {
            Self::Counted(share) | Self::Estimated(share) => share,
        }
    }
}

impl StructureFigure {
    /// Share of the cycles that are not spent on memory, counted or else estimated. None: the
    /// structure was not faster in the caches, so something else than memory made the difference.
    pub fn not_memory(&self) -> Option<Share> {
        if let Some(share) = self.counted_share {
            return Some(Share::Counted(share));
        }
        let share = self.cached_cpu_ns / self.cpu_ns;
        (share > 0.0 && share < 1.0).then_some(Share::Estimated(share))
    }
}

/// The ratio of one figure to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Versus {
    /// How many times as fast the first is.
    pub ratio: f64,
    /// The 95 % interval of the ratio; none for a single round.
    pub ci95: Option<[f64; 2]>,
}

/// Meaning of a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Faster, beyond doubt.
    Faster,
    /// Slower, beyond doubt.
    Slower,
    /// The difference is too small to matter, beyond doubt.
    Alike,
    /// The rounds differ too much to say, or there was only one.
    Unclear,
}

impl Versus {
    /// The ratio of two figures that were measured in turn.
    pub fn of(one: &[f64], other: &[f64]) -> Self {
        match Ratio::of(one, other) {
            Some(ratio) => Self { ratio: ratio.ratio, ci95: Some(ratio.ci95) },
            None => Self { ratio: median(one) / median(other), ci95: None },
        }
    }

    /// The verdict: differences count from a thirtieth on; sides are alike if they differ by less
    /// than a tenth, beyond doubt.
    pub fn verdict(&self) -> Verdict {
        const WORTH_A_WORD: f64 = 1.0 / 30.0;
        const SURELY_ALIKE: f64 = 0.1;
        let Some([low, high]) = self.ci95 else { return Verdict::Unclear };
        match () {
            () if low > 1.0 && self.ratio >= 1.0 + WORTH_A_WORD => Verdict::Faster,
            () if high < 1.0 && self.ratio <= 1.0 - WORTH_A_WORD => Verdict::Slower,
            () if low >= 1.0 - SURELY_ALIKE && high <= 1.0 + SURELY_ALIKE => Verdict::Alike,
            () => Verdict::Unclear,
        }
    }
}

/// The best persist instruction for a write, beside the second best.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BestPersist {
    /// Whether places are random; otherwise writes follow one another.
    pub is_random: bool,
    /// Size of a write.
    pub write_bytes: u64,
    /// The fastest instruction.
    pub best: String,
    /// The second fastest instruction.
    pub next: String,
    /// Ratio of the fastest to the second fastest.
    pub versus: Versus,
}

/// A write without any flush beside the fastest one with a flush.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WithoutFlush {
    /// Size of a write.
    pub write_bytes: u64,
    /// Ratio without over with a flush, for random writes alone.
    pub write: Option<Versus>,
    /// Ratio without over with a flush, for records that are read and then changed.
    pub update: Option<Versus>,
}

impl PlaceFigures {
    /// The highest bandwidth of each pattern.
    pub fn highest(&self) -> PerPattern<Option<Highest>> {
        let of = |name: &str| {
            let own = self.peaks.iter().filter(|peak| peak.pattern == name);
            own.map(|peak| Highest { gib_per_s: median(&peak.gib_per_s), threads: peak.threads })
                .max_by(|one, other| one.gib_per_s.total_cmp(&other.gib_per_s))
        };
        let [sequential_read, random_read, sequential_write, random_write] =
            PerPattern::<f64>::NAMES.map(of);
        PerPattern { sequential_read, random_read, sequential_write, random_write }
    }

    /// The highest bandwidth of all patterns, with the pattern's name.
    pub fn peak(&self) -> Option<(&'static str, Highest)> {
        let all = PerPattern::<f64>::NAMES.into_iter().zip(self.highest().all());
        let measured = all.filter_map(|(name, highest)| Some((name, highest?)));
        measured.max_by(|one, other| one.1.gib_per_s.total_cmp(&other.1.gib_per_s))
    }

    /// For each size and order, the fastest instruction that makes a write durable.
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

    /// Random writes of these sizes without a flush, beside the fastest with one.
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

    /// Reads of a size in one order, over those in another.
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

/// The middle value; of an even number of values, the lower one of the middle two.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests;
