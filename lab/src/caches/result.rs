//! What a run of `perdura-lab caches` found. These names are the keys of its JSON: kept. What begins
//! with `modelled` is modelled; all else was measured.

use serde::{Deserialize, Serialize};

use super::estimate::{Estimate, MemoryTimes};
use super::frames::{Contiguity, FrameSource};
use super::model::{CacheShape, CountsByOwner, FlushKind};
use super::placement::Placement;
use perdura_bench::machine::Machine;

/// The paper's steps, each with those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Pages at the first touch, the allocator's structures in persistent memory, one kind of log
    /// record.
    Base,
    /// Pages in contiguity buckets.
    Caa,
    /// What is allocated is known from a log.
    Nvma,
    /// Word records and object records, each in its log.
    Hybrid,
}

impl Step {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Base, Self::Caa, Self::Nvma, Self::Hybrid];

    /// For a person.
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Caa => "+CAA",
            Self::Nvma => "+NVMA",
            Self::Hybrid => "+hybrid",
        }
    }
}

/// Which records a transaction log holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogKind {
    /// A record for each word.
    Words,
    /// A record for each object, whole even where one word changed.
    Objects,
    /// Both, each write as it is better.
    Hybrid,
}

impl LogKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Words, Self::Objects, Self::Hybrid];

    /// For a person.
    pub fn name(self) -> &'static str {
        match self {
            Self::Words => "word-only",
            Self::Objects => "object-only",
            Self::Hybrid => "hybrid",
        }
    }
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachesResult {
    /// Always `heap_caches`.
    pub kind: String,
    /// Where it ran.
    pub machine: Machine,
    /// How it was set up.
    pub configuration: Configuration,
    /// Whose page frames could be seen.
    pub frames: FrameSource,
    /// Why hardware counters were not to be had; empty: they were.
    pub counters_missing: Vec<String>,
    /// Pages of two kinds placed in each way.
    pub placement: Vec<Placement>,
    /// Every step at every count of operations.
    pub steps: Vec<StepResult>,
    /// The capacity work without persistent work beside it, at every count.
    pub alone: Vec<AloneResult>,
    /// Kinds of logs under mixed transactions.
    pub logs: Vec<LogResult>,
    /// Sizes of a bucket.
    pub buckets: Vec<BucketResult>,
}

/// How a run was set up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// The modelled cache.
    pub cache: CacheShape,
    /// What a flush leaves in it.
    pub flush: FlushKind,
    /// The base's log.
    pub base_log: LogKind,
    /// Assumed times of memory.
    pub times: MemoryTimes,
    /// Bytes of a bucket, from the second step on.
    pub bucket_bytes: u64,
    /// Memory of the heap.
    pub heap_bytes: u64,
    /// Bytes of the capacity work's table, which is used all the time.
    pub hot_bytes: u64,
    /// Bytes of records that the capacity work keeps.
    pub kept_bytes: u64,
    /// Capacity work beside a hash operation, steps.
    pub capacity_steps_per_operation: u64,
    /// Seed of all streams.
    pub seed: u64,
}

/// A step at a count of operations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// Which.
    pub step: Step,
    /// Hash operations.
    pub operations: u64,
    /// MODELLED: what the last-level cache saw.
    pub modelled: CountsByOwner,
    /// MODELLED: misses fewer than the base's, percent.
    pub modelled_misses_fewer_percent: Option<f64>,
    /// MODELLED: run times under the paper's assumptions.
    pub modelled_times: Vec<Estimate>,
    /// Pages of the persistent kind; none: frames are not shown.
    pub persistent: Option<Contiguity>,
    /// Pages of the capacity kind.
    pub capacity: Option<Contiguity>,
    /// Breaks fewer than the base's, percent, both kinds.
    pub breaks_fewer_percent: Option<f64>,
    /// Pages that the kernel moved during the run.
    pub pages_moved: u64,
    /// Lines flushed for an operation.
    pub lines_flushed_per_operation: f64,
    /// The same without a recorder, on the machine itself, with a thread for each kind of work;
    /// none: not timed.
    pub native: Option<Native>,
}

/// Measured on the machine itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Native {
    /// A hash operation, nanoseconds; none: there were none.
    pub operation_ns: Option<f64>,
    /// A step of the capacity work, nanoseconds.
    pub capacity_step_ns: f64,
    /// Hardware counters of both threads, by name, where there are any.
    pub counters: Vec<(String, u64)>,
}

/// The capacity work alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AloneResult {
    /// Hash operations of the runs it is compared with.
    pub operations: u64,
    /// MODELLED: what the last-level cache saw.
    pub modelled: CountsByOwner,
    /// The same on the machine itself.
    pub native: Option<Native>,
}

/// A kind of log under mixed transactions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogResult {
    /// Which.
    pub log: LogKind,
    /// Transactions.
    pub transactions: u64,
    /// Bytes that the transactions changed.
    pub changed_bytes: u64,
    /// Bytes stored to the logs.
    pub log_bytes: u64,
    /// Log bytes per changed byte.
    pub log_bytes_per_changed_byte: f64,
    /// Lines flushed for a transaction, all of them.
    pub lines_flushed_per_transaction: f64,
    /// Fences of a transaction.
    pub fences_per_transaction: f64,
}

/// A size of bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BucketResult {
    /// Its size.
    pub bucket_bytes: u64,
    /// MODELLED: what the last-level cache saw.
    pub modelled: CountsByOwner,
    /// Pages of the persistent kind; none: frames are not shown.
    pub persistent: Option<Contiguity>,
    /// Pages of the capacity kind.
    pub capacity: Option<Contiguity>,
    /// Pages that are there, bytes, over the bytes of objects alive at the end.
    pub resident_per_live: Option<f64>,
    /// A hash operation with its capacity work on the machine itself, one thread, nanoseconds.
    pub operation_ns: f64,
    /// The slowest of them, nanoseconds: it waited for a bucket.
    pub operation_ns_max: u64,
}
