//! Settings of a heap.

use std::sync::Arc;

use crate::memory::Tap;

/// The durable record of which objects are allocated; fixed when the heap is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bookkeeping {
    /// A log of allocations and frees, while all other state of the allocator lies in DRAM (pMem's
    /// NVMA).
    #[default]
    Logged,
    /// The allocator's own metadata, kept in persistent memory and flushed at each change, about
    /// four lines for each allocation (pMem, "Porting DRAM allocators for NVM"). This serves for
    /// comparison.
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

/// The kinds of records that transactions write (pMem, "Hybrid log design").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Records {
    /// Word records for small stores, object records for large ones.
    #[default]
    Hybrid,
    /// Only word records, so that the log's own words outweigh the bytes of a large object. This
    /// serves for comparison.
    Words,
    /// Only object records, so that the whole object is logged even if one word changes. This
    /// serves for comparison.
    Objects,
}

/// Settings of a heap. Start from `Config::default()` and change single fields.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// The durable record of which objects are allocated.
    pub bookkeeping: Bookkeeping,
    /// How transactions are logged. Redo is faster, whether stores must be flushed or not.
    pub logging: Logging,
    /// The kinds of records that transactions write.
    pub records: Records,
    /// Bytes of a contiguity bucket, a multiple of 64 KiB. `None` stands for 2 MiB, or less in
    /// small heaps.
    pub bucket_bytes: Option<u64>,
    /// Whether a bucket gets its pages at once and in a row, rather than each page at its first
    /// touch.
    pub contiguous: bool,
    /// NUMA node of capacity memory, for CXL or NVM that is a memory node. `None` leaves the choice
    /// to the system.
    pub numa_node: Option<u32>,
    /// Bytes that the logs may have between two folds, from 1 MiB to 4 GiB; one transaction may
    /// have half of them. While an undo transaction is open nothing is folded, and the logs of
    /// other threads grow on.
    pub log_bytes_max: u64,
    /// Number of threads that recover a heap; 0 for one on each processor.
    pub threads: usize,
    /// An observer of all stores to persistent memory.
    pub tap: Option<Arc<dyn Tap>>,
    /// Replaces the system's boot id in tests. By the boot id a heap knows whether the caches were
    /// lost.
    pub boot_id: Option<[u64; 2]>,
    /// A planted bug, for tests that must catch it. Without the feature `planted` nothing comes of
    /// it.
    pub planted: Planted,
}

/// Least value of [`Config::log_bytes_max`].
pub(crate) const LOG_BYTES_LEAST: u64 = 1 << 20;
pub(crate) const LOG_BYTES_MOST: u64 = 4 << 30;

/// Bugs that can be planted, so that a test proves that it would catch them. Each is one wrong
/// turn, taken only if the settings name it and the program was built with the feature `planted`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Planted {
    /// The right program.
    #[default]
    None,
    /// Recovery puts a write in place although the object was freed since, and its memory given to
    /// another object.
    ReplayIntoReused,
    /// Groups are settled before the lines that they changed were written back.
    SettleUnflushed,
    /// The line of a link's word is never written back.
    LinkUnnoted,
    /// What a transaction frees is recorded by itself, and durable before the transaction counts.
    FreeBeforeCommit,
    /// A link does not wait until the frees that it builds on are durable.
    LinkBeforeFrees,
    /// A chunk of a log is cleared without a mark that says so.
    ClearUnmarked,
}

impl Planted {
    /// All bugs.
    pub const ALL: [Self; 6] = [
        Self::ReplayIntoReused,
        Self::SettleUnflushed,
        Self::LinkUnnoted,
        Self::FreeBeforeCommit,
        Self::LinkBeforeFrees,
        Self::ClearUnmarked,
    ];

    /// Whether this program was built so that bugs can be planted.
    pub const CAN_PLANT: bool = cfg!(feature = "planted");

    /// The bug's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ReplayIntoReused => "replay-into-reused",
            Self::SettleUnflushed => "settle-unflushed",
            Self::LinkUnnoted => "link-unnoted",
            Self::FreeBeforeCommit => "free-before-commit",
            Self::LinkBeforeFrees => "link-before-frees",
            Self::ClearUnmarked => "clear-unmarked",
        }
    }

    /// Whether this bug is planted; never so without the feature `planted`.
    #[inline]
    pub(crate) fn is(self, bug: Self) -> bool {
        Self::CAN_PLANT && self == bug
    }
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
