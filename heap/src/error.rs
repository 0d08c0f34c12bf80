//! Why the heap refuses.

use std::io;

use crate::memory::MemoryError;
use crate::ptr::Offset;

/// Why a heap cannot be opened, or does not do what it was asked. Nothing was changed unless said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// The memory holds something else.
    #[error("not a heap: found {found:#018x} where a heap begins with \"PERDDUAL\"")]
    NotAHeap {
        /// The eight bytes found.
        found: u64,
    },
    /// Written by another version.
    #[error(
        "heap format version {found}; this program reads {supported}: open it with the version that wrote it"
    )]
    Version {
        /// Version found.
        found: u64,
        /// Version understood.
        supported: u64,
    },
    /// The file is shorter than the heap in it.
    #[error(
        "the heap was made with {made_bytes} bytes, the memory has {found_bytes}: a part is missing"
    )]
    Shorter {
        /// Bytes of the heap.
        made_bytes: u64,
        /// Bytes there are.
        found_bytes: u64,
    },
    /// A setting that was fixed when the heap was made.
    #[error("{setting} was fixed as {made} when this heap was made; it was opened with {asked}")]
    Fixed {
        /// The setting.
        setting: &'static str,
        /// What it was made with.
        made: &'static str,
        /// What was asked for.
        asked: &'static str,
    },
    /// A size that cannot be.
    #[error("{what} of {bytes} bytes: it must have {least_bytes} to {most_bytes}")]
    Size {
        /// `a heap`, `an object`, `a bucket`, …
        what: &'static str,
        /// Asked for.
        bytes: u64,
        /// Least.
        least_bytes: u64,
        /// Most.
        most_bytes: u64,
    },
    /// An alignment that cannot be.
    #[error("alignment {align}: it must be a power of two of at most {most}")]
    Alignment {
        /// Asked for.
        align: u64,
        /// Most.
        most: u64,
    },
    /// No memory is free.
    #[error(
        "no {needed_bytes} bytes of {kind} memory: {free_bytes} bytes are free in spans, some kept for the log; free objects or make the heap larger"
    )]
    OutOfMemory {
        /// `persistent` or `capacity`.
        kind: &'static str,
        /// Asked for.
        needed_bytes: u64,
        /// In free spans, perhaps not in a row.
        free_bytes: u64,
    },
    /// The system refused memory that the heap has.
    #[error("the system refused memory for {kind} use: {source}")]
    Refused {
        /// `persistent` or `capacity`.
        kind: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// What is to be freed is no object.
    #[error("{offset} is not the first byte of an object of this heap")]
    NoObject {
        /// Where.
        offset: Offset,
    },
    /// What is to be freed is free.
    #[error("the object at {offset} was freed before")]
    FreedTwice {
        /// Where.
        offset: Offset,
    },
    /// What is to be freed is of the other kind.
    #[error("the object at {offset} is {found} memory, not {expected}")]
    OtherKind {
        /// Where.
        offset: Offset,
        /// What it is.
        found: &'static str,
        /// What was expected.
        expected: &'static str,
    },
    /// An address outside the heap.
    #[error("address {address:#x} is not in this heap")]
    Foreign {
        /// The address.
        address: usize,
    },
    /// A range that leaves its object.
    #[error("{len_bytes} bytes at {offset} do not lie in one object")]
    OutOfObject {
        /// Where.
        offset: Offset,
        /// How many.
        len_bytes: u64,
    },
    /// A name that cannot be a root's.
    #[error("root name {name:?} has {} bytes: it must have 1 to {most}", name.len())]
    RootName {
        /// The name.
        name: String,
        /// Longest.
        most: usize,
    },
    /// The name is taken: by a root, or by a transaction of another thread that is making, changing
    /// or removing it.
    #[error(
        "root {name:?} exists already, or another transaction is making, changing or removing it"
    )]
    RootTaken {
        /// The name.
        name: String,
    },
    /// There is no such root.
    #[error("there is no root {name:?}")]
    NoRoot {
        /// The name.
        name: String,
    },
    /// The root is of another type.
    #[error("root {name:?} is of type {found:#018x}, not of {expected_name} ({expected:#018x})")]
    RootType {
        /// The name.
        name: String,
        /// Its type's number.
        found: u64,
        /// The number of the type asked for.
        expected: u64,
        /// The type asked for.
        expected_name: &'static str,
    },
    /// All named roots are taken.
    #[error("no room for root {name:?}: there are {roots_max} already")]
    RootsFull {
        /// The name.
        name: String,
        /// How many there may be.
        roots_max: u64,
    },
    /// A transaction is larger than the log may be.
    #[error(
        "a transaction of {bytes} bytes of log; it may have {most_bytes}: split it, or raise log_bytes_max"
    )]
    LogFull {
        /// Bytes it wants.
        bytes: u64,
        /// Bytes it may have.
        most_bytes: u64,
    },
    /// Too many threads use the heap at once.
    #[error("no log for another thread: {threads_max} threads use this heap already")]
    Threads {
        /// How many may.
        threads_max: u64,
    },
    /// This thread is in a transaction.
    #[error("this thread is in a transaction: {instead}")]
    InTransaction {
        /// What to do.
        instead: &'static str,
    },
    /// What is handed back was found in another heap, or before this one was opened.
    #[error("these leaks were found in another heap: search this one")]
    OtherHeap,
    /// A null pointer.
    #[error("a null pointer points to no object")]
    Null,
    /// A transaction is open that changed memory in place.
    #[error("an undo transaction is open; end it first")]
    Busy,
    /// A word that no correct program writes.
    #[error("{what} at heap offset {offset:#x} holds the impossible value {value:#x}")]
    Corrupt {
        /// `superblock`, `span table`, `log`, `snapshot`, `root`.
        what: &'static str,
        /// Where.
        offset: u64,
        /// What was found.
        value: u64,
    },
    /// The memory itself.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}
