//! The stores under test, which do YCSB's operations. A rival implements [`Target`] and
//! [`Session`].

mod array;
mod figures;
mod redis;
mod resp;
mod spawn;
mod store;

pub use array::ArrayTarget;
pub use figures::Figures;
pub use redis::RedisTarget;
pub(crate) use resp::{Connection, Reply};
pub use spawn::{SpawnOptions, SpawnedTarget};
pub use store::new_region;
pub use store::{StoreOptions, StoreTarget, touch};

use std::ops::Range;

use perdura_region::{OpenError as RegionOpenError, RegionError};
use perdura_store::StoreError;

/// A store under test. Sessions of several threads use it at once.
pub trait Target: Sync {
    /// A text for people: the store and its setup.
    fn describe(&self) -> String;

    /// Opens one thread's access. `pipeline` is the number of operations that may be under way at a
    /// time; a target without a pipeline does each at once.
    ///
    /// # Errors
    /// The session cannot be opened.
    fn session(&self, pipeline: usize) -> Result<Box<dyn Session + '_>, TargetError>;

    /// Reads the target's figures.
    ///
    /// # Errors
    /// The target does not answer.
    fn figures(&self) -> Result<Figures, TargetError>;

    /// Processor time that the target has used, nanoseconds; `None` if it is not known. For an
    /// embedded target it is the time of the whole process.
    fn cpu_ns(&self) -> Option<u64>;

    /// Sets the bytes that may be dirty, and begins their high-water mark anew.
    ///
    /// # Errors
    /// The target has no budget, or refuses this one.
    fn set_budget(&self, _bytes: u64) -> Result<(), TargetError> {
        Err(TargetError::Unsupported { what: "setting a budget" })
    }

    /// Flushes dirty bytes to the SSD at the end; `None` if the target has no such flush.
    ///
    /// # Errors
    /// The flush failed.
    fn finish(&mut self) -> Result<Option<FinalFlush>, TargetError> {
        Ok(None)
    }
}

/// One thread's access to a [`Target`].
///
/// An operation is done when the call returns, unless it returns [`Outcome::Queued`]; then the next
/// [`Session::complete`] reports it, in the order of the calls.
pub trait Session: Send {
    /// Inserts a record with all fields.
    ///
    /// # Errors
    /// The target's error.
    fn insert(&mut self, key: Key<'_>, values: &[&[u8]]) -> Result<Outcome, TargetError>;

    /// Reads all fields of a record.
    ///
    /// # Errors
    /// The target's error.
    fn read(&mut self, key: Key<'_>) -> Result<Outcome, TargetError>;

    /// Writes some fields of a record.
    ///
    /// # Errors
    /// The target's error.
    fn update(&mut self, key: Key<'_>, write: Write<'_>) -> Result<Outcome, TargetError>;

    /// Reads and then updates a record, not as one transaction, as in YCSB.
    ///
    /// # Errors
    /// The target's error.
    fn read_modify_write(
        &mut self,
        key: Key<'_>,
        write: Write<'_>,
    ) -> Result<Outcome, TargetError> {
        match self.read(key)? {
            Outcome::Missing => Ok(Outcome::Missing),
            _ => self.update(key, write),
        }
    }

    /// Reads all fields of up to `count` records from `key` on, in key order (or the order of the
    /// target's index).
    ///
    /// # Errors
    /// The target's error.
    fn scan(&mut self, _key: Key<'_>, _count: usize) -> Result<Outcome, TargetError> {
        Err(TargetError::Unsupported { what: "scans" })
    }

    /// Ends the queued operations and reports each to `done` in order.
    ///
    /// # Errors
    /// The connection broke; operations that were not reported are lost.
    fn complete(
        &mut self,
        _done: &mut dyn FnMut(Result<Outcome, TargetError>),
    ) -> Result<(), TargetError> {
        Ok(())
    }
}

/// The key of a record, and its number.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// Number of the record, for targets that keep records by number.
    pub number: u64,
    /// The key.
    pub bytes: &'a [u8],
}

/// Values for some fields of a record.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// Number of the first field.
    pub first_field: usize,
    /// Values for the first field and the fields after it.
    pub values: &'a [&'a [u8]],
}

impl Write<'_> {
    /// The fields that are written.
    pub fn fields(&self) -> Range<usize> {
        self.first_field..self.first_field + self.values.len()
    }
}

/// The end of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The operation was done.
    Done,
    /// The record does not exist.
    Missing,
    /// The operation was queued.
    Queued,
}

/// The results of a final flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinalFlush {
    /// Bytes written to the SSD; for a server that was spawned, the bytes that were dirty.
    pub device_bytes: u64,
    /// Time of the flush, nanoseconds.
    pub elapsed_ns: u64,
}

/// Why a target refused an operation, or cannot be used any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The server answered with an error.
    #[error("the server answered {text:?}")]
    Reply {
        /// The server's text.
        text: String,
    },
    /// The store refused the operation.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An engine other than Perdura refused the operation.
    #[error("{engine}: {message}")]
    Engine {
        /// Name of the engine.
        engine: &'static str,
        /// The engine's text.
        message: String,
    },
    /// The target does not have this operation.
    #[error("the target does not support {what}")]
    Unsupported {
        /// The operation.
        what: &'static str,
    },
    /// The connection broke.
    #[error("{address}: {source}")]
    Connection {
        /// Address of the server.
        address: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The server sent bytes that are no reply.
    #[error("{address}: not the Redis protocol: {found:?}")]
    Protocol {
        /// Address of the server.
        address: String,
        /// The first bytes.
        found: String,
    },
    /// The store's folder or file could not be opened.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the folder or file.
        path: std::path::PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The device could not be opened.
    #[error(transparent)]
    Device(#[from] perdura_media::DeviceError),
    /// The region could not be opened.
    #[error(transparent)]
    RegionOpen(#[from] RegionOpenError),
    /// The region refused the operation.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The heap could not be made.
    #[error(transparent)]
    Heap(#[from] perdura_slots::HeapError),
    /// The store could not be made.
    #[error(transparent)]
    StoreOpen(#[from] perdura_store::OpenError),
    /// A server that was started did not begin to serve.
    #[error("the server that was started {what}; its words are in {}", log.display())]
    Spawned {
        /// The failure.
        what: &'static str,
        /// Path of the server's output.
        log: std::path::PathBuf,
    },
}

impl TargetError {
    /// Whether the session cannot be used any more. Otherwise only this operation failed.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Self::Reply { .. } | Self::Store(_) | Self::Engine { .. })
    }
}
