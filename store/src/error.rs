//! What callers may meet: refusals of a request, of the machine, of an image.

use perdura_slots::{HeapError, RegionError};

/// The key holds another kind of value than the operation works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key holds another kind of value")]
pub struct WrongType;

/// Why an operation did not happen. None of it did.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Memory is used up.
    #[error("out of memory: {needed_bytes} bytes needed, {free_bytes} bytes free")]
    OutOfMemory {
        /// Bytes asked for at once.
        needed_bytes: u64,
        /// Bytes free, perhaps in pieces.
        free_bytes: u64,
    },
    /// A key or hash field is too long.
    #[error("a key of {len_bytes} bytes; at most {max_bytes} are allowed")]
    KeyTooLong {
        /// Its length.
        len_bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// A value is, or would become, too large.
    #[error("a value of {len_bytes} bytes; at most {max_bytes} are allowed")]
    ValueTooLarge {
        /// Its length.
        len_bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// One operation changes more than the whole budget could hold.
    #[error(
        "the operation dirties over {needed_bytes} bytes at once, the budget is {budget_bytes} bytes"
    )]
    TransactionTooLarge {
        /// Bytes it had at least.
        needed_bytes: u64,
        /// Budget in force, bytes.
        budget_bytes: u64,
    },
    /// Large values kept changing between attempts.
    #[error("given up after {attempts} attempts: the large values it is made of kept changing")]
    Contended {
        /// Attempts made.
        attempts: u32,
    },
    /// The key holds another kind of value.
    #[error(transparent)]
    WrongType(#[from] WrongType),
    /// The caller's own refusal, by [`crate::Tx::abort`].
    #[error("{0}")]
    Aborted(&'static str),
    /// The region refuses: its device failed, or it is closed.
    #[error(transparent)]
    NotDurable(#[from] RegionError),
    /// The heap plays dead (tests).
    #[error("killed by a test")]
    Killed,
}

/// Why an operation's closure ends early. Return it: swallowing it changes nothing.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TxError {
    /// The caller's own refusal.
    #[error("{0}")]
    Abort(&'static str),
    /// The key holds another kind of value.
    #[error(transparent)]
    WrongType(#[from] WrongType),
    /// The operation is refused.
    #[error(transparent)]
    Refused(StoreError),
    /// The attempt is over: the closure will be run again.
    #[error("the operation will be run again")]
    Again,
}

impl From<TxError> for StoreError {
    fn from(error: TxError) -> Self {
        match error {
            TxError::Abort(why) => Self::Aborted(why),
            TxError::WrongType(wrong) => Self::WrongType(wrong),
            TxError::Refused(error) => error,
            // An attempt that is over never reports this one; the cause was noted beside it.
            TxError::Again => {
                Self::Aborted("an attempt was ended by an error of another operation")
            }
        }
    }
}

/// Why a store does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The heap below.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// Memory that was not loaded yet cannot be.
    #[error(transparent)]
    Unreadable(#[from] perdura_slots::Unreadable),
    /// Written by another version.
    #[error("store format version {found}, this program reads {supported}")]
    Version {
        /// Version found.
        found: u64,
        /// Version understood.
        supported: u64,
    },
    /// An index entry has no more bits for where a record lies.
    #[error("a region that may grow to {reserved_bytes} bytes; a store can be of {max_bytes}")]
    TooLarge {
        /// Bytes the region may grow to.
        reserved_bytes: u64,
        /// Most bytes.
        max_bytes: u64,
    },
    /// An index entry points to what is no record.
    #[error("{what} at region offset {offset} holds the impossible value {value:#x}")]
    Corrupt {
        /// Which structure.
        what: &'static str,
        /// Where.
        offset: u64,
        /// What was found.
        value: u64,
    },
}
