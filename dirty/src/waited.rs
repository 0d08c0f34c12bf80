//! A mutex whose holder can see that another thread waits.
//!
//! The cleaner holds a lane, and the appender, for many copies in a row, because taking a lock
//! costs as much as a short copy. Where a writer waits, the cleaner releases the lock after the
//! copy that it is making. The writer spins meanwhile, because being parked and woken takes a
//! virtual processor longer than the wait.

use crate::ranks::{Held, Rank, taken, taking};
use crate::sync::{AtomicU32, LOOKS_MAX, Mutex, MutexGuard, Ordering::*, spin_loop, until};

/// A mutex whose holder can see that another thread waits for it.
#[derive(Debug)]
pub struct Waited<T> {
    mutex: Mutex<T>,
    #[cfg(debug_assertions)]
    rank: Rank,
    waiting: AtomicU32,
}

/// A held mutex.
pub type WaitedGuard<'l, T> = Held<MutexGuard<'l, T>>;

impl<T> Waited<T> {
    /// Makes a free mutex.
    #[cfg_attr(not(debug_assertions), expect(unused_variables))]
    pub fn new(rank: Rank, value: T) -> Self {
        Self {
            mutex: Mutex::new(value),
            #[cfg(debug_assertions)]
            rank,
            waiting: AtomicU32::new(0),
        }
    }

    /// The place in the order of locks, which a release does not know.
    #[inline]
    fn rank(&self) -> Rank {
        #[cfg(debug_assertions)]
        return self.rank;
        #[cfg(not(debug_assertions))]
        return Rank::Appender;
    }

    /// Takes the mutex; looks again for a few microseconds before it sleeps.
    #[inline]
    pub fn lock(&self) -> WaitedGuard<'_, T> {
        taking(self.rank(), || {
            let scheduled = until(|| self.mutex.try_lock());
            scheduled.or_else(|| self.mutex.try_lock()).unwrap_or_else(|| self.wait())
        })
    }

    /// Takes the mutex if nobody holds it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<WaitedGuard<'_, T>> {
        self.mutex.try_lock().map(|held| taken(self.rank(), held))
    }

    /// Whether anybody holds the mutex.
    pub(crate) fn is_held(&self) -> bool {
        self.mutex.is_locked()
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

    /// Whether a thread waits for the mutex: a hint.
    #[inline]
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// Waits until another thread has taken the mutex, but only for a moment. The caller has just
    /// released it because a thread waits.
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
        let lock = Waited::new(Rank::Appender, 0);
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
