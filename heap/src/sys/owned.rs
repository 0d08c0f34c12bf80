//! A lock that costs its owner only two plain stores.
//!
//! One thread at a time owns the locked value and uses it all the time; other threads visit rarely.
//! A locked instruction of the owner would wait for all of its stores to reach the cache, cache
//! misses among them: 75 ns for each allocation. So the owner only notes that it is busy, and looks
//! for a visitor. A visitor notes its visit, makes every processor pass a barrier (`membarrier`,
//! Linux 4.14) and waits until the owner is not busy. Without `membarrier`, both pass barriers
//! themselves.
//!
//! Invariant: at any time only one thread reaches the value, either the owner, between
//! [`Owned::own`] and the guard's drop, or one visitor. Another thread becomes the owner only
//! through something that orders the two, such as a lock.

use std::ops::{Deref, DerefMut};

use super::sync::{
    AtomicBool, Mutex, MutexGuard, Ordering::*, UnsafeCell, barrier_everywhere, barrier_here,
    fence, lock, spin_loop, yield_now,
};

/// A value with an owner.
#[derive(Debug, Default)]
pub struct Owned<T> {
    busy: AtomicBool,
    visited: AtomicBool,
    visitors: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time, see the module's invariant.
unsafe impl<T: Send> Sync for Owned<T> {}

/// The owner's access.
pub struct Own<'o, T> {
    owned: &'o Owned<T>,
}

/// A visitor's access.
pub struct Visit<'o, T> {
    owned: &'o Owned<T>,
    _alone: MutexGuard<'o, ()>,
}

impl<T> Owned<T> {
    /// Gives the owner access. The owner has no other access at the time.
    #[inline]
    pub fn own(&self) -> Own<'_, T> {
        loop {
            assert!(!self.busy.load(Relaxed), "what has one owner is used twice");
            self.busy.store(true, Relaxed);
            barrier_here();
            if !self.visited.load(Relaxed) {
                // The fence comes before anything is read that the last visitor left.
                fence(Acquire);
                return Own { owned: self };
            }
            self.busy.store(false, Release);
            drop(lock(&self.visitors));
        }
    }

    /// Gives another thread access; the owner waits meanwhile.
    pub fn visit(&self) -> Visit<'_, T> {
        let alone = lock(&self.visitors);
        self.visited.store(true, Relaxed);
        barrier_everywhere();
        let mut looks = 0_u32;
        while self.busy.load(Acquire) {
            looks += 1;
            if looks.is_multiple_of(64) {
                yield_now();
            } else {
                spin_loop();
            }
        }
        Visit { owned: self, _alone: alone }
    }
}

impl<T> Deref for Own<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the owner is busy, so no visitor is inside.
        unsafe { &*self.owned.value.get() }
    }
}

impl<T> DerefMut for Own<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; this guard is the owner's only one (asserted when it was made).
        unsafe { &mut *self.owned.value.get() }
    }
}

impl<T> Drop for Own<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.owned.busy.store(false, Release);
    }
}

impl<T> Deref for Visit<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the owner is not busy and will not be while `visited` is set; other visitors wait
        // for the lock.
        unsafe { &*self.owned.value.get() }
    }
}

impl<T> DerefMut for Visit<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.owned.value.get() }
    }
}

impl<T> Drop for Visit<'_, T> {
    fn drop(&mut self) {
        self.owned.visited.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_and_visitors_never_meet() {
        let owned = Owned::<(u64, u64)>::default();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..2_000_000 {
                    let mut pair = owned.own();
                    pair.0 += 1;
                    pair.1 += 1;
                }
                done.store(true, Release);
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Acquire) {
                        let mut pair = owned.visit();
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        pair.1 += 1;
                    }
                });
            }
        });
        let pair = owned.visit();
        assert!(pair.0 >= 2_000_000 && pair.0 == pair.1);
    }
}
