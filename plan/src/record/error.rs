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
    /// Its memory cannot be got at under its number.
    #[error(
        "process {pid}: its first thread has ended while others run, and such a process cannot be recorded from then on; \
         start the program with `perdura plan record -- PROGRAM`, which records it to its end"
    )]
    FirstThreadEnded {
        /// Its number.
        pid: i32,
    },
    /// We may not trace it.
    #[error(
        "process {pid}: tracing is refused: {why}, or start the program with `perdura plan record -- PROGRAM`"
    )]
    Refused {
        /// Its number.
        pid: i32,
        /// Why, and what to do.
        why: Hindrance,
    },
    /// Another recorder has it.
    #[error(
        "process {pid}: its memory is being tracked by another userfaultfd: is another `perdura plan record`, or a checkpointer, \
         at work on it? End that first"
    )]
    Tracked {
        /// Its number.
        pid: i32,
    },
    /// It has no memory of its own.
    #[error("process {pid}: a thread of the kernel, which has no memory of its own to record")]
    OfKernel {
        /// Its number.
        pid: i32,
    },
    /// It is a thread.
    #[error(
        "process {pid}: a thread of process {process}; give --pid {process}, which records all threads"
    )]
    Thread {
        /// Its number.
        pid: i32,
        /// Whose thread it is.
        process: i32,
    },
    /// It is us.
    #[error("process {pid}: that is this recorder itself; give the number of another process")]
    Ourselves {
        /// Its number.
        pid: i32,
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
    #[error(
        "process {pid}: a 32-bit program; only 64-bit programs are recorded: build it for x86-64"
    )]
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
    Spawn(io::Error),
    /// Whoever takes the records could not.
    #[error("{0}")]
    Sink(io::Error),
}

/// What keeps us from tracing a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Hindrance {
    /// Somebody else does.
    #[error("process {by} traces it already; end that (a debugger, strace)")]
    Traced {
        /// Who.
        by: i32,
    },
    /// It is another user's.
    #[error("it belongs to user {owner}, and this is user {us}; run as root or as its owner")]
    Owner {
        /// The process's user.
        owner: u32,
        /// Ours.
        us: u32,
    },
    /// The system's setting.
    #[error(
        "kernel.yama.ptrace_scope is {scope}, which does not allow it to user {us}; run as root"
    )]
    Yama {
        /// The setting.
        scope: u32,
        /// Our user.
        us: u32,
    },
    /// Its own.
    #[error(
        "it is ours (user {us}) but keeps tracers out, as set-user-ID programs and users of PR_SET_DUMPABLE do; run as root"
    )]
    Undumpable {
        /// Our user.
        us: u32,
    },
    /// We are root, and root may not.
    #[error(
        "this is root without what it needs for that; allow CAP_SYS_PTRACE (in Docker: --cap-add SYS_PTRACE), and a \
         kernel.yama.ptrace_scope below 3 (it is {scope})"
    )]
    Capability {
        /// The system's setting.
        scope: u32,
    },
}
