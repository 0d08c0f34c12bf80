//! Why an operation stops, and why a heap is refused.

use perdura_region::{LaneId, Need, RegionError, Unreadable};

/// Why an operation cannot go on now. Everything it did must be rolled back, which dropping the
/// [`crate::Op`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Stop {
    /// The operation must release its lanes, call [`crate::Region::satisfy`] with this need, and
    /// begin again.
    Need(Need),
    /// No run of free spans is long enough for the object.
    OutOfMemory {
        /// Bytes that the object takes.
        needed_bytes: u64,
        /// Bytes in free spans, perhaps not next to each other.
        free_bytes: u64,
        /// The lane that the object was for.
        lane: LaneId,
    },
    /// A test has let the heap die, with [`crate::Heap::kill_after`].
    Killed,
}

/// Why a heap could not be opened, searched or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// The region begins with something other than a heap's header.
    #[error("not a heap: found magic {found:#018x} at region offset 0")]
    NotAHeap {
        /// The first eight bytes of the region.
        found: u64,
    },
    /// The heap was written in a format that this program does not read.
    #[error(
        "heap format version {found} at region offset 8; this program reads version {supported}: \
         open the heap with the program that wrote it"
    )]
    Version {
        /// Version that the heap's header names.
        found: u64,
        /// Version that this program reads and writes.
        supported: u64,
    },
    /// The number of lanes is fixed when the heap is made.
    #[error("the heap was made for {stored} lanes, the region was opened with {found}")]
    Lanes {
        /// Lanes that the heap was made for.
        stored: u64,
        /// Lanes that the region was opened with.
        found: u64,
    },
    /// A heap needs a lane for its tables and at least one for its user.
    #[error("a region of {lanes} lanes is opened as a heap, which needs at least 2")]
    TooFewLanes {
        /// Lanes that the region was opened with.
        lanes: u16,
    },
    /// The region has no room for the heap's own tables and one span.
    #[error("a region of {region_bytes} bytes is too small: this heap needs {needed_bytes} bytes")]
    TooSmall {
        /// Bytes of the region.
        region_bytes: u64,
        /// Least bytes that a heap with these lanes and this reserved range needs.
        needed_bytes: u64,
    },
    /// The region holds a word that no correct program writes there.
    #[error("{what} at region offset {offset} holds the impossible value {value:#x}")]
    Corrupt {
        /// Table that the word belongs to: `heap header`, `span table` or `undo log`.
        what: &'static str,
        /// Offset of the word in the region.
        offset: u64,
        /// The word found.
        value: u64,
    },
    /// A reference leads to a place where no object of the lane begins.
    #[error("no object of lane {lane} begins at region offset {offset}, which a reference names",
        lane = lane.0)]
    NoObject {
        /// Lane whose references are being followed.
        lane: LaneId,
        /// Region offset that the reference names.
        offset: u64,
    },
    /// Two references lead to one object, which has one owner.
    #[error("two references name the object at region offset {offset}, which has one owner")]
    ReachedTwice {
        /// Region offset of the object.
        offset: u64,
    },
    /// Memory that was not loaded yet cannot be read from the image.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// All named roots are taken.
    #[error("no room for another named root; there are {roots_max}")]
    RootsFull {
        /// Most named roots that a heap can have.
        roots_max: u64,
    },
    /// The region refuses to be changed.
    #[error(transparent)]
    Region(#[from] RegionError),
}
