//! The messages between `perdura-lab heap` and its workers: a line of JSON each way, one answer for
//! each order.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::churn::{Counted, Sizes, Timed, Touch};
use super::contestant::{Measure, Who};

/// The first line to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// The contestant to run.
    pub who: Who,
    /// The rival's library, if the contestant has one.
    pub library: Option<PathBuf>,
    /// Number of threads.
    pub threads: usize,
    /// Live objects of all threads together.
    pub objects: usize,
    /// Sizes of the objects.
    pub sizes: Sizes,
    /// Bytes that are written into a new object.
    pub touch: Touch,
    /// Seed of all random streams.
    pub seed: u64,
    /// Folder for heaps, in memory.
    pub dir: PathBuf,
    /// Size of a heap.
    pub heap_bytes: u64,
    /// File of a heap to create, or to open again, and to keep; none: the file's name is removed at
    /// once.
    pub keep: Option<PathBuf>,
    /// Whether the worker counts flushes; such a worker is not timed.
    pub is_counting: bool,
}

/// An order to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Allocate all objects.
    Populate,
    /// Replace this number of objects over all threads, without timing.
    Warm(u64),
    /// Repeat an operation for a time, on all threads at once.
    Round {
        /// The operation.
        measure: Measure,
        /// Duration, nanoseconds.
        ns: u64,
    },
    /// Repeat an operation and count its flushes, one thread after the other.
    Count {
        /// The operation.
        measure: Measure,
        /// Number of repetitions.
        operations: u64,
    },
    /// Report the memory taken.
    Memory,
}

/// A worker's answer to an order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Answer to the setup.
    Ready {
        /// The allocator's description of itself.
        allocator: String,
        /// The heap, if it existed before.
        reopened: Option<Reopened>,
    },
    /// Answer to `Populate` and `Round`: the times of each thread.
    Timed(Vec<Timed>),
    /// Answer to `Count`.
    Counted(Counted),
    /// Answer to `Memory`.
    Memory(Memory),
    /// The contestant failed, for this reason; the worker ends.
    Failed(String),
}

/// A heap that was opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reopened {
    /// Time of opening it, nanoseconds.
    pub ns: u64,
    /// Objects found allocated.
    pub objects: u64,
    /// Log records applied.
    pub records: u64,
}

/// Memory of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes of the live objects as they were asked for.
    pub asked_bytes: u64,
    /// Resident bytes, less those before the first object.
    pub resident_bytes: u64,
    /// Bytes that the allocator says it holds for objects.
    pub taken_bytes: Option<u64>,
}
