//! Two locks that never allocate. A fork may leave them held by a thread that the child lacks; the
//! child opens them again.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

/// A lock between many threads that copy and one that changes what they copy: it waits until no
/// thread copies, and others wait for it.
///
/// A thread that copies goes before one that waits to change, so a signal handler that copies never
/// waits for the thread it interrupted.
#[derive(Default)]
pub struct Gate(AtomicU32);

const CLOSED: u32 = 1 << 31;

impl Gate {
    /// Enters. The thread sees all earlier changes, and its later reads are not moved before this.
    #[inline]
    pub fn enter(&self) {
        while self.0.fetch_add(1, SeqCst) & CLOSED != 0 {
            self.0.fetch_sub(1, SeqCst);
            while self.0.load(Relaxed) & CLOSED != 0 {
                rustix::thread::sched_yield();
            }
        }
    }

    #[inline]
    pub fn leave(&self) {
        self.0.fetch_sub(1, Release);
    }

    /// Runs `change` while no thread is inside. The caller has signals blocked ([`Quiet`]).
    pub fn alone<T>(&self, _: &Quiet, change: impl FnOnce() -> T) -> T {
        while self.0.compare_exchange(0, CLOSED, SeqCst, Relaxed).is_err() {
            rustix::thread::sched_yield();
        }
        let outcome = change();
        // The count is kept, for threads that only tried to enter may still be counted.
        self.0.fetch_and(!CLOSED, SeqCst);
        outcome
    }

    /// Opens the gate in a forked child, whose only thread is not inside.
    pub fn reset(&self) {
        self.0.store(0, SeqCst);
    }
}

/// A lock for one thread at a time, whose signals are blocked meanwhile.
#[derive(Default)]
pub struct Turn(AtomicBool);

/// Guard of this thread's turn.
pub struct Quiet {
    turn: &'static Turn,
    signals: libc::sigset_t,
}

impl Turn {
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    pub fn take(&'static self) -> Quiet {
        let mut all = MaybeUninit::uninit();
        let mut signals = MaybeUninit::uninit();
        // SAFETY: three calls that fill and read sets on this stack.
        let signals = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), signals.as_mut_ptr());
            signals.assume_init()
        };
        while self.0.swap(true, Acquire) {
            rustix::thread::sched_yield();
        }
        Quiet { turn: self, signals }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        self.turn.0.store(false, Release);
        // SAFETY: the set that `take` was given.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.signals, ptr::null_mut())
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn nobody_is_inside_while_somebody_changes() {
        static TURN: Turn = Turn::new();
        static GATE: Gate = Gate(AtomicU32::new(0));
        static PAIR: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
        let seen_apart = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        GATE.enter();
                        let pair = [PAIR[0].load(Relaxed), PAIR[1].load(Relaxed)];
                        seen_apart.fetch_add(u64::from(pair[0] != pair[1]), Relaxed);
                        GATE.leave();
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let quiet = TURN.take();
                        GATE.alone(&quiet, || {
                            let next = PAIR[0].load(Relaxed) + 1;
                            PAIR.iter().for_each(|word| word.store(next, Relaxed));
                        });
                    }
                });
            }
        });
        assert_eq!(seen_apart.into_inner(), 0);
        assert_eq!(PAIR[0].load(Relaxed), 1000);
    }
}
