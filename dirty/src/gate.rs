//! A gate in front of the fault path and of prepared writes. Async-signal-safe.

use std::time::Duration;

use perdura_media::Clock;

use crate::event_count::{EventCount, LOOK_AGAIN};
use crate::sync::{AtomicBool, AtomicU32, Ordering::SeqCst, wake};

/// A gate that any number of threads may be inside of, and that a cut shuts for everybody.
#[derive(Debug, Default)]
pub struct Gate {
    inside: AtomicU32,
    shut: AtomicBool,
    /// Counts the events for which a thread looks again that has shut the gate and works for others
    /// while it waits: everybody has left, or there is work.
    pub news: EventCount,
}

impl Gate {
    /// Enters the gate; `None` while it is shut.
    #[inline]
    pub fn enter(&self) -> Option<Inside<'_>> {
        self.inside.fetch_add(1, SeqCst);
        let inside = Inside { gate: self };
        if self.shut.load(SeqCst) { None } else { Some(inside) }
    }

    /// Shuts the gate, and waits until everybody has left.
    pub(crate) fn shut(&self, clock: &dyn Clock) {
        self.begin_shut();
        while !self.is_empty_within(clock, LOOK_AGAIN) {}
    }

    /// Shuts the gate; some threads may still be inside.
    pub fn begin_shut(&self) {
        self.shut.store(true, SeqCst);
    }

    /// Whether everybody has left the gate.
    pub fn is_empty(&self) -> bool {
        self.inside.load(SeqCst) == 0
    }

    /// Whether everybody has left the gate, which is shut. Waits once, at most `longest`.
    pub fn is_empty_within(&self, clock: &dyn Clock, longest: Duration) -> bool {
        let inside = self.inside.load(SeqCst);
        if inside > 0 {
            clock.wait_change(&self.inside, inside, longest);
        }
        self.is_empty()
    }

    /// Opens the gate again.
    pub fn reopen(&self) {
        self.shut.store(false, SeqCst);
    }
}

/// Proof that a thread is inside the gate, which it leaves when this is dropped.
pub struct Inside<'g> {
    gate: &'g Gate,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if self.gate.inside.fetch_sub(1, SeqCst) == 1 && self.gate.shut.load(SeqCst) {
            wake(&self.gate.inside, 1);
            self.gate.news.notify();
        }
    }
}
