//! Processes that become two, or another program: whoever uses a description besides this process
//! finds the kernel's offset where it belongs.

use std::cell::UnsafeCell;

use crate::sys::next;
use crate::table::{self, Turned};
use crate::{say, start};

struct Slot(UnsafeCell<Option<Turned>>);

// SAFETY: reached only by the thread that has the turn that lies in it, and by its child.
unsafe impl Sync for Slot {}

static HELD: Slot = Slot(UnsafeCell::new(None));

/// From now on forks are seen.
pub fn watch() {
    // SAFETY: three functions that live as long as the process: this library is never unloaded.
    let refused = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    if refused != 0 {
        say::refuse(format_args!("pthread_atfork: error {refused}"));
    }
}

/// Another process may use what is open.
pub fn share() {
    table::turn().hand_over();
}

unsafe extern "C" fn before() {
    let turned = table::turn();
    turned.hand_over();
    // SAFETY: see `Slot`.
    unsafe { *HELD.0.get() = Some(turned) };
}

unsafe extern "C" fn in_parent() {
    // SAFETY: see `Slot`; taken out before the turn ends.
    drop(unsafe { (*HELD.0.get()).take() });
}

unsafe extern "C" fn in_child() {
    // SAFETY: see `Slot`.
    let held = unsafe { (*HELD.0.get()).take() };
    if let Some(mut turned) = held {
        turned.part();
        start::part();
    }
}

/// Becomes another program by `become_it`, which returns only if it cannot.
pub fn replace(become_it: impl FnOnce() -> i32) -> i32 {
    share();
    start::end();
    let outcome = become_it();
    start::go_on();
    outcome
}

/// Ends the process at once.
pub fn exit(status: i32) -> ! {
    start::end();
    // SAFETY: ends the process.
    unsafe { next::_exit(status) }
}
