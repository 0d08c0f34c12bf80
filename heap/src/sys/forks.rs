//! Which process this is: how many forks lie between it and the first one that opened a heap.
//!
//! A forked child has its parent's mappings and files, so what it does to a heap it does to the
//! parent's, which knows nothing of it. A number is compared in the place of process ids: one load,
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

/// From now on forks are counted.
///
/// # Errors
/// There is no memory for that.
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
