//! Why nothing could be recorded.

use std::io;

use rustix::io::Errno;

/// Why a recording did not begin, or ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The program did not start.
    #[error("starting {program}: {cause}")]
    Start {
        /// Its name.
        program: String,
        /// What the system said.
        cause: io::Error,
    },
    /// There is no such process.
    #[error("process {pid}: there is none with this number, or it has ended")]
    NoProcess {
        /// Its number.
        pid: i32,
    },
    /// We may not trace it.
    #[error(
        "process {pid}: tracing is refused; it belongs to {owner}{yama}{traced}; run as root or as its owner, or start it with \
         `perdura plan record -- PROGRAM`"
    )]
    Refused {
        /// Its number.
        pid: i32,
        /// Whose it is.
        owner: String,
        /// What the system's setting says, if that may be why.
        yama: String,
        /// Who traces it already, if anybody.
        traced: String,
    },
    /// Its system calls are filtered, and the call that recording needs might end it.
    #[error(
        "process {pid}: its system calls are filtered (seccomp), and the one that recording needs might end it; run as root \
         (CAP_SYS_ADMIN), or without the filter (in Docker: --security-opt seccomp=unconfined)"
    )]
    Filtered {
        /// Its number.
        pid: i32,
    },
    /// It is no 64-bit program.
    #[error("process {pid}: a 32-bit program; only 64-bit programs are recorded")]
    Narrow {
        /// Its number.
        pid: i32,
    },
    /// The kernel cannot.
    #[error(
        "{what}: {errno}; recording needs Linux 6.7 or newer with CONFIG_USERFAULTFD and CONFIG_PTE_MARKER_UFFD_WP on x86-64 \
         (this is {release}); a trace can be recorded on another machine that runs the same load"
    )]
    Kernel {
        /// The call.
        what: &'static str,
        /// Its answer.
        errno: Errno,
        /// The kernel's release.
        release: String,
    },
    /// A call about a process failed.
    #[error("process {pid}: {what}: {errno}")]
    Call {
        /// Its number.
        pid: i32,
        /// The call.
        what: &'static str,
        /// Its answer.
        errno: Errno,
    },
    /// Reading about a process failed.
    #[error("process {pid}: {what}: {cause}")]
    Read {
        /// Its number.
        pid: i32,
        /// What was read.
        what: &'static str,
        /// The system's answer.
        cause: io::Error,
    },
    /// The thread that traces could not be started.
    #[error("a thread to trace the program: {0}")]
    Thread(io::Error),
    /// Whoever takes the records could not.
    #[error("writing the trace: {0}")]
    Sink(io::Error),
}
