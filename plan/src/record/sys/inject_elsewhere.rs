//! Refuses recording on processors for which no injected call is written. AArch64 kernels lack
//! write protection by userfaultfd for this purpose, or have it only in very new versions.

use perdura_dirty::written::Watch;
use rustix::io::Errno;

use super::ptrace::Tracee;
use crate::record::maps::Area;

/// Why a process gave no descriptor.
#[derive(Debug)]
pub enum InjectError {
    /// The system calls of the process are filtered, and we may not suspend that.
    Filtered,
    /// The process runs 32-bit code.
    Narrow,
    /// The kernel refused the call of this name.
    Kernel(&'static str, Errno),
    /// A call about the process failed.
    Call(Errno),
}

/// The number of system call filters in `/proc/PID/status`, which is of no use here.
pub fn seccomp_filters(_: &str) -> u32 {
    0
}

/// Refuses: descriptors are taken from programs on x86-64 only.
pub fn foreign_userfaultfd(_: &Tracee, _: i32, _: &[Area], _: bool) -> Result<Watch, InjectError> {
    Err(InjectError::Kernel("recording on this processor", Errno::NOSYS))
}

/// Does nothing: only on x86-64 is there something to finish.
pub fn finish_exec(_: &Tracee) -> Result<(), Errno> {
    Ok(())
}
