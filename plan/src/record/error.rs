//! The reasons why a program cannot be recorded.

use std::io;

use rustix::io::Errno;

/// Why a recording did not begin, or ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The program did not start.
    #[error("starting {program}: {cause}")]
    Start {
        /// The name of the program.
        program: String,
        /// The error that the system gave.
        cause: io::Error,
    },
    /// There is no process of this number.
    #[error("process {pid}: there is none with this number, or it has ended")]
    NoProcess {
        /// The number of the process.
        pid: i32,
    },
    /// The memory of the process cannot be reached under its number.
    #[error(
        "process {pid}: its first thread has ended while others run, and such a process cannot be \
         recorded from then on; start the program with `perdura plan record -- PROGRAM`, which \
         records it to its end"
    )]
    FirstThreadEnded {
        /// The number of the process.
        pid: i32,
    },
    /// We may not trace the process.
    #[error(
        "process {pid}: tracing is refused: {why}, or start the program with `perdura plan record \
         -- PROGRAM`"
    )]
    Refused {
        /// The number of the process.
        pid: i32,
        /// The reason, and what to do.
        why: Hindrance,
    },
    /// Another recorder has the memory of the process.
    #[error(
        "process {pid}: its memory is being tracked by another userfaultfd: is another `perdura \
         plan record`, or a checkpointer, at work on it? End that first"
    )]
    Tracked {
        /// The number of the process.
        pid: i32,
    },
    /// The process is one of the kernel, without memory of its own.
    #[error("process {pid}: a thread of the kernel, which has no memory of its own to record")]
    OfKernel {
        /// The number of the process.
        pid: i32,
    },
    /// The number is that of a thread.
    #[error(
        "process {pid}: a thread of process {process}; give --pid {process}, which records all \
         threads"
    )]
    Thread {
        /// The number of the process.
        pid: i32,
        /// The process that the thread is part of.
        process: i32,
    },
    /// The number is that of the recorder itself.
    #[error("process {pid}: that is this recorder itself; give the number of another process")]
    Ourselves {
        /// The number of the process.
        pid: i32,
    },
    /// The system calls of the process are filtered, and the one that recording needs might end it.
    #[error(
        "process {pid}: its system calls are filtered (seccomp), and the one that recording needs \
         might end it; run as root (CAP_SYS_ADMIN), or without the filter (in Docker: \
         --security-opt seccomp=unconfined)"
    )]
    Filtered {
        /// The number of the process.
        pid: i32,
    },
    /// The program is not one of 64 bits.
    #[error(
        "process {pid}: a 32-bit program; only 64-bit programs are recorded: build it for x86-64"
    )]
    Narrow {
        /// The number of the process.
        pid: i32,
    },
    /// The kernel lacks what recording needs.
    #[error(
        "{what}: {errno}; recording needs Linux 6.7 or newer with CONFIG_USERFAULTFD and \
         CONFIG_PTE_MARKER_UFFD_WP on x86-64 (this is {release}); a trace can be recorded on \
         another machine that runs the same load"
    )]
    Kernel {
        /// The call that failed.
        what: &'static str,
        /// The error that it gave.
        errno: Errno,
        /// The release of the kernel.
        release: String,
    },
    /// A call about a process failed.
    #[error("process {pid}: {what}: {errno}")]
    Call {
        /// The number of the process.
        pid: i32,
        /// The call that failed.
        what: &'static str,
        /// The error that it gave.
        errno: Errno,
    },
    /// Reading about a process failed.
    #[error("process {pid}: {what}: {cause}")]
    Read {
        /// The number of the process.
        pid: i32,
        /// The step that failed.
        what: &'static str,
        /// The error that the system gave.
        cause: io::Error,
    },
    /// The thread that traces could not be started.
    #[error("a thread to trace the program: {0}")]
    Spawn(io::Error),
    /// The receiver of the records failed.
    #[error("{0}")]
    Sink(io::Error),
}

/// A reason why a process cannot be traced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Hindrance {
    /// Another process traces it.
    #[error("process {by} traces it already; end that (a debugger, strace)")]
    Traced {
        /// The number of the process that traces.
        by: i32,
    },
    /// The process belongs to another user.
    #[error("it belongs to user {owner}, and this is user {us}; run as root or as its owner")]
    Owner {
        /// The user of the process.
        owner: u32,
        /// The user that we run as.
        us: u32,
    },
    /// A setting of the system forbids it.
    #[error(
        "kernel.yama.ptrace_scope is {scope}, which does not allow it to user {us}; run as root"
    )]
    Yama {
        /// The value of the setting.
        scope: u32,
        /// The user that we run as.
        us: u32,
    },
    /// The process itself keeps tracers out.
    #[error(
        "it is ours (user {us}) but keeps tracers out, as set-user-ID programs and users of \
         PR_SET_DUMPABLE do; run as root"
    )]
    Undumpable {
        /// The user that we run as.
        us: u32,
    },
    /// We are root, and a setting of the system forbids it to root, too.
    #[error(
        "this is root without what it needs for that; allow CAP_SYS_PTRACE (in Docker: --cap-add \
         SYS_PTRACE), and a kernel.yama.ptrace_scope below 3 (it is {scope})"
    )]
    Capability {
        /// The value of the setting.
        scope: u32,
    },
}
