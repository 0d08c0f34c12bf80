//! What the locks and lock-free words of this room are made of. The files that take these from here
//! are checked by the room *model*, which has a model checker's types under the same names.

pub(crate) use std::cell::UnsafeCell;
pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

pub(crate) use parking_lot::{Mutex, MutexGuard};
use rustix::thread::futex;

pub(crate) use crate::schedule::until;

/// Looks at a lock before its waiter is parked: a few microseconds, enough for a copy or two. More
/// looks gained nothing, and the holder of the lock may have been preempted.
pub(crate) const LOOKS_MAX: u32 = 200;

/// Wakes up to `threads` threads of this process that wait on a word.
#[inline]
pub(crate) fn wake(word: &AtomicU32, threads: u32) {
    // A wake can only fail for a bad address, which a reference is not.
    let _ = futex::wake(word, futex::Flags::PRIVATE, threads);
}

/// Waits on a word until it is woken or interrupted, unless the word is not `seen` any more.
#[inline]
pub(crate) fn wait(word: &AtomicU32, seen: u32) {
    // Whatever the outcome, the caller looks at the word again.
    let _ = futex::wait(word, futex::Flags::PRIVATE, seen, None);
}
