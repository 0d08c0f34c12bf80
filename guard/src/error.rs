//! Why memory could not be held, or not be flushed.

use std::io;

use perdura_region::holder::LinkError;
use perdura_region::{OpenError, RegionError};
use perdura_warning::WarningError;

/// Why a holder or a guard could not hold memory, or could not flush it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
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
    /// Another guard listens at the socket.
    #[error("another guard listens at {}: end it, or give another --socket", path.display())]
    InUse {
        /// The socket.
        path: std::path::PathBuf,
    },
    /// Memory or ledger cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What was handed over is not what it should be.
    #[error("the {what} that was handed over {why}")]
    Foreign {
        /// The descriptor: of memory, ledger or image.
        what: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The socket cannot be used.
    #[error(transparent)]
    Socket(#[from] LinkError),
    /// A source of warnings cannot be used.
    #[error(transparent)]
    Warning(#[from] WarningError),
    /// The flush failed. The dirty data are still in memory, and this process goes on holding them.
    #[error("flush failed with {used_bytes} bytes at risk: {source}")]
    Flush {
        /// Dirty bytes when the flush began.
        used_bytes: u64,
        /// Why the flush failed.
        source: RegionError,
    },
    /// The server has closed its link and runs still. It may write, so nothing is flushed beside
    /// it.
    #[error(
        "process {pid} has left its guard or holder and runs still, so nothing is flushed beside \
         it ({used_bytes} bytes at risk): end it, or let it come back"
    )]
    StillRuns {
        /// The server.
        pid: i32,
        /// Dirty bytes.
        used_bytes: u64,
    },
    /// At the end memory was given up, because its ledger is damaged and no flush could succeed.
    #[error(
        "given up at the end, because no flush of {image} could succeed: {dirty_bytes} bytes that \
         were not on the SSD are lost ({why})"
    )]
    GivenUp {
        /// Path of the image.
        image: String,
        /// Dirty bytes.
        dirty_bytes: u64,
        /// Why the last flush failed.
        why: String,
    },
    /// A guard has given up memory at the end.
    #[error("{0}")]
    GuardGaveUp(String),
    /// The flush ended by a panic. The dirty data are still in memory.
    #[error("flush failed with {used_bytes} bytes at risk: it panicked")]
    FlushPanicked {
        /// Dirty bytes when the flush began.
        used_bytes: u64,
    },
    /// The guard ended again and again right after its start.
    #[error("the guard ended {times} times right after its start, with {status}")]
    KeepsEnding {
        /// Number of starts in a row.
        times: u32,
        /// The last exit status.
        status: String,
    },
}

impl HoldError {
    /// Whether a flush that failed so will fail the next time, too: the ledger is not what any
    /// program writes.
    pub(crate) fn is_hopeless(&self) -> bool {
        let is_damaged = |source: &RegionError| matches!(source, RegionError::DamagedLedger { .. });
        match self {
            Self::FlushPanicked { .. } => true,
            Self::Flush { source, .. } => is_damaged(source),
            _ => false,
        }
    }
}

/// Adds what was tried to the system's error.
pub(crate) fn failed<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> HoldError {
    let what = what.into();
    move |source| HoldError::Io { what, source: source.into() }
}
