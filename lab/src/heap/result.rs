//! Results of `perdura-lab heap`, as they are written to JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::churn::{Sizes, Touch};
use super::protocol::Memory;
use perdura_bench::machine::Machine;
use perdura_bench::pairs::Ratio;

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeapResult {
    /// Always `heap`.
    pub kind: String,
    /// The machine that measured.
    pub machine: Machine,
    /// The settings of the run.
    pub configuration: Configuration,
    /// Results by number of threads.
    pub threads: BTreeMap<usize, OfThreads>,
}

/// Settings of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// Live objects of all threads together.
    pub objects: usize,
    /// Sizes of the objects, evenly distributed.
    pub sizes: Sizes,
    /// Bytes that are written into a new object.
    pub touch: Touch,
    /// Rounds of each contestant.
    pub rounds: usize,
    /// Duration of a round, nanoseconds.
    pub round_ns: u64,
    /// Objects replaced before the first round.
    pub warm_pairs: u64,
    /// Seed of all random streams.
    pub seed: u64,
    /// Folder of the heaps.
    pub dir: String,
    /// The kernel's setting for huge pages of anonymous memory.
    pub huge_pages: Option<String>,
    /// The kernel's setting for huge pages of files on tmpfs.
    pub huge_pages_shared: Option<String>,
}

/// Results with one number of threads. A time is a thread's time divided by its operations.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OfThreads {
    /// Perdura's own figures by name: medians of times, and counts.
    #[serde(flatten)]
    pub figures: BTreeMap<String, f64>,
    /// The rounds behind each median.
    pub spread: BTreeMap<String, Spread>,
    /// Memory of Perdura's heaps.
    pub memory: BTreeMap<String, MemoryFigures>,
    /// The rivals by name.
    pub rivals: BTreeMap<String, Rival>,
    /// Times of reopening a heap after its process was killed, at several sizes.
    pub recovery: Vec<Recovery>,
    /// Ratios of Perdura's figures to the rivals'.
    pub ratios: BTreeMap<String, Compared>,
    /// Bounds on single figures of Perdura.
    pub bounds: BTreeMap<String, Bound>,
}

/// Results of a rival.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Rival {
    /// Why there are no figures, and what to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The allocator's description of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocator: Option<String>,
    /// The rival's figures by name.
    #[serde(flatten)]
    pub figures: BTreeMap<String, f64>,
    /// The rounds behind each median.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub spread: BTreeMap<String, Spread>,
    /// Memory of the rival.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryFigures>,
}

/// Distribution of a time over the rounds, nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Shortest round.
    pub min: f64,
    /// Lower quartile.
    pub q1: f64,
    /// Median of the rounds.
    pub median: f64,
    /// Upper quartile.
    pub q3: f64,
    /// Longest round.
    pub max: f64,
    /// Mean of the rounds: it includes costs that are rare and large.
    pub mean: f64,
    /// The rounds in the order of measuring.
    pub rounds: Vec<f64>,
    /// Median of the processor time, where it was measured: other work on the machine does not
    /// count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_median: Option<f64>,
}

/// Median of the rounds.
pub fn median(rounds: &[f64]) -> f64 {
    Spread::of(rounds).median
}

impl Spread {
    /// The distribution of at least one round.
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
    /// Memory when every object had been allocated once.
    pub populated: Memory,
    /// Memory after the last round.
    pub churned: Memory,
    /// Resident bytes for each byte asked for, after the last round.
    pub resident_per_asked: f64,
}

/// Times of reopening a heap after its process was killed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// Number of live objects.
    pub objects: u64,
    /// Log records applied, besides the snapshot.
    pub records: u64,
    /// Time of each opening, nanoseconds.
    pub ns: Spread,
    /// Objects recovered in a second, from the median time.
    pub objects_per_s: f64,
    /// Objects recovered in a second by each thread that recovered.
    pub objects_per_s_per_thread: f64,
}

/// A figure over another one of the same rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The two figures, in words.
    pub about: String,
    /// Ratio of the two medians.
    pub of_medians: f64,
    /// Ratio of the two medians of processor time.
    pub of_cpu_medians: Option<f64>,
    /// Median of the rounds' ratios.
    pub median_of_pairs: f64,
    /// Ratio from the rounds in pairs, with its interval.
    pub of_pairs: Option<Ratio>,
    /// The wanted bound on the ratio, if there is one.
    pub wanted: Option<Wanted>,
    /// Whether the ratio of medians is within the bound.
    pub is_met: Option<bool>,
}

/// A figure with its bound.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// The figure as measured.
    pub found: f64,
    /// The wanted bound.
    pub wanted: Wanted,
    /// Whether the figure is within the bound.
    pub is_met: bool,
}

/// A bound on a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// The figure must not be less.
    AtLeast(f64),
    /// The figure must not be more.
    AtMost(f64),
}

impl Wanted {
    /// Whether a figure is within the bound.
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
