//! The settings of a benchmark that are a choice of words.

use serde::Serialize;

/// Direction of the accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Accesses load.
    Read,
    /// Accesses store.
    Write,
}

/// Order of the accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecMode {
    /// Ascending places.
    Sequential,
    /// Descending places.
    SequentialDesc,
    /// Random places.
    Random,
    /// Chains of dependent accesses.
    Custom,
    /// Accesses of a recorded trace.
    Trace,
}

/// Instructions that make a store durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Persist {
    /// Non-temporal stores, then a fence.
    NoCache,
    /// Stores, `clwb` of each line, then a fence.
    Cache,
    /// Stores, `clflushopt` of each line, then a fence.
    CacheInv,
    /// Stores without flush and fence.
    None,
}

/// NUMA node of the memory, as seen from the threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NumaPattern {
    /// The threads' own node.
    Near,
    /// Another node.
    Far,
}

/// Distribution of random places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RandomDistribution {
    /// All places are equally likely.
    Uniform,
    /// Zipf's law, with the frequent places scattered.
    Zipf,
}

impl Operation {
    pub(super) const NAMES: [(&'static str, Self); 2] =
        [("read", Self::Read), ("write", Self::Write)];
}

impl ExecMode {
    pub(super) const NAMES: [(&'static str, Self); 5] = [
        ("sequential", Self::Sequential),
        ("sequential_desc", Self::SequentialDesc),
        ("random", Self::Random),
        ("custom", Self::Custom),
        ("trace", Self::Trace),
    ];

    /// Whether `number_operations` limits the work in this mode.
    pub fn counts_operations(self) -> bool {
        matches!(self, Self::Random | Self::Custom)
    }
}

impl Persist {
    pub(super) const NAMES: [(&'static str, Self); 4] = [
        ("nocache", Self::NoCache),
        ("cache", Self::Cache),
        ("cacheinv", Self::CacheInv),
        ("none", Self::None),
    ];

    /// All settings.
    pub const ALL: [Self; 4] = [Self::NoCache, Self::Cache, Self::CacheInv, Self::None];

    /// The setting with a name in workload files.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(own, _)| *own == name).map(|(_, persist)| *persist)
    }

    /// Name of the setting in workload files.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoCache => "nocache",
            Self::Cache => "cache",
            Self::CacheInv => "cacheinv",
            Self::None => "none",
        }
    }
}

impl NumaPattern {
    pub(super) const NAMES: [(&'static str, Self); 2] = [("near", Self::Near), ("far", Self::Far)];
}

impl RandomDistribution {
    pub(super) const NAMES: [(&'static str, Self); 3] =
        [("uniform", Self::Uniform), ("zipf", Self::Zipf), ("zipfian", Self::Zipf)];
}
