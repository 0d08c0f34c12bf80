//! The end of the process, for memory whose arrays live as long as the program.
//!
//! The interpreter does not destroy what a program still has when it ends, so nothing would flush
//! these regions and heaps and let their holders go. The system's own list of functions to call at
//! the exit comes after the interpreter: no Python code runs any more that could store to memory
//! which takes no more stores, and wait there for ever.

use std::sync::{Arc, Once, Weak};

use parking_lot::Mutex;
use perdura::CloseError;

use crate::terms::Flushed;
use crate::viewed::Closes;

/// The regions and heaps that may be open.
static OPEN: Mutex<Vec<Weak<dyn AtExit>>> = Mutex::new(Vec::new());

/// The part of [`Closes`] that the exit needs, whatever is closed.
trait AtExit: Send + Sync {
    fn close(&self) -> Result<Flushed, CloseError>;
    fn is_forked(&self) -> bool;
}

impl<T: Closes> AtExit for T {
    fn close(&self) -> Result<Flushed, CloseError> {
        Closes::close(self)
    }

    fn is_forked(&self) -> bool {
        Closes::is_forked(self)
    }
}

/// Closes memory at the exit of the process, if it is still open then.
pub fn close_at_exit<T: Closes>(memory: &Arc<T>) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the function takes nothing and does not unwind, and the library stays loaded: an
        // interpreter never unloads one. Without room in the list nothing is closed at the exit,
        // as if the process had been killed.
        unsafe { libc::atexit(close_all) };
    });
    let memory: Weak<T> = Arc::downgrade(memory);
    let mut open = OPEN.lock();
    open.retain(|other| other.strong_count() > 0);
    open.push(memory);
}

extern "C" fn close_all() {
    for memory in OPEN.lock().drain(..) {
        // A fork closes nothing: the memory itself refuses.
        if let Some(memory) = memory.upgrade()
            && !memory.is_forked()
            && let Err(error) = memory.close()
        {
            eprintln!("perdura: not everything is on the SSD: {error}");
        }
    }
}
