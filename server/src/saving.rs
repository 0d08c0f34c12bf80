//! Checkpoints that clients ask for: by SAVE on the loop's own thread, by BGSAVE on another thread.
//!
//! One checkpoint is made at a time. The region also makes checkpoints by itself, which are not
//! counted here.

use perdura_media::Clock;
use perdura_store::Store;

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The state of SAVE and BGSAVE, and the order for the thread.
#[derive(Debug)]
pub(crate) struct Saving {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    report: Saves,
    /// Whether a BGSAVE waits for the thread to take it up.
    ordered: bool,
    ended: bool,
}

/// The figures of LASTSAVE and INFO.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Saves {
    /// Start of the checkpoint in progress, if there is one, milliseconds since 1970.
    pub since_unix_ms: Option<u64>,
    /// End of the last checkpoint that succeeded, seconds since 1970; at first the server's start.
    pub saved_unix_s: u64,
    pub failed: bool,
    /// Write commands carried out before the last checkpoint that succeeded began.
    pub changes_saved: u64,
    /// Write commands carried out before the checkpoint in progress began.
    changes_begun: u64,
    /// Duration of the last checkpoint, seconds.
    pub took_s: Option<u64>,
    pub count: u64,
}

/// Another SAVE or BGSAVE is in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Busy;

impl Saving {
    pub fn new(now_unix_ms: u64) -> Self {
        let report = Saves {
            since_unix_ms: None,
            saved_unix_s: now_unix_ms / 1000,
            failed: false,
            changes_saved: 0,
            changes_begun: 0,
            took_s: None,
            count: 0,
        };
        Self {
            state: Mutex::new(State { report, ordered: false, ended: false }),
            changed: Condvar::new(),
        }
    }

    pub fn report(&self) -> Saves {
        self.lock().report
    }

    /// Orders a checkpoint after so many write commands, and returns at once.
    pub fn order(&self, clock: &dyn Clock, changes: u64) -> Result<(), Busy> {
        self.begin(clock, changes, true)
    }

    /// Makes a checkpoint, and returns when it is done or has failed.
    pub fn save(
        &self,
        store: &Store,
        clock: &dyn Clock,
        changes: u64,
    ) -> Result<Result<(), String>, Busy> {
        self.begin(clock, changes, false)?;
        Ok(self.finish(store, clock))
    }

    /// Makes the checkpoints that are ordered, on the thread beside the loop, until the end.
    pub fn serve(&self, store: &Store, clock: &dyn Clock) {
        loop {
            let mut state = self.lock();
            while !state.ordered && !state.ended {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.ended {
                // An order that the thread has not begun is dropped: the final flush comes next and
                // does more.
                return;
            }
            state.ordered = false;
            drop(state);
            if let Err(why) = self.finish(store, clock) {
                tracing::error!(%why, "BGSAVE failed");
            }
        }
    }

    /// Ends the thread that makes checkpoints.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    fn begin(&self, clock: &dyn Clock, changes: u64, ordered: bool) -> Result<(), Busy> {
        let mut state = self.lock();
        if state.report.since_unix_ms.is_some() {
            return Err(Busy);
        }
        state.report.since_unix_ms = Some(clock.unix_ms());
        state.report.changes_begun = changes;
        state.ordered = ordered;
        self.changed.notify_all();
        Ok(())
    }

    fn finish(&self, store: &Store, clock: &dyn Clock) -> Result<(), String> {
        let outcome = store.region().checkpoint().map_err(|error| error.to_string());
        let report = &mut self.lock().report;
        let now_ms = clock.unix_ms();
        let began_ms = report.since_unix_ms.take().unwrap_or(now_ms);
        report.took_s = Some(now_ms.saturating_sub(began_ms) / 1000);
        report.failed = outcome.is_err();
        if outcome.is_ok() {
            report.saved_unix_s = now_ms / 1000;
            report.changes_saved = report.changes_begun;
            report.count += 1;
        }
        outcome
    }

    /// Locks the state, also after a panic of another thread: the figures are still right then,
    /// because each change is one assignment.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
