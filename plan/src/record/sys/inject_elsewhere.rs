//! Where no call in another process's name is known to be made. AArch64 kernels have no write
//! protection by userfaultfd for this, or only very new ones.

use perdura_region::written::Watch;
use rustix::io::Errno;

use super::ptrace::Tracee;
use crate::record::maps::Area;

/// Why there was no descriptor.
#[derive(Debug)]
pub enum InjectError {
    /// Its calls are filtered, and we may not suspend that.
    Filtered,
    /// It runs 32-bit code.
    Narrow,
    /// The kernel refused the call named.
    Kernel(&'static str, Errno),
    /// A call about the process failed.
    Call(Errno),
}

/// As on x86-64.
pub fn seccomp_filters(_: &str) -> u32 {
    0
}

/// Refuses.
pub fn foreign_userfaultfd(_: &Tracee, _: i32, _: &[Area], _: bool) -> Result<Watch, InjectError> {
    Err(InjectError::Kernel("recording on this processor", Errno::NOSYS))
}

/// As on x86-64, where there is more to do.
pub fn finish_exec(_: &Tracee) -> Result<(), Errno> {
    Ok(())
}
