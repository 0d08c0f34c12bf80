//! A mutex that a signal handler may take: one word and a futex, no thread-local state, no
//! allocation.
//!
//! Invariant: the holder is not interrupted by a handler that wants the lock. Our fault handlers
//! run with every other signal blocked; elsewhere [`FaultLock::lock_outside`] blocks them.

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

use crate::sync::{AtomicU32, LOOKS_MAX, Ordering::*, UnsafeCell, spin_loop, wait, wake};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// The lock is held, and another thread sleeps until it is free.
const WAITED_FOR: u32 = 2;

/// A mutex that a signal handler may take.
pub struct FaultLock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, of which there is one at a time.
unsafe impl<T: Send> Sync for FaultLock<T> {}

impl<T> FaultLock<T> {
    /// Makes a free lock.
    pub fn new(value: T) -> Self {
        Self { word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Takes the lock in a signal handler that runs with all signals blocked.
    pub fn lock_in_handler(&self) -> FaultGuard<'_, T> {
        self.take();
        FaultGuard { lock: self, signals: None }
    }

    /// Takes the lock outside such a handler; signals of this thread wait until it is released.
    pub fn lock_outside(&self) -> FaultGuard<'_, T> {
        let signals = Signals::block();
        self.take();
        FaultGuard { lock: self, signals: Some(signals) }
    }

    fn take(&self) {
        // The lock is held for a few system calls at most.
        for _ in 0..LOOKS_MAX {
            if self.word.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok() {
                return;
            }
            spin_loop();
        }
        while self.word.swap(WAITED_FOR, Acquire) != FREE {
            wait(&self.word, WAITED_FOR);
        }
    }
}

/// A held lock; dropping the guard releases it.
pub struct FaultGuard<'l, T> {
    lock: &'l FaultLock<T>,
    signals: Option<Signals>,
}

impl<T> Deref for FaultGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for FaultGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for FaultGuard<'_, T> {
    fn drop(&mut self) {
        if self.lock.word.swap(FREE, Release) == WAITED_FOR {
            wake(&self.lock.word, 1);
        }
        if let Some(signals) = self.signals.take() {
            signals.restore();
        }
    }
}

/// The signal mask of the thread before all signals were blocked.
struct Signals {
    before: libc::sigset_t,
}

impl Signals {
    fn block() -> Self {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets outlive the calls, which fill them; blocking all signals cannot fail.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            Self { before: before.assume_init() }
        }
    }

    fn restore(self) {
        // SAFETY: the set is what the kernel gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_excludes_and_wakes_whoever_waits() {
        let lock = FaultLock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let mut value = lock.lock_outside();
                        let before = *value;
                        std::hint::black_box(&mut value);
                        *value = before + 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock_outside(), 80_000);
    }
}
