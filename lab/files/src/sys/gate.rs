//! Two locks. Neither allocates, neither may be held by a thread that a fork forgets: a child opens
//! both again.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

/// Many copy at once; who changes what they copy from waits until none does, and they wait for
/// that.
///
/// Whoever copies goes before whoever waits to change: so a signal's handler that copies never
/// waits for the thread it interrupted.
#[derive(Default)]
pub struct Gate(AtomicU32);

const CLOSED: u32 = 1 << 31;

impl Gate {
    /// Goes in. What was changed before is seen, and what is looked at from here on is looked at
    /// after.
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

    /// Runs `change` while nobody is inside. The caller has signals blocked ([`Quiet`]).
    pub fn alone<T>(&self, _: &Quiet, change: impl FnOnce() -> T) -> T {
        while self.0.compare_exchange(0, CLOSED, SeqCst, Relaxed).is_err() {
            rustix::thread::sched_yield();
        }
        let outcome = change();
        // Those who only looked in may be counted.
        self.0.fetch_and(!CLOSED, SeqCst);
        outcome
    }

    /// In a forked child, whose only thread is not inside.
    pub fn reset(&self) {
        self.0.store(0, SeqCst);
    }
}

/// One at a time; signals are blocked meanwhile.
#[derive(Default)]
pub struct Turn(AtomicBool);

/// This thread's turn.
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
