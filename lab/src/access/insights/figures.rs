//! Figures that insights are drawn from. Each was taken in rounds, every cell once in each round,
//! so what the machine does besides meets all cells alike and two cells can be compared round by
//! round.

use serde::{Deserialize, Serialize};

use super::super::reference::PerPattern;
use super::super::workload::Persist;
use perdura_bench::pairs::Ratio;

/// What was measured on one memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceFigures {
    /// The memory.
    pub place: String,
    /// Loads and stores.
    pub instructions: String,
    /// What is not as the workloads ask for.
    pub bounded: Vec<String>,
    /// Instructions that the processor lacks; what needs them was left out.
    pub lacking: Vec<String>,
    /// What a cell of random writes wrote, at least.
    pub random_written_bytes_min: u64,
    /// The shortest range over which bandwidth was measured.
    pub range_bytes: u64,
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
    /// Share of its time that a thread had a processor, median.
    pub cpu_share: f64,
    /// GiB/s, each round.
    pub gib_per_s: Vec<f64>,
}

/// The highest bandwidth of a pattern.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Highest {
    /// Median of its rounds.
    pub gib_per_s: f64,
    /// With so many threads.
    pub threads: u64,
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
    /// What a pattern moved of the memory that is measured, each round; none is known of the store.
    pub gib_per_s: Vec<f64>,
    /// Share of its time that a thread had a processor, median.
    pub cpu_share: f64,
    /// Processor time of one, nanoseconds, median.
    pub cpu_ns: f64,
    /// The same over as little memory as the nearest caches hold.
    pub cached_cpu_ns: f64,
    /// Share of the processor's cycles in which it did not wait, by its counters; none: they are
    /// not to be had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted_share: Option<f64>,
}

/// Share of the cycles that are not spent on memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Share {
    /// By the processor's counters: cycles in which its back end waited for nothing, memory or
    /// else.
    Counted(f64),
    /// The time that is left where caches hold all.
    Estimated(f64),
}

impl Share {
    /// It.
    pub fn value(self) -> f64 {
        match self {
            Self::Counted(share) | Self::Estimated(share) => share,
        }
    }
}

impl StructureFigure {
    /// Share of the cycles that are not spent on memory: counted, or else estimated. None: it was
    /// not faster where caches hold all, so something else than memory made the difference.
    pub fn not_memory(&self) -> Option<Share> {
        if let Some(share) = self.counted_share {
            return Some(Share::Counted(share));
        }
        let share = self.cached_cpu_ns / self.cpu_ns;
        (share > 0.0 && share < 1.0).then_some(Share::Estimated(share))
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
    /// The rounds differ too much to tell, or there was one only.
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

    /// What it says: a difference is one from a thirtieth on, and alike are sides surely less than
    /// a tenth apart.
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

    /// The highest of all patterns, and of which.
    pub fn peak(&self) -> Option<(&'static str, Highest)> {
        let all = PerPattern::<f64>::NAMES.into_iter().zip(self.highest().all());
        let measured = all.filter_map(|(name, highest)| Some((name, highest?)));
        measured.max_by(|one, other| one.1.gib_per_s.total_cmp(&other.1.gib_per_s))
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
mod tests;
