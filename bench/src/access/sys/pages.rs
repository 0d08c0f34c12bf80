//! What is asked of the kernel about memory that is going to be measured.

use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

/// Huge pages where they fit. A kernel without them measures without.
///
/// # Errors
/// None that the range could cause.
pub fn want_huge(base: *mut u8, bytes: u64) -> Result<(), Errno> {
    advise(base, bytes, Advice::LinuxHugepage)
}

/// All pages, now, as a store would bring them. `NOMEM`: there is not so much.
pub fn populate(base: *mut u8, bytes: u64) -> Result<(), Errno> {
    const STEP_BYTES: u64 = 256 << 20;
    let mut at = 0;
    while at < bytes {
        let step = STEP_BYTES.min(bytes - at);
        match advise(base.wrapping_add(at as usize), step, Advice::LinuxPopulateWrite) {
            Ok(()) => at += step,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn advise(base: *mut u8, bytes: u64, advice: Advice) -> Result<(), Errno> {
    // SAFETY: such advice changes no contents; a range that is not mapped is refused.
    unsafe { madvise(base.cast(), bytes as usize, advice) }
}

/// From now on pages that are brought into a range lie on one NUMA node.
///
/// # Errors
/// The kernel knows no such node.
pub fn bind(base: *mut u8, bytes: u64, node: u32) -> Result<(), Errno> {
    const MPOL_BIND: libc::c_int = 2;
    const NODES_MAX: usize = 1024;
    let mut mask = [0u64; NODES_MAX / 64];
    *mask.get_mut(node as usize / 64).ok_or(Errno::INVAL)? |= 1 << (node % 64);
    // SAFETY: no contents change; the mask has the bits it is said to have (the kernel counts one less).
    let outcome = unsafe {
        libc::syscall(libc::SYS_mbind, base, bytes, MPOL_BIND, mask.as_ptr(), NODES_MAX + 1, 0)
    };
    if outcome == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
