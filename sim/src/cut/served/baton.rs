//! Two threads of which one runs at a time: the server's loop, and the thread that makes its group
//! commits.
//!
//! The committing thread hands over before each of its durable operations and at the end of each
//! commit. So a simulation decides what the loop does between any two operations of a commit, and
//! the same decisions give the same run.

use std::sync::atomic::AtomicU32;
use std::thread::ThreadId;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use perdura_media::{Clock, LoneClock};

/// The right to run.
#[derive(Default)]
pub(super) struct Baton {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    committer: Option<ThreadId>,
    /// Whether the committing thread has the baton.
    is_committing: bool,
    /// Whether it stands before an operation in the middle of a commit.
    is_between: bool,
    /// Whether nobody takes turns any more.
    is_over: bool,
}

impl Baton {
    /// The committing thread: waits until a commit is wanted. Returns false at the end.
    pub fn await_turn(&self) -> bool {
        let mut state = self.state.lock();
        state.committer = Some(std::thread::current().id());
        state.is_between = false;
        self.hand_over(&mut state);
        !state.is_over
    }

    /// Before a durable operation: hands over, if this is the committing thread.
    pub fn pause(&self) {
        let mut state = self.state.lock();
        if state.committer == Some(std::thread::current().id()) && !state.is_over {
            state.is_between = true;
            self.hand_over(&mut state);
            state.is_between = false;
        }
    }

    /// The loop: waits until the committing thread is there, so that the first turn is not lost.
    pub fn await_committer(&self) {
        let mut state = self.state.lock();
        while state.committer.is_none() {
            self.changed.wait(&mut state);
        }
    }

    /// The loop: lets the committing thread run up to its next operation, or to the end of its
    /// commit.
    pub fn go_on(&self) {
        let mut state = self.state.lock();
        state.is_committing = true;
        self.changed.notify_all();
        while state.is_committing && !state.is_over {
            self.changed.wait(&mut state);
        }
    }

    /// Whether the committing thread stands in the middle of a commit.
    pub fn is_between(&self) -> bool {
        self.state.lock().is_between
    }

    /// Ends the turns when it is dropped: the committing thread finishes its commit and ends.
    pub fn end_when_dropped(&self) -> Ending<'_> {
        Ending(self)
    }

    fn hand_over(&self, state: &mut MutexGuard<'_, State>) {
        state.is_committing = false;
        self.changed.notify_all();
        while !state.is_committing && !state.is_over {
            self.changed.wait(state);
        }
    }

    fn is_committer(&self) -> bool {
        self.state.lock().committer == Some(std::thread::current().id())
    }
}

/// See [`Baton::end_when_dropped`].
pub(super) struct Ending<'b>(&'b Baton);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

/// A clock on which the loop waits by letting the committing thread run.
pub(super) struct TurnsClock {
    pub inner: LoneClock,
    pub baton: Baton,
}

impl Clock for TurnsClock {
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn unix_ms(&self) -> u64 {
        self.inner.unix_ms()
    }

    fn thread_cpu_ns(&self) -> u64 {
        self.inner.thread_cpu_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.inner.sleep_ns(duration_ns);
    }

    fn wait_change(&self, word: &AtomicU32, seen: u32, longest: Duration) {
        if self.baton.is_committer() {
            self.baton.pause();
        } else if self.baton.is_between() {
            self.baton.go_on();
        }
        self.inner.wait_change(word, seen, longest);
    }
}
