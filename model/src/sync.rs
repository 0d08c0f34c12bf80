//! What the checked code takes from its room's `sync`, made of loom's types.
//!
//! A wait on a futex ends only by a wake: the bound on the time of a wait is left out, so that a
//! lost wake-up is a deadlock, which loom reports. As in the kernel, a barrier stands between what
//! the waiter did before and its look at the word, and between the word's change and the look for
//! waiters.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
pub use std::sync::atomic::Ordering;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

pub use loom::hint::spin_loop;
pub use loom::thread::yield_now;

use crate::planted::{Fences, fences, order_at};

/// Looks at a lock before its waiter is parked. More looks add schedules and nothing new.
pub const LOOKS_MAX: u32 = 1;

/// Whether a model has failed, and what is dropped now runs without a schedule.
fn has_failed() -> bool {
    std::thread::panicking()
}

/// An access, which carries its own fence if it is sequentially consistent.
#[track_caller]
fn access<R: Default>(
    order: Ordering,
    (loads, stores): (bool, bool),
    run: impl FnOnce(Ordering) -> R,
) -> R {
    if has_failed() {
        return R::default();
    }
    let Some(order) = order_at(Location::caller(), order) else { return R::default() };
    if order != SeqCst {
        return run(order);
    }
    if loads && fences() == Fences::BeforeLoads {
        loom::sync::atomic::fence(SeqCst);
    }
    let result = run(match (loads, stores) {
        (true, false) => Acquire,
        (false, true) => Release,
        _ => AcqRel,
    });
    if stores && fences() == Fences::AfterStores {
        loom::sync::atomic::fence(SeqCst);
    }
    result
}

const LOAD: (bool, bool) = (true, false);
const STORE: (bool, bool) = (false, true);
const CHANGE: (bool, bool) = (true, true);

/// A fence between threads.
#[track_caller]
pub fn fence(order: Ordering) {
    match order_at(Location::caller(), order) {
        _ if has_failed() => {}
        None | Some(Relaxed) => {}
        Some(order) => loom::sync::atomic::fence(order),
    }
}

/// No schedule is drawn here: loom tries all of them.
pub fn until<G>(_take: impl FnMut() -> Option<G>) -> Option<G> {
    None
}

/// The cheap half of the barrier that `membarrier` gives. Towards the dear half, which is all that
/// it promises, it is a full fence; two cheap halves meet in no model.
#[track_caller]
pub fn barrier_here() {
    fence(SeqCst);
}

/// The dear half.
#[track_caller]
pub fn barrier_everywhere() {
    fence(SeqCst);
}

macro_rules! atomics {
    ($($(#[$doc:meta])* $name:ident: $value:ty, $waiters:ty;)*) => { $(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name {
            word: loom::sync::atomic::$name,
            waiters: $waiters,
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(Default::default())
            }
        }

        impl $name {
            pub fn new(value: $value) -> Self {
                Self { word: loom::sync::atomic::$name::new(value), waiters: Default::default() }
            }

            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                access(order, LOAD, |order| self.word.load(order))
            }

            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                access(order, STORE, |order| self.word.store(value, order));
            }

            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                access(order, CHANGE, |order| self.word.swap(value, order))
            }

            #[track_caller]
            pub fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                access(order, CHANGE, |order| self.word.fetch_or(value, order))
            }

            #[track_caller]
            pub fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                access(order, CHANGE, |order| self.word.fetch_and(value, order))
            }

            #[track_caller]
            pub fn compare_exchange(
                &self,
                before: $value,
                after: $value,
                order: Ordering,
                failed: Ordering,
            ) -> Result<$value, $value> {
                let failed = match order_at(Location::caller(), failed) {
                    Some(SeqCst) => Acquire,
                    failed => failed.unwrap_or(Relaxed),
                };
                access(order, CHANGE, |order| {
                    Some(self.word.compare_exchange(before, after, order, failed))
                })
                .unwrap_or(Ok(before))
            }

            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                before: $value,
                after: $value,
                order: Ordering,
                failed: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(before, after, order, failed)
            }

            #[track_caller]
            pub fn fetch_update(
                &self,
                order: Ordering,
                failed: Ordering,
                mut next: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut seen = self.load(failed);
                while let Some(after) = next(seen) {
                    match self.compare_exchange(seen, after, order, failed) {
                        Ok(before) => return Ok(before),
                        Err(now) => seen = now,
                    }
                }
                Err(seen)
            }
        }
    )* };
}

macro_rules! counts {
    ($($name:ident: $value:ty;)*) => { $(
        impl $name {
            #[track_caller]
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                access(order, CHANGE, |order| self.word.fetch_add(value, order))
            }

            #[track_caller]
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                access(order, CHANGE, |order| self.word.fetch_sub(value, order))
            }

            #[track_caller]
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                access(order, CHANGE, |order| self.word.fetch_max(value, order))
            }
        }
    )* };
}

