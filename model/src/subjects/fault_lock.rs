//! The mutex that a signal handler may take: it excludes, and wakes whoever sleeps.

use std::sync::Arc;

use crate::explore::{Model, Planted, Subject, spawn};
use crate::sys::FaultLock;

const FILE: &str = "dirty/src/sys/fault_lock.rs";
const EXCLUDES: &str = "one thread holds it, and who sleeps is woken";

/// The mutex of signal handlers.
pub const SUBJECT: Subject = Subject {
    models: &[Model { name: EXCLUDES, run: excludes, preemptions: 3 }],
    planted: &[
        Planted {
            file: FILE,
            text: "self.word.compare_exchange(FREE, HELD, Acquire, Relaxed)",
            found_by: EXCLUDES,
        },
        Planted {
            file: FILE,
            text: "while self.word.swap(WAITED_FOR, Acquire) != FREE",
            found_by: EXCLUDES,
        },
        Planted {
            file: FILE,
            text: "if self.lock.word.swap(FREE, Release) == WAITED_FOR",
            found_by: EXCLUDES,
        },
    ],
};

/// A handler and a thread outside of one take the lock.
fn excludes() {
    let lock = Arc::new(FaultLock::new(0));
    let handler = {
        let lock = Arc::clone(&lock);
        spawn(move || *lock.lock_in_handler() += 1)
    };
    *lock.lock_in_handler() += 1;
    assert!(handler.join().is_ok());
    assert_eq!(*lock.lock_in_handler(), 2);
}
