//! Settings of a heap.

use std::sync::Arc;

use crate::memory::Tap;

/// How it is known, durably, what is allocated. Fixed when the heap is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bookkeeping {
    /// By a log of allocations and frees; everything else lies in DRAM (pMem's NVMA).
    #[default]
    Logged,
    /// By the allocator's own metadata, kept in persistent memory and flushed at each change, about
    /// four lines an allocation (pMem, "Porting DRAM allocators for NVM"): for comparison.
    Conventional,
}

impl Bookkeeping {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Logged => "logged bookkeeping",
            Self::Conventional => "conventional bookkeeping",
        }
    }
}

/// How transactions are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Logging {
    /// New values go to the log; memory changes after the commit.
    #[default]
    Redo,
    /// Old values go to the log; memory changes at once.
    Undo,
}

/// What kinds of records transactions write (pMem, "Hybrid log design").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Records {
    /// Word records for small stores, object records for large ones.
    #[default]
    Hybrid,
    /// Word records only: the log's own data outweigh a large object's. For comparison.
    Words,
    /// Object records only: all of an object is logged even if a word of it changes. For
    /// comparison.
    Objects,
}

/// Settings of a heap. `Config::default()` is what to start from.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// How it is known what is allocated.
    pub bookkeeping: Bookkeeping,
    /// How transactions are logged. Redo is faster, whether stores must be flushed or not
    /// (docs/measuring.md).
    pub logging: Logging,
    /// What kinds of records transactions write.
    pub records: Records,
    /// Bytes of a contiguity bucket: a multiple of 64 KiB. `None`: 2 MiB, less in small heaps.
    pub bucket_bytes: Option<u64>,
    /// Whether a bucket gets its pages at once, in a row; else each at its first touch.
    pub contiguous: bool,
    /// NUMA node of capacity memory (CXL or NVM as a memory node); `None`: the system's choice.
    pub numa_node: Option<u32>,
    /// Bytes that the logs may have between two folds, 1 MiB to 4 GiB; a transaction may have half
    /// of it. While an undo transaction is open nothing is folded, and the logs of other threads
    /// grow on.
    pub log_bytes_max: u64,
    /// Threads of a recovery; 0: as many as there are processors.
    pub threads: usize,
    /// Sees all stores to persistent memory.
    pub tap: Option<Arc<dyn Tap>>,
    /// Stands for the system's boot id, by which it is known whether caches were lost; for tests.
    pub boot_id: Option<[u64; 2]>,
    /// A planted bug, for tests that must catch it.
    pub planted: Planted,
}

/// Bounds of [`Config::log_bytes_max`].
pub(crate) const LOG_BYTES_LEAST: u64 = 1 << 20;
pub(crate) const LOG_BYTES_MOST: u64 = 4 << 30;

/// Bugs that can be planted: each must be caught by a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Planted {
    /// None.
    #[default]
    None,
    /// Recovery puts a write in place although its object was freed and its memory given to another
    /// since.
    ReplayIntoReused,
    /// Groups are settled before their homes were written back.
    SettleUnflushed,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bookkeeping: Bookkeeping::default(),
            logging: Logging::default(),
            records: Records::default(),
            bucket_bytes: None,
            contiguous: true,
            numa_node: None,
            log_bytes_max: 64 << 20,
            threads: 0,
            tap: None,
            boot_id: None,
            planted: Planted::None,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("bookkeeping", &self.bookkeeping)
            .field("logging", &self.logging)
            .field("records", &self.records)
            .field("bucket_bytes", &self.bucket_bytes)
            .field("contiguous", &self.contiguous)
            .field("numa_node", &self.numa_node)
            .field("log_bytes_max", &self.log_bytes_max)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}