atomics! {
    /// A flag.
    AtomicBool: bool, ();
    /// A byte.
    AtomicU8: u8, ();
    /// A word of 16 bits.
    AtomicU16: u16, ();
    /// A word of 32 bits, on which threads can wait.
    AtomicU32: u32, Waiters;
    /// A word of 64 bits.
    AtomicU64: u64, ();
}

counts! {
    AtomicU8: u8;
    AtomicU16: u16;
    AtomicU32: u32;
    AtomicU64: u64;
}

/// The kernel's queue of threads that wait on a word. Between two steps of a model it is looked at
/// and changed by one thread at a time.
#[derive(Debug, Default)]
struct Waiters(std::sync::Mutex<VecDeque<Arc<loom::sync::Notify>>>);

impl Waiters {
    fn queue(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<loom::sync::Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> Arc<loom::sync::Notify> {
        let woken = Arc::new(loom::sync::Notify::new());
        self.queue().push_back(Arc::clone(&woken));
        woken
    }

    fn leave(&self, woken: &Arc<loom::sync::Notify>) {
        self.queue().retain(|waiter| !Arc::ptr_eq(waiter, woken));
    }

    fn wake(&self, threads: u32) {
        for _ in 0..threads {
            let Some(waiter) = self.queue().pop_front() else { break };
            waiter.notify();
        }
    }
}

/// Waits on a word until it is woken, unless the word is not `seen` any more.
pub fn wait(word: &AtomicU32, seen: u32) {
    let woken = word.waiters.enter();
    loom::sync::atomic::fence(SeqCst);
    if word.word.load(Relaxed) == seen {
        woken.wait();
    }
    word.waiters.leave(&woken);
}

/// Wakes up to `threads` threads that wait on a word.
pub fn wake(word: &AtomicU32, threads: u32) {
    if !has_failed() {
        loom::sync::atomic::fence(SeqCst);
        word.waiters.wake(threads);
    }
}

/// A clock whose waits end only by a wake.
pub trait Clock {
    /// Waits until the word is no longer `seen` and was woken.
    fn wait_change(&self, word: &AtomicU32, seen: u32, longest: Duration);
}

/// The clock of the models.
#[derive(Debug, Default)]
pub struct NoTime;

impl Clock for NoTime {
    fn wait_change(&self, word: &AtomicU32, seen: u32, _longest: Duration) {
        wait(word, seen);
    }
}

/// A mutex with the methods of `parking_lot`'s. It is not loom's, which explores no `try_lock` that
/// fails because another thread holds the mutex for a while.
#[derive(Debug, Default)]
pub struct Mutex<T> {
    is_held: AtomicBool,
    waiters: Waiters,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard, of which there is one at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        let value = UnsafeCell::new(value);
        Self { is_held: AtomicBool::new(false), waiters: Waiters::default(), value }
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        loop {
            if let Some(held) = self.try_lock() {
                return held;
            }
            let woken = self.waiters.enter();
            if let Some(held) = self.try_lock() {
                self.waiters.leave(&woken);
                return held;
            }
            woken.wait();
            self.waiters.leave(&woken);
        }
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let taken = self.is_held.word.compare_exchange(false, true, Acquire, Relaxed);
        taken.ok().map(|_| MutexGuard { mutex: self, value: self.value.get() })
    }

    /// Whether anybody holds the mutex.
    pub fn is_locked(&self) -> bool {
        self.is_held.load(Relaxed)
    }
}

/// Takes a mutex.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

/// A held mutex. It stays held if the model has failed, because nothing is scheduled any more.
pub struct MutexGuard<'m, T> {
    mutex: &'m Mutex<T>,
    value: *mut T,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the mutex is held.
        unsafe { &*self.value }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the mutex is held, and the guard borrowed exclusively.
        unsafe { &mut *self.value }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if has_failed() {
            return;
        }
        self.mutex.value.get();
        self.mutex.is_held.word.store(false, Release);
        self.mutex.waiters.wake(1);
    }
}

/// A cell whose every use, by any thread, must be ordered with every other.
#[derive(Debug, Default)]
pub struct UnsafeCell<T> {
    value: std::cell::UnsafeCell<T>,
    uses: Uses,
}

#[derive(Debug)]
struct Uses(loom::cell::UnsafeCell<()>);

impl Default for Uses {
    fn default() -> Self {
        Self(loom::cell::UnsafeCell::new(()))
    }
}

impl<T> UnsafeCell<T> {
    pub fn new(value: T) -> Self {
        Self { value: std::cell::UnsafeCell::new(value), uses: Uses::default() }
    }

    /// The address of the value, to change it at this moment.
    pub fn get(&self) -> *mut T {
        if !has_failed() {
            self.uses.0.with_mut(|_| ());
        }
        self.value.get()
    }
}
