//! The number of this process: how many forks lie between it and the first process that opened a
//! heap.
//!
//! A forked child has its parent's mappings and files, so it changes the parent's heap, and the
//! parent does not know. This number is compared in the place of process ids: it costs one load and
//! no system call, and a child in a PID namespace of its own may have its parent's id. A child by
//! `vfork` or a bare `clone` goes unnoticed.

use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

static FORKS: AtomicU32 = AtomicU32::new(0);
static IS_WATCHED: Mutex<bool> = Mutex::new(false);

/// Forks since the first call of [`watch`], by which this process came to be.
#[inline]
pub fn forks() -> u32 {
    FORKS.load(Relaxed)
}

/// Counts forks from now on.
///
/// # Errors
/// The system has no memory for that.
pub fn watch() -> Result<(), Errno> {
    let mut is_watched = IS_WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    if *is_watched {
        return Ok(());
    }
    // SAFETY: a function that lives as long as this library; the C library forgets it when that is
    // unloaded.
    match unsafe { libc::pthread_atfork(None, None, Some(in_child)) } {
        0 => *is_watched = true,
        refused => return Err(Errno::from_raw_os_error(refused)),
    }
    Ok(())
}

unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
}
