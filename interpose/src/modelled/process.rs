//! Begin and end of this library in a process, and the moments at which a process becomes two or
//! another program.
//!
//! Another process that uses an open file description finds its offset where the kernel keeps it,
//! so all offsets are handed to the kernel before a fork, before `exec`, and before a descriptor is
//! sent away.

use std::cell::UnsafeCell;

use crate::environment::Environment;
use crate::modelled::table::{self, Turned};
use crate::modelled::{calls, report, setup};
use crate::{next, say};

struct Slot(UnsafeCell<Option<Turned>>);

// SAFETY: only the thread that has the turn in it, and that thread's child, reach it.
unsafe impl Sync for Slot {}

static HELD: Slot = Slot(UnsafeCell::new(None));

/// Begins, if the environment asks for files on a medium.
pub fn start(environment: &Environment) {
    let Some(settings) = setup::read(environment) else {
        return calls::pass_on_vfork();
    };
    report::prepare(settings);
    // SAFETY: three functions that live as long as the process: this library is never unloaded.
    let refused = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    if refused != 0 {
        say::refuse(format_args!("pthread_atfork: error {refused}"));
    }
}

/// Hands all offsets to the kernel, for another process may use what is open here.
pub fn share() {
    if setup::settings().is_some() {
        table::turn().hand_over();
    }
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
        report::part();
    }
}

/// Reports, and lets `become_it` replace the program. `become_it` returns only if it cannot.
pub fn replace(become_it: impl FnOnce() -> i32) -> i32 {
    share();
    report::end();
    let outcome = become_it();
    report::go_on();
    outcome
}

/// Reports, and ends the process at once.
pub fn exit(status: i32) -> ! {
    report::end();
    // SAFETY: ends the process.
    unsafe { next::_exit(status) }
}
