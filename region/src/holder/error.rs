//! Why a holder could not hold or flush, and why a server could not use one.

use std::io;

use perdura_image::OpenError;

use perdura_dirty::RegionError;

/// Why a holder could not hold, or could not flush.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HolderError {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The step that failed.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The first message on the link was not one that hands memory over.
    #[error("expected memory to hold on standard input, got {0}")]
    NothingToHold(String),
    /// Memory or ledger cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The flush failed. The dirty data are still in memory, and this process goes on holding them.
    #[error("flush failed with {used_bytes} bytes at risk: {source}")]
    Flush {
        /// Dirty bytes when the flush began.
        used_bytes: u64,
        /// Why the flush failed.
        source: RegionError,
    },
}

/// Why no holder could be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The step that failed.
        what: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Another server uses the directory.
    #[error("process {pid} is using this directory")]
    Busy {
        /// Process id of the other server.
        pid: i32,
    },
    /// The holder closed the connection without an answer.
    #[error("the holder closed the connection")]
    Closed,
    /// A flush was asked for while the holder was flushing.
    #[error("the holder is flushing {used_bytes} bytes already, and ends when they are on the SSD")]
    FlushesAlready {
        /// Dirty bytes when that flush began.
        used_bytes: u64,
    },
    /// The holder sent another answer than expected, or none.
    #[error("the holder gave no usable answer: {0}")]
    Answer(String),
}

/// A failed system call, before it becomes an error of the server's side or of the holder's.
#[derive(Debug)]
pub(super) struct Failed {
    what: String,
    source: io::Error,
}

/// Adds what was tried to the system's error.
pub(super) fn failed<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Failed {
    let what = what.into();
    move |source| Failed { what, source: source.into() }
}

impl From<Failed> for HolderError {
    fn from(Failed { what, source }: Failed) -> Self {
        Self::Io { what, source }
    }
}

impl From<Failed> for LinkError {
    fn from(Failed { what, source }: Failed) -> Self {
        Self::Io { what, source }
    }
}
