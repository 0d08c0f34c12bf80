//! A futex that counts events. Blocked faults wait on one for a cut to end, a page to be unlocked,
//! or old bytes to be captured; a checkpoint waits on one for prepared writes to end.
//! Async-signal-safe.

use std::time::Duration;

use perdura_media::Clock;

use crate::sync::{AtomicU32, Ordering::SeqCst, wake};

/// The longest that a waiter sleeps before it looks again, even if nobody woke it: a bound on what
/// a lost wake-up could cost.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A word that changes whenever something has happened that a thread may wait for.
#[derive(Debug, Default)]
pub struct EventCount {
    version: AtomicU32,
    waiters: AtomicU32,
}

impl EventCount {
    /// The number of events so far. A waiter reads it before it looks at the state it waits for.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version.load(SeqCst)
    }

    /// Sleeps until an event after `seen`, but at most 20 ms.
    pub fn wait(&self, clock: &dyn Clock, seen: u32) {
        self.waiters.fetch_add(1, SeqCst);
        clock.wait_change(&self.version, seen, LOOK_AGAIN);
        self.waiters.fetch_sub(1, SeqCst);
    }

    /// Counts an event and wakes every waiter.
    #[inline]
    pub fn notify(&self) {
        self.version.fetch_add(1, SeqCst);
        if self.waiters.load(SeqCst) > 0 {
            wake(&self.version, i32::MAX as u32);
        }
    }
}
