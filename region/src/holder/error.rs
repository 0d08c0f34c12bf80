//! Why a server could not use a holder or a guard.

use std::io;
use std::path::PathBuf;

/// Why no holder and no guard could be used.
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
    /// No guard listens at the socket.
    #[error("no guard listens at {}: start `perdura guard --socket {}`", path.display(), path.display())]
    NoGuard {
        /// The socket.
        path: PathBuf,
    },
    /// The guard does not keep the memory.
    #[error("the guard refuses: {why}")]
    Refused {
        /// The guard's words.
        why: String,
    },
    /// The guard has no battery time for another region at the moment.
    #[error("the guard has no time for another region yet: {why}")]
    Later {
        /// The guard's words.
        why: String,
    },
    /// The holder or guard closed the connection without an answer.
    #[error("who holds the memory closed the connection")]
    Closed,
    /// The process that starts holders for this one is gone.
    #[error(
        "the process that starts holders (perdura start-holders) is gone: restart the server, or \
         no holder can be started any more"
    )]
    NoStarter,
    /// A flush was asked for while the holder was flushing.
    #[error(
        "{used_bytes} bytes are being flushed already, and the memory is let go when they are on \
         the SSD"
    )]
    FlushesAlready {
        /// Dirty bytes when that flush began.
        used_bytes: u64,
    },
    /// The holder or guard sent another answer than expected, or none.
    #[error("who holds the memory gave no usable answer: {0}")]
    Answer(String),
}

/// A failed system call.
#[derive(Debug)]
pub(super) struct Failed {
    what: String,
    pub(super) source: io::Error,
}

/// Adds what was tried to the system's error.
pub(super) fn failed<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Failed {
    let what = what.into();
    move |source| Failed { what, source: source.into() }
}

impl From<Failed> for LinkError {
    fn from(Failed { what, source }: Failed) -> Self {
        Self::Io { what, source }
    }
}
