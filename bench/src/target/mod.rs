//! What is measured: a store that does YCSB's operations. Rivals implement [`Target`] and
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
pub use spawn::{SpawnOptions, SpawnedTarget};
pub use store::new_region;
pub use store::{StoreOptions, StoreTarget, touch};

use std::ops::Range;

use perdura_region::{OpenError as RegionOpenError, RegionError};
use perdura_store::StoreError;

/// A store under test. Sessions of several threads use it at once.
pub trait Target: Sync {
    /// What it is and how it was set up, for people.
    fn describe(&self) -> String;

    /// One thread's access. `pipeline`: operations that may be on their way at a time; those who
    /// have no use for it do each at once.
    ///
    /// # Errors
    /// It cannot be had.
    fn session(&self, pipeline: usize) -> Result<Box<dyn Session + '_>, TargetError>;

    /// What it says about itself now.
    ///
    /// # Errors
    /// It does not answer.
    fn figures(&self) -> Result<Figures, TargetError>;

    /// Processor time it has used, nanoseconds; `None`: not known. Embedded: that of this whole
    /// process.
    fn cpu_ns(&self) -> Option<u64>;

    /// Sets the bytes that may be dirty, and begins its high-water mark anew.
    ///
    /// # Errors
    /// It has no budget, or refuses this one.
    fn set_budget(&self, _bytes: u64) -> Result<(), TargetError> {
        Err(TargetError::Unsupported { what: "setting a budget" })
    }

    /// The end: what is dirty goes to the SSD. `None`: it has no such thing.
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
    /// A new record with all fields.
    ///
    /// # Errors
    /// As the target says.
    fn insert(&mut self, key: Key<'_>, values: &[&[u8]]) -> Result<Outcome, TargetError>;

    /// All fields of a record.
    ///
    /// # Errors
    /// As the target says.
    fn read(&mut self, key: Key<'_>) -> Result<Outcome, TargetError>;

    /// Some fields of a record.
    ///
    /// # Errors
    /// As the target says.
    fn update(&mut self, key: Key<'_>, write: Write<'_>) -> Result<Outcome, TargetError>;

    /// A read, then an update: not one transaction, as in YCSB.
    ///
    /// # Errors
    /// As the target says.
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

    /// All fields of up to `count` records from `key` on, in key order (or the order of the
    /// target's index).
    ///
    /// # Errors
    /// As the target says.
    fn scan(&mut self, _key: Key<'_>, _count: usize) -> Result<Outcome, TargetError> {
        Err(TargetError::Unsupported { what: "scans" })
    }

    /// Ends what was queued, reporting each operation to `done` in order.
    ///
    /// # Errors
    /// The connection broke; what was not reported is lost.
    fn complete(
        &mut self,
        _done: &mut dyn FnMut(Result<Outcome, TargetError>),
    ) -> Result<(), TargetError> {
        Ok(())
    }
}

/// A record's key.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// Which record: for targets that keep records by number.
    pub number: u64,
    /// Its key.
    pub bytes: &'a [u8],
}

/// Values for some fields of a record.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// First field.
    pub first_field: usize,
    /// A value for it and each field after it.
    pub values: &'a [&'a [u8]],
}

impl Write<'_> {
    /// The fields written.
    pub fn fields(&self) -> Range<usize> {
        self.first_field..self.first_field + self.values.len()
    }
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// As it should.
    Done,
    /// There is no such record.
    Missing,
    /// It is on its way.
    Queued,
}

/// What a final flush did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinalFlush {
    /// Bytes written to the SSD; for a server that was spawned, the bytes that were dirty.
    pub device_bytes: u64,
    /// How long it took, nanoseconds.
    pub elapsed_ns: u64,
}

/// Why a target refused, or was lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The server answered with an error.
    #[error("the server answered {text:?}")]
    Reply {
        /// Its words.
        text: String,
    },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An engine that is not ours refused.
    #[error("{engine}: {message}")]
    Engine {
        /// Which.
        engine: &'static str,
        /// Its words.
        message: String,
    },
    /// The target cannot do it.
    #[error("the target does not support {what}")]
    Unsupported {
        /// What.
        what: &'static str,
    },
    /// The connection broke.
    #[error("{address}: {source}")]
    Connection {
        /// To whom.
        address: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The server's bytes are no reply.
    #[error("{address}: not the Redis protocol: {found:?}")]
    Protocol {
        /// Who.
        address: String,
        /// The first bytes.
        found: String,
    },
    /// The store could not be opened.
    #[error("{}: {source}", path.display())]
    File {
        /// Where.
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
    /// The region refused.
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
        /// What happened.
        what: &'static str,
        /// Its output.
        log: std::path::PathBuf,
    },
}

impl TargetError {
    /// Whether nothing more can be asked of the session; otherwise only this operation failed.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Self::Reply { .. } | Self::Store(_) | Self::Engine { .. })
    }
}
