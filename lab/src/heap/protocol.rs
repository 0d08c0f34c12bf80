//! What is said between `perdura-lab heap` and its workers: a line of JSON each way, one answer
//! for each order.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::churn::{Counted, Sizes, Timed, Touch};
use super::contestant::{Measure, Who};

/// The first line to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Whom it works for.
    pub who: Who,
    /// Library of the rival, if it is one in a library.
    pub library: Option<PathBuf>,
    /// Threads.
    pub threads: usize,
    /// Live objects of all threads.
    pub objects: usize,
    /// Their sizes.
    pub sizes: Sizes,
    /// What is written into them.
    pub touch: Touch,
    /// Seed.
    pub seed: u64,
    /// Folder for heaps, in memory.
    pub dir: PathBuf,
    /// Size of a heap.
    pub heap_bytes: u64,
    /// A heap's file to make, or to open again, and to leave; none: its name is taken away at once.
    pub keep: Option<PathBuf>,
    /// Whether flushes are counted; such a worker is not timed.
    pub is_counting: bool,
}

/// What a worker is to do next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Allocate all objects.
    Populate,
    /// Replace objects, so many times over all threads, not timed.
    Warm(u64),
    /// Do it for so long, all threads at once.
    Round {
        /// What.
        measure: Measure,
        /// How long.
        ns: u64,
    },
    /// Do it so many times, one thread after the other, and count.
    Count {
        /// What.
        measure: Measure,
        /// How many times.
        operations: u64,
    },
    /// Say what memory it takes.
    Memory,
}

/// A worker's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To its setup.
    Ready {
        /// The allocator it got, in the allocator's own words.
        allocator: String,
        /// The heap, if it was there before.
        reopened: Option<Reopened>,
    },
    /// To what is timed: of each thread.
    Timed(Vec<Timed>),
    /// To what is counted.
    Counted(Counted),
    /// To the question for memory.
    Memory(Memory),
    /// It could not; it ends.
    Failed(String),
}

/// A heap that was opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reopened {
    /// Time it took.
    pub ns: u64,
    /// Objects found allocated.
    pub objects: u64,
    /// Log records applied.
    pub records: u64,
}

/// What memory a worker takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Live objects' sizes as asked for.
    pub asked_bytes: u64,
    /// Resident now, less what was before the first object.
    pub resident_bytes: u64,
    /// What the allocator says it holds for objects.
    pub taken_bytes: Option<u64>,
}
