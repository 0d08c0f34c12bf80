//! The thread that looks at drives and meters.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use perdura_media::Clock;

use super::keeper::Keeper;
use super::status::DrivesStatus;

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same while a drive does requests slowly until it is put back.
const LOOK_OFTEN: Duration = Duration::from_millis(50);
/// Longest wait for the drives to be put back at the end.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// A keeper of drives with a thread of its own. Ends, and puts drives back, when it is dropped.
pub struct DriveKeeper {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Signalled when the thread should look at once, and when it has ended.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether somebody wants to know the power states.
    is_wanted: bool,
    is_over: bool,
    has_ended: bool,
    status: DrivesStatus,
}

impl std::fmt::Debug for DriveKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DriveKeeper").finish_non_exhaustive()
    }
}

impl DriveKeeper {
    /// Starts the thread. `devices` says which devices there are: number and directory.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(
        mut keeper: Keeper,
        clock: Arc<dyn Clock>,
        devices: impl Fn() -> Vec<(u16, String)> + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new().name("drives".into()).spawn(move || {
            let Shared { state, changed } = &*of_thread;
            // The first answers are there before anybody asks.
            let mut asks = true;
            loop {
                keeper.follow(&devices());
                keeper.look(clock.now_ns(), asks);
                let status = keeper.status();
                let every = if keeper.has_slow_drive() { LOOK_OFTEN } else { LOOK_EVERY };
                let mut state = state.lock();
                state.status = status;
                if !state.is_over {
                    changed.wait_for(&mut state, every);
                }
                asks = std::mem::take(&mut state.is_wanted);
                if state.is_over {
                    break;
                }
            }
            keeper.end();
            state.lock().has_ended = true;
            changed.notify_all();
        })?;
        Ok(Self { shared })
    }

    /// What was known at the last look. The drives are asked for their power states, at most once
    /// a second each, and the next call has the answers.
    pub fn status(&self) -> DrivesStatus {
        let mut state = self.shared.state.lock();
        state.is_wanted = true;
        state.status.clone()
    }

    /// Ends the thread and puts drives back. Does not wait for a drive that does not answer.
    pub fn end(&self) {
        let mut state = self.shared.state.lock();
        state.is_over = true;
        self.shared.changed.notify_all();
        let goes_on = |state: &mut State| !state.has_ended;
        let waited = self.shared.changed.wait_while_for(&mut state, goes_on, END_PATIENCE);
        if waited.timed_out() {
            tracing::warn!("a drive does not answer; its power state may be another than before");
        }
    }
}

impl Drop for DriveKeeper {
    fn drop(&mut self) {
        self.end();
    }
}
