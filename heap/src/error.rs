//! The errors of a heap.

use std::io;

use crate::memory::MemoryError;
use crate::ptr::Offset;

/// Why a heap cannot be opened, or refuses a call. Nothing was changed unless the call says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapError {
    /// The memory begins with something other than a heap.
    #[error("not a heap: found {found:#018x} where a heap begins with \"PERDDUAL\"")]
    NotAHeap {
        /// The first eight bytes of the memory.
        found: u64,
    },
    /// The heap was written in a format that this program does not read.
    #[error(
        "heap format version {found}; this program reads {supported}: open it with the version \
         that wrote it"
    )]
    Version {
        /// Version that the superblock names.
        found: u64,
        /// Version that this program reads and writes.
        supported: u64,
    },
    /// The memory is shorter than the heap in it.
    #[error(
        "the heap was made with {made_bytes} bytes, the memory has {found_bytes}: a part is missing"
    )]
    Shorter {
        /// Bytes that the heap was made with.
        made_bytes: u64,
        /// Bytes of the memory.
        found_bytes: u64,
    },
    /// The call asks for another setting than the one that was fixed when the heap was made.
    #[error("{setting} was fixed as {made} when this heap was made; it was opened with {asked}")]
    Fixed {
        /// Name of the setting.
        setting: &'static str,
        /// Value that the heap was made with.
        made: &'static str,
        /// Value that the call asks for.
        asked: &'static str,
    },
    /// A size is out of bounds.
    #[error("{what} of {bytes} bytes: it must have {least_bytes} to {most_bytes}")]
    Size {
        /// `a heap`, `an object`, `a bucket`, …
        what: &'static str,
        /// Bytes asked for.
        bytes: u64,
        /// Least bytes.
        least_bytes: u64,
        /// Most bytes.
        most_bytes: u64,
    },
    /// An alignment is no power of two, or is larger than the memory's own.
    #[error("alignment {align}: it must be a power of two of at most {most}")]
    Alignment {
        /// Alignment asked for, in bytes.
        align: u64,
        /// Largest alignment, in bytes.
        most: u64,
    },
    /// No memory is free.
    #[error(
        "no {needed_bytes} bytes of {kind} memory: {free_bytes} bytes are free in spans, some kept \
         for the log; free objects or make the heap larger"
    )]
    OutOfMemory {
        /// `persistent` or `capacity`.
        kind: &'static str,
        /// Bytes asked for.
        needed_bytes: u64,
        /// Bytes in free spans, perhaps not in a row.
        free_bytes: u64,
    },
    /// The system refuses pages for memory that the heap has.
    #[error("the system refused memory for {kind} use: {source}")]
    Refused {
        /// `persistent` or `capacity`.
        kind: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// No object begins at an offset that is to be freed or looked at.
    #[error("{offset} is not the first byte of an object of this heap")]
    NoObject {
        /// Offset in the heap.
        offset: Offset,
    },
    /// An object that is to be freed is free already.
    #[error("the object at {offset} was freed before")]
    FreedTwice {
        /// Offset in the heap.
        offset: Offset,
    },
    /// An object that is to be freed is of the other kind of memory.
    #[error("the object at {offset} is {found} memory, not {expected}")]
    OtherKind {
        /// Offset in the heap.
        offset: Offset,
        /// Kind of memory of the object.
        found: &'static str,
        /// Kind of memory that the call works on.
        expected: &'static str,
    },
    /// An address lies outside of the heap.
    #[error("address {address:#x} is not in this heap")]
    Foreign {
        /// The address.
        address: usize,
    },
    /// A range leaves its object.
    #[error("{len_bytes} bytes at {offset} do not lie in one object")]
    OutOfObject {
        /// Offset in the heap.
        offset: Offset,
        /// Bytes of the range.
        len_bytes: u64,
    },
    /// A word cannot hold the offset of an object that is allocated or freed with it.
    #[error(
        "the word at {offset} cannot name an object: it must be aligned to eight bytes, and lie in \
         another object than the one that is freed"
    )]
    Place {
        /// Offset of the word in the heap.
        offset: Offset,
    },
    /// The name of a root is empty or too long.
    #[error("root name {name:?} has {} bytes: it must have 1 to {most}", name.len())]
    RootName {
        /// The name.
        name: String,
        /// Bytes of the longest name.
        most: usize,
    },
    /// The name is taken by a root, or by a transaction of another thread that is making, changing
    /// or removing one.
    #[error(
        "root {name:?} exists already, or another transaction is making, changing or removing it"
    )]
    RootTaken {
        /// The name.
        name: String,
    },
    /// No root has this name.
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
        /// Number of the root's type.
        found: u64,
        /// Number of the type asked for.
        expected: u64,
        /// Name of the type asked for.
        expected_name: &'static str,
    },
    /// All named roots are taken.
    #[error("no room for root {name:?}: there are {roots_max} already")]
    RootsFull {
        /// The name.
        name: String,
        /// Most named roots of a heap.
        roots_max: u64,
    },
    /// A transaction is larger than the log allows.
    #[error(
        "a transaction of {bytes} bytes of log; it may have {most_bytes}: split it, or raise \
         log_bytes_max"
    )]
    LogFull {
        /// Bytes of log that the transaction needs.
        bytes: u64,
        /// Most bytes of log that a transaction may have.
        most_bytes: u64,
    },
    /// Too many threads use the heap at once.
    #[error("no log for another thread: {threads_max} threads use this heap already")]
    Threads {
        /// Most threads that may use a heap at once.
        threads_max: u64,
    },
    /// The call would bypass the transaction that this thread is in.
    #[error("this thread is in a transaction: {instead}")]
    InTransaction {
        /// The call or step to use instead.
        instead: &'static str,
    },
    /// Leaks that are handed back were found in another heap, or before this one was opened.
    #[error("these leaks were found in another heap: search this one")]
    OtherHeap,
    /// A pointer is null.
    #[error("a null pointer points to no object")]
    Null,
    /// An undo transaction that has changed memory in place is open.
    #[error("an undo transaction is open; end it first")]
    Busy,
    /// The memory holds a word that no correct program writes there.
    #[error("{what} at heap offset {offset:#x} holds the impossible value {value:#x}")]
    Corrupt {
        /// Structure that the word belongs to: `superblock`, `span table`, `log`, `snapshot`,
        /// `root`, …
        what: &'static str,
        /// Offset in the heap.
        offset: u64,
        /// The word found.
        value: u64,
    },
    /// The memory that the heap lies in is refused.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}
