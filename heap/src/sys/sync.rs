//! What the lock of a thread's log is made of. The room *model* checks that lock with a model
//! checker's types under the same names.

pub(crate) use std::cell::UnsafeCell;
pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::atomic::{AtomicBool, Ordering, fence};
pub(crate) use std::sync::{Mutex, MutexGuard};
pub(crate) use std::thread::yield_now;

pub(crate) use super::membarrier::{barrier_everywhere, barrier_here};

/// Takes a mutex. What a panic left behind it is whole: nothing is changed under it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
