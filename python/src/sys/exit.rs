//! The end of the process, for regions whose arrays live as long as the program.
//!
//! The interpreter does not destroy what a program still has when it ends, so nothing would flush
//! these regions and let their holders go. The system's own list of functions to call at the exit
//! comes after the interpreter: no Python code runs any more that could store to memory which takes
//! no more stores, and wait there for ever.

use std::sync::{Arc, Once, Weak};

use parking_lot::Mutex;
use perdura::TrappedRegion;

/// The regions that may be open.
static OPEN: Mutex<Vec<Weak<TrappedRegion>>> = Mutex::new(Vec::new());

/// Closes a region at the exit of the process, if it is still open then.
pub fn close_at_exit(region: &Arc<TrappedRegion>) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the function takes nothing and does not unwind, and the library stays loaded: an
        // interpreter never unloads one. Without room in the list nothing is closed at the exit,
        // as if the process had been killed.
        unsafe { libc::atexit(close_all) };
    });
    let mut open = OPEN.lock();
    open.retain(|region| region.strong_count() > 0);
    open.push(Arc::downgrade(region));
}

extern "C" fn close_all() {
    for region in OPEN.lock().drain(..) {
        // A fork closes nothing: the region itself refuses.
        if let Some(region) = region.upgrade()
            && !region.is_forked()
            && let Err(error) = region.close()
        {
            eprintln!("perdura: not everything is on the SSD: {error}");
        }
    }
}
