//! Whose turn it is among Python's threads: one has it at a time, until it is dropped.

use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;

use crate::errors::nested;

/// Time after which a waiting thread looks again whether Python has a signal to handle, such as
/// Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A turn, and what its owner's thread finds by it.
pub struct Turn<T> {
    owner: Mutex<Option<Owner<T>>>,
    free: Condvar,
}

struct Owner<T> {
    thread: ThreadId,
    found: Option<T>,
}

/// The turn, which ends when this is dropped, in whichever thread.
pub struct Taken<T> {
    turn: Arc<Turn<T>>,
    thread: ThreadId,
}

impl<T> Default for Turn<T> {
    fn default() -> Self {
        Self { owner: Mutex::new(None), free: Condvar::new() }
    }
}

impl<T: Clone + Send> Turn<T> {
    /// Waits for the turn, for what `wish` names.
    pub fn take(this: &Arc<Self>, py: Python<'_>, wish: &str) -> PyResult<Taken<T>> {
        let thread = thread::current().id();
        if this.owner.lock().as_ref().is_some_and(|owner| owner.thread == thread) {
            return Err(nested(&format!(
                "{wish}: this thread is in a transaction of this heap: end that one first"
            )));
        }
        let try_take = || {
            let mut owner = this.owner.lock();
            if owner.is_some() {
                this.free.wait_for(&mut owner, LOOK_EVERY);
            }
            let is_free = owner.is_none();
            if is_free {
                *owner = Some(Owner { thread, found: None });
            }
            is_free
        };
        while !py.detach(try_take) {
            py.check_signals()?;
        }
        Ok(Taken { turn: Arc::clone(this), thread })
    }

    /// What the owner has set, if that is this thread.
    pub fn mine(&self) -> Option<T> {
        let owner = self.owner.lock();
        let own = owner.as_ref().filter(|owner| owner.thread == thread::current().id());
        own.and_then(|owner| owner.found.clone())
    }
}

impl<T> Taken<T> {
    /// Lets this turn's thread find `found`.
    pub fn set(&self, found: T) {
        if let Some(owner) = &mut *self.turn.owner.lock() {
            owner.found = Some(found);
        }
    }

    /// Whether this thread took the turn.
    pub fn is_mine(&self) -> bool {
        self.thread == thread::current().id()
    }
}

impl<T> Drop for Taken<T> {
    fn drop(&mut self) {
        *self.turn.owner.lock() = None;
        self.turn.free.notify_one();
    }
}
