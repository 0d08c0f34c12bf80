//! The mutex whose holder sees that somebody waits: it excludes, and a holder that gives way ends.

use std::sync::Arc;

use loom::thread;

use crate::explore::{Model, Subject};
use crate::waited::Waited;

/// The mutex.
pub const SUBJECT: Subject = Subject {
    models: &[Model { name: "the count of waiters returns to zero", run: give_way, preemptions: 3 }],
    planted: &[],
};

/// Two threads lock; the holder gives way where somebody waits.
fn give_way() {
    let lock = Arc::new(Waited::new(0));
    let other = {
        let lock = Arc::clone(&lock);
        thread::spawn(move || *lock.lock() += 1)
    };
    for _ in 0..2 {
        *lock.lock() += 1;
        if lock.is_waited_for() {
            lock.give_way();
        }
    }
    assert!(other.join().is_ok());
    assert!(!lock.is_waited_for());
    assert_eq!(*lock.lock(), 3);
}
