//! What `perdura-lab heap` found, as it is written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::churn::{Sizes, Touch};
use super::protocol::Memory;
use perdura_bench::machine::Machine;
use perdura_bench::pairs::Ratio;

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeapResult {
    /// Always `heap`.
    pub kind: String,
    /// Where it ran.
    pub machine: Machine,
    /// With what.
    pub configuration: Configuration,
    /// By number of threads.
    pub threads: BTreeMap<usize, OfThreads>,
}

/// With what it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// Live objects of all threads.
    pub objects: usize,
    /// Their sizes, evenly distributed.
    pub sizes: Sizes,
    /// What is written into a new object.
    pub touch: Touch,
    /// Rounds, each of every contestant.
    pub rounds: usize,
    /// Time of a round, nanoseconds.
    pub round_ns: u64,
    /// Pairs before the first round.
    pub warm_pairs: u64,
    /// Seed of all streams.
    pub seed: u64,
    /// Folder of heaps.
    pub dir: String,
    /// The kernel's setting for huge pages of anonymous memory.
    pub huge_pages: Option<String>,
    /// The same for memory in files of tmpfs.
    pub huge_pages_shared: Option<String>,
}

/// What was found with one number of threads. Times are a thread's: its time by its operations.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OfThreads {
    /// Perdura's own figures by name: medians of times, counts.
    #[serde(flatten)]
    pub figures: BTreeMap<String, f64>,
    /// The rounds behind each median.
    pub spread: BTreeMap<String, Spread>,
    /// Memory of Perdura's heaps.
    pub memory: BTreeMap<String, MemoryFigures>,
    /// The others, by name.
    pub rivals: BTreeMap<String, Rival>,
    /// Opening a heap again after its process was killed, at several sizes.
    pub recovery: Vec<Recovery>,
    /// Perdura beside them.
    pub ratios: BTreeMap<String, Compared>,
    /// Perdura's figures that are wanted by themselves.
    pub bounds: BTreeMap<String, Bound>,
}

/// A rival.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Rival {
    /// Why there are no figures, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The allocator in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocator: Option<String>,
    /// As of Perdura.
    #[serde(flatten)]
    pub figures: BTreeMap<String, f64>,
    /// As of Perdura.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spread: BTreeMap<String, Spread>,
    /// As of Perdura.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryFigures>,
}

/// The rounds of a time, nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Least.
    pub min: f64,
    /// A quarter is below.
    pub q1: f64,
    /// Half is.
    pub median: f64,
    /// Three quarters are.
    pub q3: f64,
    /// Most.
    pub max: f64,
    /// Of all: what comes up seldom, and costs much then, is in it.
    pub mean: f64,
    /// In the order they were measured.
    pub rounds: Vec<f64>,
    /// The median in processor time, where it was taken: other work on the machine is not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_median: Option<f64>,
}

/// Half of them are below.
pub fn median(rounds: &[f64]) -> f64 {
    Spread::of(rounds).median
}

impl Spread {
    /// Of at least one round.
    pub fn of(rounds: &[f64]) -> Self {
        let mut sorted = rounds.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = share * (sorted.len().max(1) - 1) as f64;
            let (low, part) = (place.floor() as usize, place.fract());
            let value = |at: usize| sorted.get(at).copied();
            match (value(low), value(low + 1)) {
                (Some(low), Some(high)) => low + (high - low) * part,
                (Some(low), None) => low,
                _ => f64::NAN,
            }
        };
        Self {
            min: at(0.0),
            q1: at(0.25),
            median: at(0.5),
            q3: at(0.75),
            max: at(1.0),
            mean: rounds.iter().sum::<f64>() / rounds.len().max(1) as f64,
            rounds: rounds.to_vec(),
            cpu_median: None,
        }
    }
}

/// Memory after populating and after all rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemoryFigures {
    /// When every object had been allocated once.
    pub populated: Memory,
    /// After the last round.
    pub churned: Memory,
    /// Resident for each byte asked for, after the last round.
    pub resident_per_asked: f64,
}

/// Opening a heap again after its process was killed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// Live objects.
    pub objects: u64,
    /// Log records applied, besides the snapshot.
    pub records: u64,
    /// Time of each opening, nanoseconds.
    pub ns: Spread,
    /// Objects for each second of the median.
    pub objects_per_s: f64,
    /// The same for each thread that recovered.
    pub objects_per_s_per_thread: f64,
}

/// One figure beside another of the same rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// What is divided by what.
    pub about: String,
    /// Of the two medians.
    pub of_medians: f64,
    /// Of the two medians in processor time.
    pub of_cpu_medians: Option<f64>,
    /// The median of the rounds' ratios.
    pub median_of_pairs: f64,
    /// Of the rounds in pairs.
    pub of_pairs: Option<Ratio>,
    /// Bound that is wanted, if one is, and on which side.
    pub wanted: Option<Wanted>,
    /// Whether the ratio of medians keeps it.
    pub is_met: Option<bool>,
}

/// A figure with its bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// As found.
    pub found: f64,
    /// Bound that is wanted, and on which side.
    pub wanted: Wanted,
    /// Whether it is kept.
    pub is_met: bool,
}

/// A bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// No less.
    AtLeast(f64),
    /// No more.
    AtMost(f64),
}

impl Wanted {
    /// Whether a figure keeps it.
    pub fn is_met_by(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(bound) => ratio >= bound,
            Self::AtMost(bound) => ratio <= bound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_of_few_rounds_lie_between_them() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!((spread.min, spread.q1, spread.median), (1.0, 1.75, 2.5));
        assert_eq!((spread.q3, spread.max), (3.25, 4.0));
        assert_eq!(Spread::of(&[7.0]).q3, 7.0);
    }

    #[test]
    fn bounds_have_a_side() {
        assert!(Wanted::AtLeast(8.0).is_met_by(8.0) && !Wanted::AtLeast(8.0).is_met_by(7.9));
        assert!(Wanted::AtMost(1.3).is_met_by(1.3) && !Wanted::AtMost(1.3).is_met_by(1.31));
    }

    #[test]
    fn figures_stand_beside_their_rivals_and_come_back() {
        let mut found = OfThreads::default();
        found.figures.insert("tx64_ns".into(), 1.5);
        found
            .rivals
            .insert("glibc".into(), Rival { missing: Some("x".into()), ..Rival::default() });
        let text = serde_json::to_string(&found).unwrap();
        assert!(text.contains(r#""tx64_ns":1.5"#), "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["rivals"]["glibc"]["missing"], "x");
    }
}
