//! The published systems that figures are compared with: data with the source of each number, never
//! measured here.
//!
//! `systems.toml` has them; numbers that its texts do not give are absent, not guessed. Bandwidths
//! are the published peaks in GiB/s; a euro per GB over such a peak is called euro per GB/s, as on
//! the poster. The poster's own columns are kept beside it, because its random accesses have
//! another size.

pub mod published;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All systems of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct References {
    /// Origin of the figures.
    pub label: PublishedLabel,
    /// The publication.
    pub about: String,
    /// Accesses that the peaks were measured with.
    pub accesses: PeakAccesses,
    /// The systems.
    #[serde(rename = "system")]
    pub systems: Vec<Reference>,
    /// The publication's insights.
    #[serde(rename = "insight")]
    pub insights: Vec<PublishedInsight>,
}

/// Label that the file must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PublishedLabel {
    /// Figures from a text, not from a machine at hand.
    Published,
}

/// Sizes of the accesses that the peaks were measured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeakAccesses {
    /// Size of sequential reads and writes.
    pub sequential_bytes: u64,
    /// Size of random reads.
    pub random_read_bytes: u64,
    /// Size of random writes.
    pub random_write_bytes: u64,
}

/// A published system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Name of the system.
    pub name: String,
    /// Description of the system in a sentence.
    pub about: String,
    /// Name of the profile in `media` that models the system, if there is one.
    pub profile: Option<String>,
    /// Name of the processor.
    pub cpu: String,
    /// Cores of the processor.
    pub cores: Option<u32>,
    /// Kind of the memory.
    pub memory: MemoryKind,
    /// Number of memory modules.
    pub modules: u32,
    /// Capacity of a module, GB.
    pub module_gb: Option<u32>,
    /// Generation of the modules.
    pub series: Option<String>,
    /// Power budget of a module, watts.
    pub module_watts: Option<f64>,
    /// Price of the memory.
    pub euro_per_gb: f64,
    /// Highest bandwidths.
    pub peak_gib_per_s: Option<PerPattern<f64>>,
    /// Times of dependent reads of a line.
    pub read_64b_ns: Option<ReadTimes>,
    /// The poster's price-performance, where it can be read; its random accesses differ from those
    /// of the peaks.
    #[serde(default)]
    pub poster_euro_per_gb_per_s: PerPattern<Option<f64>>,
    /// Source of each number, by key.
    pub sources: BTreeMap<String, String>,
}

/// Kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryKind {
    /// Persistent memory (Optane).
    #[serde(rename = "persistent")]
    Persistent,
    /// Volatile memory.
    #[serde(rename = "DRAM")]
    Dram,
}

/// A figure for each of the four patterns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerPattern<T> {
    /// Figure of sequential reads.
    pub sequential_read: T,
    /// Figure of random reads.
    pub random_read: T,
    /// Figure of sequential writes.
    pub sequential_write: T,
    /// Figure of random writes.
    pub random_write: T,
}

impl<T: Copy> PerPattern<T> {
    /// Names of the patterns, in the order of [`Self::all`].
    pub const NAMES: [&'static str; 4] =
        ["sequential read", "random read", "sequential write", "random write"];

    /// The four figures in the poster's order.
    pub fn all(&self) -> [T; 4] {
        [self.sequential_read, self.random_read, self.sequential_write, self.random_write]
    }

    /// Applies a function to each figure.
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
    /// Mean time, nanoseconds.
    pub average: f64,
    /// 99th percentile, nanoseconds.
    pub p99: f64,
}

/// One of the eight insights, as the poster states it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedInsight {
    /// Number of the insight, 1 to 8.
    pub number: u32,
    /// The poster's statement.
    pub says: String,
    /// The poster's figures that are in no table.
    pub details: Option<String>,
}

impl References {
    /// The built-in systems.
    ///
    /// # Panics
    /// Never: the file is part of the program, and tests read it.
    pub fn built_in() -> Self {
        match toml::from_str(include_str!("systems.toml")) {
            Ok(references) => references,
            Err(error) => unreachable!("the built-in systems: {error}"),
        }
    }

    /// The system with a name.
    pub fn find(&self, name: &str) -> Option<&Reference> {
        self.systems.iter().find(|system| system.name == name)
    }

    /// The insight with a number.
    pub fn insight(&self, number: u32) -> Option<&PublishedInsight> {
        self.insights.iter().find(|insight| insight.number == number)
    }
}

impl Reference {
    /// The price divided by the peaks: euro per GB, per GiB/s.
    pub fn euro_per_gb_per_s(&self) -> Option<PerPattern<f64>> {
        self.peak_gib_per_s.map(|peaks| peaks.map(|gib_per_s| self.euro_per_gb / gib_per_s))
    }
}
