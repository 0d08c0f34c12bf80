//! The door of the fault path, and the counted events: a cut excludes whoever is inside, and
//! whoever waits is woken.

use std::sync::Arc;

use crate::event_count::EventCount;
use crate::explore::{Model, Planted, Subject, spawn};
use crate::gate::Gate;
use crate::sync::{AtomicBool, NoTime, Ordering::Relaxed, UnsafeCell};

const FILE: &str = "dirty/src/gate.rs";

/// The door and the counted events.
pub const SUBJECT: Subject = Subject {
    models: &[
        Model { name: "nobody is inside during a cut", run: cut_excludes, preemptions: 3 },
        Model { name: "who waits for an event is woken", run: event_wakes, preemptions: 3 },
        Model { name: "who works while it waits is woken", run: news_wake, preemptions: 3 },
    ],
    planted: &[
        Planted {
            file: FILE,
            text: "self.inside.fetch_add(1, SeqCst)",
            found_by: "nobody is inside during a cut",
        },
        Planted {
            file: FILE,
            text: "self.shut.store(true, SeqCst)",
            found_by: "nobody is inside during a cut",
        },
        Planted {
            file: FILE,
            text: "if self.gate.inside.fetch_sub(1, SeqCst) == 1",
            found_by: "nobody is inside during a cut",
        },
        Planted {
            file: "dirty/src/event_count.rs",
            text: "if self.waiters.load(SeqCst) > 0",
            found_by: "who waits for an event is woken",
        },
    ],
};

/// What a fault changes, and a cut looks at.
#[derive(Default)]
struct Guarded {
    gate: Gate,
    value: UnsafeCell<u32>,
}

// SAFETY: the value is reached inside the gate by one thread, or with the gate shut and empty;
// loom reports it if not.
unsafe impl Sync for Guarded {}

/// A thread enters and changes a value, another one shuts the gate and changes it, too.
fn cut_excludes() {
    let guarded = Arc::new(Guarded::default());
    let fault = {
        let guarded = Arc::clone(&guarded);
        spawn(move || {
            if let Some(_inside) = guarded.gate.enter() {
                // SAFETY: see `Guarded`.
                unsafe { *guarded.value.get() += 1 };
            }
        })
    };
    guarded.gate.shut(&NoTime);
    // SAFETY: see `Guarded`.
    unsafe { *guarded.value.get() += 1 };
    guarded.gate.reopen();
    assert!(fault.join().is_ok());
}

/// A thread waits for a flag that another one sets before it counts an event.
fn event_wakes() {
    let shared = Arc::new((EventCount::default(), AtomicBool::new(false)));
    let other = {
        let shared = Arc::clone(&shared);
        spawn(move || {
            shared.1.store(true, Relaxed);
            shared.0.notify();
        })
    };
    let (events, flag) = &*shared;
    loop {
        let seen = events.version();
        if flag.load(Relaxed) {
            break;
        }
        events.wait(&NoTime, seen);
    }
    assert!(other.join().is_ok());
}

/// A thread that has shut the gate waits for its news until everybody has left.
fn news_wake() {
    let gate = Arc::new(Gate::default());
    let fault = {
        let gate = Arc::clone(&gate);
        spawn(move || drop(gate.enter()))
    };
    gate.begin_shut();
    loop {
        let seen = gate.news.version();
        if gate.is_empty() {
            break;
        }
        gate.news.wait(&NoTime, seen);
    }
    assert!(fault.join().is_ok());
}
