//! Why a request is refused, and why a store does not open.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use perdura_slots::{HeapError, RegionError};

use crate::far::FarError;

/// The key holds another kind of value than the operation works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key holds another kind of value")]
pub struct WrongType;

/// Why an operation did not happen. Nothing has changed then.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Memory is used up.
    #[error("out of memory: {needed_bytes} bytes needed, {free_bytes} bytes free")]
    OutOfMemory {
        /// Bytes asked for in one piece.
        needed_bytes: u64,
        /// Bytes that are free, perhaps in several pieces.
        free_bytes: u64,
    },
    /// A key, a hash's field or a set's member has too long a name.
    #[error("a key of {len_bytes} bytes; at most {max_bytes} are allowed")]
    KeyTooLong {
        /// Bytes of the name.
        len_bytes: u64,
        /// Most bytes that a name may have.
        max_bytes: u64,
    },
    /// A value is too large, or would become too large.
    #[error("a value of {len_bytes} bytes; at most {max_bytes} are allowed")]
    ValueTooLarge {
        /// Bytes of the value.
        len_bytes: u64,
        /// Most bytes that a value may have.
        max_bytes: u64,
    },
    /// One operation changes more than the whole budget could hold.
    #[error(
        "the operation dirties over {needed_bytes} bytes at once, the budget is {budget_bytes} \
         bytes"
    )]
    TransactionTooLarge {
        /// Bytes that the operation dirties at least.
        needed_bytes: u64,
        /// Bytes of the budget in force.
        budget_bytes: u64,
    },
    /// Large values that the operation reads kept changing between its attempts.
    #[error("given up after {attempts} attempts: the large values it is made of kept changing")]
    Contended {
        /// Number of attempts made.
        attempts: u32,
    },
    /// A value that the operation needs is on a device that cannot give it.
    #[error(transparent)]
    Far(#[from] FarError),
    /// The operation needs more bytes of values that are not in memory than are read for one.
    #[error(
        "the operation needs {needed_bytes} bytes of values that are on a device; at most \
         {max_bytes} are read for one operation"
    )]
    TooMuchFar {
        /// Bytes of the values needed so far.
        needed_bytes: u64,
        /// Most bytes that are read for one operation.
        max_bytes: u64,
    },
    /// The key holds another kind of value than the operation works on.
    #[error(transparent)]
    WrongType(#[from] WrongType),
    /// The caller refused its own operation with [`crate::Tx::abort`].
    #[error("{0}")]
    Aborted(&'static str),
    /// The region refuses, because its device failed or because it is closed.
    #[error(transparent)]
    NotDurable(#[from] RegionError),
    /// A test has let the heap die.
    #[error("killed by a test")]
    Killed,
}

/// Why the closure of an operation ends early. The closure must return the error: one that goes on
/// instead changes nothing.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TxError {
    /// The caller refuses its own operation.
    #[error("{0}")]
    Abort(&'static str),
    /// The key holds another kind of value than the operation works on.
    #[error(transparent)]
    WrongType(#[from] WrongType),
    /// The store refuses the operation.
    #[error(transparent)]
    Refused(StoreError),
    /// The attempt is over, and the closure will be run again.
    #[error("the operation will be run again")]
    Again,
}

impl From<TxError> for StoreError {
    fn from(error: TxError) -> Self {
        match error {
            TxError::Abort(why) => Self::Aborted(why),
            TxError::WrongType(wrong) => Self::WrongType(wrong),
            TxError::Refused(error) => error,
            // An attempt that is over notes its cause and is run again, so its own error never
            // gets here.
            TxError::Again => {
                Self::Aborted("an attempt was ended by an error of another operation")
            }
        }
    }
}

/// A word in a store's memory that no store writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} at region offset {offset} holds the impossible value {value:#x}")]
pub struct Damaged {
    /// The structure that the word belongs to.
    pub what: &'static str,
    /// Offset of the structure in the region.
    pub offset: u64,
    /// The value found.
    pub value: u64,
}

impl Damaged {
    /// Ends the operation that met the word; [`Unreadable::catch`] returns it. A read has no other
    /// way to refuse, and damage is met while reading only before the shard was searched.
    pub(crate) fn unwind(self) -> ! {
        resume_unwind(Box::new(self))
    }
}

/// Memory that an operation was to read cannot be read, or holds a word that no store writes. The
/// operation's thread unwinds from the read: nothing has changed, and every lock is released on the
/// way. A program that serves others catches this.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// Memory that was not loaded yet cannot be read from the image.
    #[error(transparent)]
    Memory(#[from] perdura_slots::Unreadable),
    /// The memory holds a word that no store writes.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The value is on a device that cannot give it.
    #[error(transparent)]
    Far(#[from] FarError),
}

impl Unreadable {
    /// Ends the read that met this; [`Unreadable::catch`] returns it.
    pub(crate) fn unwind(self) -> ! {
        resume_unwind(Box::new(self))
    }

    /// Runs `f`, and returns memory that `f` could not read as an error.
    ///
    /// # Errors
    /// `f` met memory that cannot be read, or that is damaged.
    pub fn catch<R>(f: impl FnOnce() -> R) -> Result<R, Self> {
        // `f` unwinds from a read, so it leaves nothing half-changed behind.
        catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
            match panic.downcast::<perdura_slots::Unreadable>() {
                Ok(unreadable) => Self::Memory(*unreadable),
                Err(panic) => match panic.downcast::<Damaged>() {
                    Ok(damaged) => Self::Damaged(*damaged),
                    Err(panic) => match panic.downcast::<Self>() {
                        Ok(unreadable) => *unreadable,
                        Err(other) => resume_unwind(other),
                    },
                },
            }
        })
    }
}

/// Why a store does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The heap that the store lies in is refused.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// Memory that was not loaded yet cannot be read from the image.
    #[error(transparent)]
    Unreadable(#[from] perdura_slots::Unreadable),
    /// The store was written in a format that this program does not read.
    #[error(
        "store format version {found}; this program reads version {supported}: \
         open the store with the program that wrote it"
    )]
    Version {
        /// Version that the store's root names.
        found: u64,
        /// Version that this program reads and writes.
        supported: u64,
    },
    /// The region may become larger than the offsets in an index can tell.
    #[error("a region that may grow to {reserved_bytes} bytes; a store can be of {max_bytes}")]
    TooLarge {
        /// Bytes that the region may grow to.
        reserved_bytes: u64,
        /// Most bytes of a region that holds a store.
        max_bytes: u64,
    },
    /// The store's memory holds a word that no store writes.
    #[error(transparent)]
    Corrupt(#[from] Damaged),
    /// A value on a device was needed, and cannot be read.
    #[error(transparent)]
    Far(#[from] FarError),
    /// Values of the store lie on devices, and the store is opened without them.
    #[error("values of this store lie on devices: name these, with --device for each")]
    NeedsDevices,
    /// The system has no memory for the counts by which values are chosen that leave memory.
    #[error("no memory for the counts of uses, {bytes} bytes: {source}")]
    Counts {
        /// Bytes of the counts.
        bytes: u64,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

impl From<Unreadable> for OpenError {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Memory(unreadable) => Self::Unreadable(unreadable),
            Unreadable::Damaged(damaged) => Self::Corrupt(damaged),
            Unreadable::Far(error) => Self::Far(error),
        }
    }
}
