//! Results of `perdura-lab caches`. The names of fields are the keys of the JSON and do not change.
//! Fields that begin with `modelled` are modelled; all others were measured.

use serde::{Deserialize, Serialize};

use super::estimate::{Estimate, MemoryTimes};
use super::frames::{Contiguity, FrameSource};
use super::model::{CacheShape, CountsByOwner, FlushKind};
use super::placement::Placement;
use perdura_bench::machine::Machine;

/// The paper's steps; each one includes the steps before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Pages at the first touch, the allocator's structures in persistent memory, one kind of log
    /// record.
    Base,
    /// Pages come in contiguity buckets.
    Caa,
    /// Allocations are recorded in a log.
    Nvma,
    /// Word records and object records each have a log.
    Hybrid,
}

impl Step {
    /// All steps, in order.
    pub const ALL: [Self; 4] = [Self::Base, Self::Caa, Self::Nvma, Self::Hybrid];

    /// Name of the step in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Caa => "+CAA",
            Self::Nvma => "+NVMA",
            Self::Hybrid => "+hybrid",
        }
    }
}

/// The records of a transaction log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogKind {
    /// One record for each word.
    Words,
    /// One record for each object, whole even where one word changed.
    Objects,
    /// Records of both kinds: each write chooses the better one.
    Hybrid,
}

impl LogKind {
    /// All kinds of logs.
    pub const ALL: [Self; 3] = [Self::Words, Self::Objects, Self::Hybrid];

    /// Name of the kind in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Words => "word-only",
            Self::Objects => "object-only",
            Self::Hybrid => "hybrid",
        }
    }
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CachesResult {
    /// Always `heap_caches`.
    pub kind: String,
    /// The machine that measured.
    pub machine: Machine,
    /// The settings of the run.
    pub configuration: Configuration,
    /// Whose page frames could be seen.
    pub frames: FrameSource,
    /// Reasons why hardware counters are missing; empty if none is missing.
    pub counters_missing: Vec<String>,
    /// Pages of two kinds placed in each way.
    pub placement: Vec<Placement>,
    /// Every step at every count of operations.
    pub steps: Vec<StepResult>,
    /// The capacity work without persistent work beside it, at every count.
    pub alone: Vec<AloneResult>,
    /// Kinds of logs under mixed transactions.
    pub logs: Vec<LogResult>,
    /// Results by size of bucket.
    pub buckets: Vec<BucketResult>,
}

/// Settings of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// The modelled cache.
    pub cache: CacheShape,
    /// Effect of a flush on a line in the cache.
    pub flush: FlushKind,
    /// Records in the log of the base step.
    pub base_log: LogKind,
    /// Assumed times of the memory.
    pub times: MemoryTimes,
    /// Size of a bucket from the second step on.
    pub bucket_bytes: u64,
    /// Size of the heap.
    pub heap_bytes: u64,
    /// Size of the capacity work's table, which is used all the time.
    pub hot_bytes: u64,
    /// Size of the records that the capacity work keeps.
    pub kept_bytes: u64,
    /// Steps of capacity work for each hash operation.
    pub capacity_steps_per_operation: u64,
    /// Seed of all random streams.
    pub seed: u64,
}

/// Results of a step at a count of operations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// Which step.
    pub step: Step,
    /// Number of hash operations.
    pub operations: u64,
    /// MODELLED counts of the last-level cache.
    pub modelled: CountsByOwner,
    /// MODELLED percent of misses saved against the base.
    pub modelled_misses_fewer_percent: Option<f64>,
    /// MODELLED run times under the paper's assumptions.
    pub modelled_times: Vec<Estimate>,
    /// Contiguity of the persistent kind; none: frames are not shown.
    pub persistent: Option<Contiguity>,
    /// Contiguity of the capacity kind; none: frames are not shown.
    pub capacity: Option<Contiguity>,
    /// Percent of breaks saved against the base, both kinds together.
    pub breaks_fewer_percent: Option<f64>,
    /// Pages that the kernel moved during the run.
    pub pages_moved: u64,
    /// Lines flushed in an operation.
    pub lines_flushed_per_operation: f64,
    /// The same work without a recorder, measured with a thread for each kind of work; none: not
    /// timed.
    pub native: Option<Native>,
}

/// Times measured on the machine itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Native {
    /// Time of a hash operation, nanoseconds; none: there were none.
    pub operation_ns: Option<f64>,
    /// Time of a step of the capacity work, nanoseconds.
    pub capacity_step_ns: f64,
    /// Hardware counters of both threads by name, where the machine has them.
    pub counters: Vec<(String, u64)>,
}

/// Results of the capacity work alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AloneResult {
    /// Hash operations of the runs with which this one is compared.
    pub operations: u64,
    /// MODELLED counts of the last-level cache.
    pub modelled: CountsByOwner,
    /// The same work measured on the machine itself.
    pub native: Option<Native>,
}

/// Results of a kind of log under mixed transactions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogResult {
    /// Kind of the log.
    pub log: LogKind,
    /// Number of transactions.
    pub transactions: u64,
    /// Bytes that the transactions changed.
    pub changed_bytes: u64,
    /// Bytes stored to the logs.
    pub log_bytes: u64,
    /// Log bytes per changed byte.
    pub log_bytes_per_changed_byte: f64,
    /// Lines flushed for a transaction, those of the log included.
    pub lines_flushed_per_transaction: f64,
    /// Fences in a transaction.
    pub fences_per_transaction: f64,
}

/// Results of one size of bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BucketResult {
    /// Size of the bucket.
    pub bucket_bytes: u64,
    /// MODELLED counts of the last-level cache.
    pub modelled: CountsByOwner,
    /// Contiguity of the persistent kind; none: frames are not shown.
    pub persistent: Option<Contiguity>,
    /// Contiguity of the capacity kind; none: frames are not shown.
    pub capacity: Option<Contiguity>,
    /// Bytes of present pages over bytes of objects alive at the end.
    pub resident_per_live: Option<f64>,
    /// Time of a hash operation with its capacity work, one thread, nanoseconds.
    pub operation_ns: f64,
    /// Time of the slowest operation, nanoseconds: it waited for a bucket.
    pub operation_ns_max: u64,
}
