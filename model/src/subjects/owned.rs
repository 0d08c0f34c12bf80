//! The lock of a thread's log, which costs its owner two plain stores: owner and visitors never
//! meet.

use std::sync::Arc;

use crate::explore::{Model, Planted, Subject, spawn};
use crate::owned::Owned;

const FILE: &str = "heap/src/sys/owned.rs";
const APART: &str = "the owner and a visitor never meet";
const VISITORS: &str = "visitors exclude each other and the owner";

/// The lock of a thread's log.
pub const SUBJECT: Subject = Subject {
    models: &[
        Model { name: APART, run: apart, preemptions: 2 },
        Model { name: VISITORS, run: visitors, preemptions: 1 },
    ],
    planted: &[
        Planted { file: FILE, text: "            barrier_here();", found_by: APART },
        Planted { file: FILE, text: "        barrier_everywhere();", found_by: APART },
        Planted { file: FILE, text: "while self.busy.load(Acquire)", found_by: APART },
        Planted { file: FILE, text: "self.owned.busy.store(false, Release)", found_by: APART },
        Planted { file: FILE, text: "self.owned.visited.store(false, Release)", found_by: APART },
        Planted { file: FILE, text: "                fence(Acquire);", found_by: APART },
    ],
};

/// The owner uses the value beside one visitor.
fn apart() {
    beside(1, 1);
}

/// The owner uses the value once beside two visitors.
fn visitors() {
    beside(1, 2);
}

fn beside(uses: u32, visitors: u32) {
    let owned = Arc::new(Owned::<u32>::default());
    let visits = (0..visitors).map(|_| {
        let owned = Arc::clone(&owned);
        spawn(move || *owned.visit() += 1)
    });
    let visits: Vec<_> = visits.collect();
    for _ in 0..uses {
        *owned.own() += 1;
    }
    assert!(visits.into_iter().all(|visit| visit.join().is_ok()));
    assert_eq!(*owned.own(), uses + visitors);
}
