//! The seam to the kernel: it stops another process for a moment and has it make a userfaultfd.
//! `perdura_dirty::written` then uses that userfaultfd and the process's page map.
//!
//! All `unsafe` code of the recorder is here, and none of its decisions.

#[cfg(target_arch = "x86_64")]
mod inject;
#[cfg(not(target_arch = "x86_64"))]
#[path = "inject_elsewhere.rs"]
mod inject;
mod ptrace;
#[cfg(target_arch = "x86_64")]
mod rseq;
mod start;
#[cfg(test)]
pub mod test_program;

pub use inject::{InjectError, finish_exec, foreign_userfaultfd, seccomp_filters};
pub use ptrace::{Exit, Stop, Tracee};
pub use start::start_traced;

use rustix::io::Errno;

fn last_errno() -> Errno {
    // SAFETY: the location is this thread's own.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}
