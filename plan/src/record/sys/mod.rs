//! The seam to the kernel: another process's userfaultfd, its page map, and stopping it for a moment.
//!
//! Everything `unsafe` of the recorder is here. Nothing here decides anything.

#[cfg(target_arch = "x86_64")]
mod inject;
#[cfg(not(target_arch = "x86_64"))]
#[path = "inject_elsewhere.rs"]
mod inject;
mod pagemap;
mod ptrace;
#[cfg(target_arch = "x86_64")]
mod rseq;
mod start;
#[cfg(test)]
pub mod test_program;
mod uffd;

pub use inject::{InjectError, finish_exec, foreign_userfaultfd, seccomp_filters};
pub use pagemap::{Kept, PageMap, Region};
pub use ptrace::{Exit, Stop, Tracee};
pub use start::start_traced;
pub use uffd::ForeignUffd;

use rustix::io::Errno;

fn last_errno() -> Errno {
    // SAFETY: the location is this thread's own.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}
