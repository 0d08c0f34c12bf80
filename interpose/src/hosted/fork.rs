//! Forks: the lock is held meanwhile, and a child gets a connection of its own.

use std::cell::UnsafeCell;

use crate::hosted::state::{Locked, Mapping, lock};
use crate::kernel;
use crate::say;

/// The lock, held from before a fork until after it.
struct Held(UnsafeCell<Option<Locked>>);

// SAFETY: only the thread that holds the lock uses it.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

pub unsafe extern "C" fn before_fork() {
    let held = lock();
    // SAFETY: this thread holds the lock.
    unsafe { *HELD.0.get() = Some(held) };
}

pub unsafe extern "C" fn in_parent() {
    // SAFETY: this thread took the lock before the fork.
    drop(unsafe { (*HELD.0.get()).take() });
}

/// The child has the mappings, but no tracking: it gets a connection of its own before it stores
/// anything.
pub unsafe extern "C" fn in_child() {
    // SAFETY: this is the only thread, and has the lock.
    let Some(mut served) = (unsafe { (*HELD.0.get()).take() }) else { return };
    let Some(parents) = served.link.take() else { return };
    parents.abandon();
    let windows = served.files.iter_mut().filter_map(|file| file.window.take());
    for (base, len) in windows.collect::<Vec<_>>() {
        // SAFETY: a window of this library, which nobody uses without the lock.
        unsafe { kernel::unmap(base, len) };
    }
    let mappings = served.mappings.clone();
    let again = mappings.iter().try_for_each(|one| {
        let Mapping { address, len, file, offset, protection, .. } = *one;
        let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
        served.map(file, offset, len, address, protection, fixed).map(drop)
    });
    if again.is_err() {
        say::say(format_args!("a forked process cannot be tracked, and ends"));
        // SAFETY: ends the process before it stores anything untracked.
        unsafe { libc::_exit(127) };
    }
}
