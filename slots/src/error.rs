//! Why an operation stops, and why a heap does not open.

use perdura_region::{Need, RegionError, Unreadable};

/// Why an operation cannot go on now. All that it did must be rolled back; dropping the
/// [`crate::Op`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Stop {
    /// Something must be waited for, with no lane held: [`crate::Region::satisfy`], then
    /// try again.
    Need(Need),
    /// No memory of this size is free.
    OutOfMemory {
        /// Bytes asked for.
        needed_bytes: u64,
        /// Bytes in free spans, perhaps not contiguous.
        free_bytes: u64,
    },
    /// The heap plays dead: see [`crate::Heap::kill_after`].
    Killed,
}

/// Why a heap could not be opened or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// The region holds something else.
    #[error("not a heap: found magic {found:#018x} at region offset 0")]
    NotAHeap {
        /// The eight bytes found.
        found: u64,
    },
    /// Written by another version.
    #[error(
        "heap format version {found}; this program reads those up to {supported}: open it with a newer one"
    )]
    Version {
        /// Version found.
        found: u64,
        /// Version understood.
        supported: u64,
    },
    /// The number of lanes is fixed when the heap is made.
    #[error("the heap was made for {stored} lanes, the region was opened with {found}")]
    Lanes {
        /// Lanes of the heap.
        stored: u64,
        /// Lanes of the region.
        found: u64,
    },
    /// No room for the heap's own tables.
    #[error("a region of {region_bytes} bytes is too small: this heap needs {needed_bytes} bytes")]
    TooSmall {
        /// Bytes of the region.
        region_bytes: u64,
        /// Least bytes.
        needed_bytes: u64,
    },
    /// A word that no correct program writes.
    #[error("{what} at region offset {offset} holds the impossible value {value:#x}")]
    Corrupt {
        /// `span table`, `undo log`, `object`, …
        what: &'static str,
        /// Where in the region.
        offset: u64,
        /// What was found.
        value: u64,
    },
    /// Memory that was not loaded yet cannot be.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// All named roots are taken.
    #[error("no room for another named root; there are {roots_max}")]
    RootsFull {
        /// How many there may be.
        roots_max: u64,
    },
    /// The region refuses.
    #[error(transparent)]
    Region(#[from] RegionError),
}
