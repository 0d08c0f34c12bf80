//! The mutex whose holder sees that somebody waits: it excludes, and a holder that gives way ends.

use std::sync::Arc;

use crate::explore::{Model, Planted, Subject, spawn};
use crate::ranks::Rank;
use crate::sync::yield_now;
use crate::waited::Waited;

const FILE: &str = "dirty/src/waited.rs";
const COUNT: &str = "one thread holds it, and the count of waiters returns to zero";
const SEEN: &str = "a holder that works until somebody waits ends";

/// The mutex. Its count is a hint and relaxed, so what is planted is an access left out.
pub const SUBJECT: Subject = Subject {
    models: &[
        Model { name: COUNT, run: give_way, preemptions: 3 },
        Model { name: SEEN, run: holder_sees, preemptions: 3 },
    ],
    planted: &[
        Planted { file: FILE, text: "self.waiting.fetch_sub(1, Relaxed)", found_by: COUNT },
        Planted { file: FILE, text: "self.waiting.fetch_add(1, Relaxed)", found_by: SEEN },
    ],
};

/// Two threads lock; the holder gives way where somebody waits.
fn give_way() {
    let lock = Arc::new(Waited::new(Rank::Appender, 0));
    let other = {
        let lock = Arc::clone(&lock);
        spawn(move || *lock.lock() += 1)
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

/// A thread holds the mutex until it sees that another one waits, as a sweep over many records
/// does.
fn holder_sees() {
    let lock = Arc::new(Waited::new(Rank::Appender, 0));
    let held = lock.lock();
    let other = {
        let lock = Arc::clone(&lock);
        spawn(move || *lock.lock() += 1)
    };
    while !lock.is_waited_for() {
        yield_now();
    }
    drop(held);
    lock.give_way();
    assert!(other.join().is_ok());
    assert_eq!(*lock.lock(), 1);
}
