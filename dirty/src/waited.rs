//! A mutex whose holder can see that somebody waits.
//!
//! The cleaner holds a lane, and the appender, for many copies in a row, for a lock taken anew is
//! what a short copy costs. Where a writer waits it lets go after the one it is at. The writer
//! spins meanwhile: to be parked and woken takes a virtual processor longer than the wait.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering::*};

use parking_lot::{Mutex, MutexGuard};

/// Looks at a lock before its waiter is parked: a few microseconds, for a copy or two. More of them
/// gained nothing, and whoever holds the lock may have been preempted.
const LOOKS_MAX: u32 = 200;

/// A mutex of which the holder can see that somebody waits for it.
#[derive(Debug, Default)]
pub struct Waited<T> {
    mutex: Mutex<T>,
    waiting: AtomicU32,
}

impl<T> Waited<T> {
    /// A free mutex.
    pub fn new(value: T) -> Self {
        Self { mutex: Mutex::new(value), waiting: AtomicU32::new(0) }
    }

    /// Takes the mutex; looks again for a few microseconds before it sleeps.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.mutex.try_lock() {
            Some(held) => held,
            None => self.wait(),
        }
    }

    /// Takes the mutex if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.mutex.try_lock()
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        self.waiting.fetch_add(1, Relaxed);
        let seen = (0..LOOKS_MAX).find_map(|_| {
            spin_loop();
            if self.mutex.is_locked() { None } else { self.mutex.try_lock() }
        });
        let held = seen.unwrap_or_else(|| self.mutex.lock());
        self.waiting.fetch_sub(1, Relaxed);
        held
    }

    /// Whether somebody waits. A hint.
    #[inline]
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// After letting go because somebody waits: until one of them has it, or for a moment.
    pub fn give_way(&self) {
        for _ in 0..LOOKS_MAX {
            if !self.is_waited_for() || self.mutex.is_locked() {
                return;
            }
            spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_gives_way_lets_each_waiter_in_before_it_comes_back() {
        let lock = Waited::new(0);
        for round in 1..=100 {
            let held = lock.lock();
            assert!(lock.try_lock().is_none());
            std::thread::scope(|scope| {
                scope.spawn(|| *lock.lock() += 1);
                while !lock.is_waited_for() {
                    spin_loop();
                }
                // However long it takes until the waiter runs: it may have been parked.
                drop(held);
                while lock.is_waited_for() {
                    lock.give_way();
                }
                assert_eq!(*lock.lock(), round);
            });
            assert!(!lock.is_waited_for());
        }
    }
}
