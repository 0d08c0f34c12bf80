//! What the power lets the server do: told by the thread that heeds warnings, and looked at by the
//! event loop once a turn.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use perdura_warning::{Demand, Reading, State};

/// Time that the end of a turn is waited for. A turn can be longer: a command may take long, or
/// wait for budget.
const TURN_PATIENCE: Duration = Duration::from_millis(300);

/// What the power lets the server do.
#[derive(Debug)]
pub struct Power {
    is_refusing: AtomicBool,
    /// Turns of the loop that have begun and seen [`Power::is_refusing`].
    turns: AtomicU64,
    said: Mutex<Said>,
    /// Notified at the beginning of a turn while writes are refused.
    turned: Condvar,
}

/// What the sources of warnings say, and what follows from it.
#[derive(Debug, Clone)]
pub struct Said {
    /// What the most pessimistic source says.
    pub reading: Reading,
    /// What it demands.
    pub demand: Demand,
}

impl Default for Power {
    fn default() -> Self {
        let reading = Reading::new(State::Steady, "");
        Self {
            is_refusing: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            said: Mutex::new(Said { reading, demand: Demand::Promise }),
            turned: Condvar::new(),
        }
    }
}

impl Power {
    /// Says what the power is like. Writes are refused from [`Demand::Clean`] on.
    pub fn tell(&self, reading: &Reading, demand: Demand) {
        *self.lock() = Said { reading: reading.clone(), demand };
        self.is_refusing.store(demand >= Demand::Clean, Ordering::SeqCst);
    }

    /// What was told last.
    pub fn said(&self) -> Said {
        self.lock().clone()
    }

    /// Waits until a turn of the loop has begun after writes were refused, so that none is under
    /// way any more; returns whether one has, within a moment.
    pub fn have_writes_ended(&self) -> bool {
        let seen = self.turns.load(Ordering::SeqCst);
        let is_same = |_: &mut Said| self.turns.load(Ordering::SeqCst) == seen;
        let waited = self.turned.wait_timeout_while(self.lock(), TURN_PATIENCE, is_same);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Begins a turn of the loop. Returns whether writes are refused in it.
    pub(crate) fn begin_turn(&self) -> bool {
        let is_refusing = self.is_refusing.load(Ordering::SeqCst);
        if is_refusing {
            self.turns.fetch_add(1, Ordering::SeqCst);
            // Taken and let go, so that a wait that has looked has begun.
            drop(self.lock());
            self.turned.notify_all();
        }
        is_refusing
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
