//! A barrier of two unequal halves: one thread pays for all processors, the others pay nothing.
//!
//! Without `membarrier` (Linux 4.14) both halves are full fences.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence, fence};

const MEMBARRIER_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const MEMBARRIER_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// The cheap half: a full fence towards every thread that calls [`barrier_everywhere`], and only
/// towards these.
#[inline]
pub fn barrier_here() {
    if has_membarrier() {
        compiler_fence(SeqCst);
    } else {
        fence(SeqCst);
    }
}

/// The dear half: makes every processor that runs a thread of this process pass a full fence.
pub fn barrier_everywhere() {
    if has_membarrier() {
        let passed = membarrier(MEMBARRIER_PRIVATE_EXPEDITED);
        assert!(passed, "membarrier was registered and is refused now");
    }
    fence(SeqCst);
}

/// Whether every processor can be made to pass a barrier; the system is asked once.
#[inline]
fn has_membarrier() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| membarrier(MEMBARRIER_REGISTER_PRIVATE_EXPEDITED))
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
