//! Published systems that figures are set beside: data with the source of each number, never
//! measured here.
//!
//! `systems.toml` has them; what its texts do not give is absent, not guessed. Bandwidths are the
//! published peaks in GiB/s; a euro per GB over such a peak is what the poster calls euro per GB/s,
//! and so do we. The poster's own columns stay beside ours, for its random accesses are of another
//! size.

pub mod published;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All systems, as the file has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct References {
    /// Where the figures come from.
    pub label: PublishedLabel,
    /// The publication.
    pub about: String,
    /// What the peaks are of.
    pub accesses: PeakAccesses,
    /// Each system.
    #[serde(rename = "system")]
    pub systems: Vec<Reference>,
    /// What the publication found.
    #[serde(rename = "insight")]
    pub insights: Vec<PublishedInsight>,
}

/// Nothing else may stand here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PublishedLabel {
    /// Of a text, not of a machine at hand.
    Published,
}

/// Bytes of the accesses that peaks are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeakAccesses {
    /// Of sequential reads and writes.
    pub sequential_bytes: u64,
    /// Of random reads.
    pub random_read_bytes: u64,
    /// Of random writes.
    pub random_write_bytes: u64,
}

/// A published system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// What it is called.
    pub name: String,
    /// What it is, in a sentence.
    pub about: String,
    /// The profile in `media` that models it, if one does.
    pub profile: Option<String>,
    /// Processor.
    pub cpu: String,
    /// Its cores.
    pub cores: Option<u32>,
    /// Persistent or DRAM.
    pub memory: MemoryKind,
    /// Modules of that memory.
    pub modules: u32,
    /// What one holds, GB.
    pub module_gb: Option<u32>,
    /// Generation of the modules.
    pub series: Option<String>,
    /// Power budget of one, watts.
    pub module_watts: Option<f64>,
    /// Price of its memory.
    pub euro_per_gb: f64,
    /// Highest bandwidths.
    pub peak_gib_per_s: Option<PerPattern<f64>>,
    /// Times of dependent reads of a line.
    pub read_64b_ns: Option<ReadTimes>,
    /// The poster's price-performance, where it can be read; other random accesses than those of
    /// the peaks.
    #[serde(default)]
    pub poster_euro_per_gb_per_s: PerPattern<Option<f64>>,
    /// Where each number is from.
    pub sources: BTreeMap<String, String>,
}

/// Kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryKind {
    /// Optane.
    #[serde(rename = "persistent")]
    Persistent,
    /// What forgets.
    #[serde(rename = "DRAM")]
    Dram,
}

/// A figure for each of the four patterns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerPattern<T> {
    /// Sequential reads.
    pub sequential_read: T,
    /// Random reads.
    pub random_read: T,
    /// Sequential writes.
    pub sequential_write: T,
    /// Random writes.
    pub random_write: T,
}

impl<T: Copy> PerPattern<T> {
    /// Their names, in the order of [`Self::all`].
    pub const NAMES: [&'static str; 4] =
        ["sequential read", "random read", "sequential write", "random write"];

    /// In the poster's order.
    pub fn all(&self) -> [T; 4] {
        [self.sequential_read, self.random_read, self.sequential_write, self.random_write]
    }

    /// The same of each.
    pub fn map<U>(&self, of: impl Fn(T) -> U) -> PerPattern<U> {
        PerPattern {
            sequential_read: of(self.sequential_read),
            random_read: of(self.random_read),
            sequential_write: of(self.sequential_write),
            random_write: of(self.random_write),
        }
    }
}

/// Times of single reads, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadTimes {
    /// Mean.
    pub average: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// One of the eight insights, in the poster's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedInsight {
    /// 1 to 8.
    pub number: u32,
    /// What the poster says.
    pub says: String,
    /// Its figures, where they stand in no table.
    pub details: Option<String>,
}

impl References {
    /// Those that come with the program.
    ///
    /// # Panics
    /// The file is part of the program, and tests read it: never.
    pub fn built_in() -> Self {
        match toml::from_str(include_str!("systems.toml")) {
            Ok(references) => references,
            Err(error) => unreachable!("the built-in systems: {error}"),
        }
    }

    /// By its name.
    pub fn find(&self, name: &str) -> Option<&Reference> {
        self.systems.iter().find(|system| system.name == name)
    }

    /// What the poster says under a number.
    pub fn insight(&self, number: u32) -> Option<&PublishedInsight> {
        self.insights.iter().find(|insight| insight.number == number)
    }
}

impl Reference {
    /// Its price over its peaks: euro per GB, per GiB/s.
    pub fn euro_per_gb_per_s(&self) -> Option<PerPattern<f64>> {
        self.peak_gib_per_s.map(|peaks| peaks.map(|gib_per_s| self.euro_per_gb / gib_per_s))
    }
}
