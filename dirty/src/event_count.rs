//! Where faults wait: for a cut to end, a page to be unlocked, old bytes to be captured.
//! Async-signal-safe.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use perdura_media::Clock;
use rustix::thread::futex;

/// Waits look again after this long even if nobody woke them: a bound on what a lost wake-up could
/// cost.
pub const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A word that changes whenever something that a fault may wait for has happened.
#[derive(Debug, Default)]
pub struct EventCount {
    version: AtomicU32,
    waiters: AtomicU32,
}

impl EventCount {
    /// Read it before looking at what you would wait for.
    pub fn version(&self) -> u32 {
        self.version.load(SeqCst)
    }

    /// Sleeps until something happened after `seen`, or for [`LOOK_AGAIN`].
    pub fn wait(&self, clock: &dyn Clock, seen: u32) {
        self.waiters.fetch_add(1, SeqCst);
        clock.wait_change(&self.version, seen, LOOK_AGAIN);
        self.waiters.fetch_sub(1, SeqCst);
    }

    /// Something happened.
    pub fn notify(&self) {
        self.version.fetch_add(1, SeqCst);
        if self.waiters.load(SeqCst) > 0 {
            // A wake can only fail for a bad address, which a field of `self` is not.
            let _ = futex::wake(&self.version, futex::Flags::PRIVATE, i32::MAX as u32);
        }
    }
}

/// Lets any number in, or, while a cut is made, nobody.
#[derive(Debug, Default)]
pub struct Gate {
    inside: AtomicU32,
    shut: AtomicBool,
}

impl Gate {
    /// `None` while shut.
    pub fn enter(&self) -> Option<Inside<'_>> {
        self.inside.fetch_add(1, SeqCst);
        let inside = Inside { gate: self };
        if self.shut.load(SeqCst) { None } else { Some(inside) }
    }

    /// Lets nobody in any more, and waits until everybody has left.
    pub fn shut(&self, clock: &dyn Clock) {
        self.begin_shut();
        while !self.is_empty_within(clock, LOOK_AGAIN) {}
    }

    /// Lets nobody in any more; some may still be inside.
    pub fn begin_shut(&self) {
        self.shut.store(true, SeqCst);
    }

    /// Whether everybody has left a shut gate; waits for it once, at most `longest`.
    pub fn is_empty_within(&self, clock: &dyn Clock, longest: Duration) -> bool {
        let inside = self.inside.load(SeqCst);
        if inside > 0 {
            clock.wait_change(&self.inside, inside, longest);
        }
        self.inside.load(SeqCst) == 0
    }

    /// Lets faults in again.
    pub fn reopen(&self) {
        self.shut.store(false, SeqCst);
    }
}

/// Being inside the gate.
pub struct Inside<'g> {
    gate: &'g Gate,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if self.gate.inside.fetch_sub(1, SeqCst) == 1 && self.gate.shut.load(SeqCst) {
            // As in `EventCount::notify`.
            let _ = futex::wake(&self.gate.inside, futex::Flags::PRIVATE, 1);
        }
    }
}
