//! The account of dirty bytes: no limit is exceeded once it is in force, and whoever waits is
//! woken.

use std::sync::Arc;
use std::time::Duration;

use crate::budget::{Budget, Tell};
use crate::explore::{Model, Planted, Subject, spawn};
use crate::ledger::Ledger;
use crate::sync::{Mutex, NoTime, Ordering::Relaxed};

const FILE: &str = "dirty/src/budget.rs";

/// The account, and the credit that a lane keeps.
pub const SUBJECT: Subject = Subject {
    models: &[
        Model {
            name: "a limit that falls beside takers is not exceeded once it is in force",
            run: limit_falls,
            preemptions: 2,
        },
        Model { name: "who waits for bytes is woken", run: waiter_is_woken, preemptions: 3 },
        Model { name: "who waits for a lane is woken", run: lane_waiter_is_woken, preemptions: 3 },
        Model { name: "the cleaner is called", run: cleaner_is_called, preemptions: 3 },
    ],
    planted: &[
        Planted {
            file: FILE,
            text: "match used.compare_exchange_weak(seen, next, SeqCst, SeqCst)",
            found_by: "a limit that falls beside takers is not exceeded once it is in force",
        },
        Planted {
            file: FILE,
            text: "self.pending_limit.store(limit, SeqCst)",
            found_by: "a limit that falls beside takers is not exceeded once it is in force",
        },
        Planted {
            file: FILE,
            text: "if self.waiters.load(SeqCst) > 0",
            found_by: "who waits for bytes is woken",
        },
        Planted {
            file: FILE,
            text: "                fence(SeqCst);",
            found_by: "who waits for a lane is woken",
        },
        Planted {
            file: FILE,
            text: "self.call_above.store(call_above, SeqCst)",
            found_by: "the cleaner is called",
        },
    ],
};

/// A budget of two bytes, of which one is in use.
fn account() -> Arc<(Ledger, Budget)> {
    let account = Arc::new((Ledger::default(), Budget::default()));
    account.0.budget_limit().store(2, Relaxed);
    assert!(account.1.try_take(&account.0, 1));
    account
}

/// Two threads take a byte each while the limit falls from two to one.
fn limit_falls() {
    let account = Arc::new((Ledger::default(), Budget::default()));
    account.0.budget_limit().store(2, Relaxed);
    let takers = [(); 2].map(|()| {
        let account = Arc::clone(&account);
        spawn(move || account.1.try_take(&account.0, 1))
    });
    let (ledger, budget) = &*account;
    budget.begin_shrink(1);
    let is_in_force = budget.commit_limit(ledger, 1);
    let high = ledger.budget_high().load(Relaxed);
    let taken = takers.map(|taker| taker.join().is_ok_and(|taken| taken));
    let taken = taken.iter().filter(|taken| **taken).count() as u64;
    assert_eq!(ledger.budget_used().load(Relaxed), taken, "the account lost count");
    assert!(!is_in_force || (taken <= 1 && high <= 1), "more is in use than the limit in force");
}

/// A thread waits for the byte that another one gives back.
fn waiter_is_woken() {
    let account = account();
    let giver = {
        let account = Arc::clone(&account);
        spawn(move || account.1.give_back(&account.0, 1))
    };
    let (ledger, budget) = &*account;
    loop {
        let seen = budget.version();
        if budget.try_take(ledger, 2) {
            break;
        }
        budget.wait(&NoTime, seen, Duration::MAX);
    }
    assert!(giver.join().is_ok());
}

/// A thread waits for the credit that a lane keeps, and looks at lanes that nobody holds.
fn lane_waiter_is_woken() {
    let account = account();
    let lane = Arc::new(Mutex::new(0u64));
    let writer = {
        let (account, lane) = (Arc::clone(&account), Arc::clone(&lane));
        spawn(move || {
            let mut tell = Tell::default();
            let mut credit = lane.lock();
            // The byte that the account has in use becomes the lane's credit.
            *credit += 1;
            tell.lane_waiters(&account.1);
            drop(credit);
            drop(tell);
        })
    };
    let (ledger, budget) = &*account;
    let waits = budget.wait_for_lanes();
    loop {
        let seen = budget.version();
        let credit = lane.try_lock().map_or(0, |mut credit| std::mem::take(&mut *credit));
        if credit > 0 {
            budget.give_back(ledger, credit);
            break;
        }
        budget.wait(&NoTime, seen, Duration::MAX);
    }
    drop(waits);
    assert!(writer.join().is_ok());
}

/// The cleaner sleeps until more than a byte is in use.
fn cleaner_is_called() {
    let account = account();
    let taker = {
        let account = Arc::clone(&account);
        spawn(move || assert!(account.1.try_take(&account.0, 1)))
    };
    let (ledger, budget) = &*account;
    loop {
        let seen = budget.cleaner_version();
        if ledger.budget_used().load(Relaxed) > 1 {
            break;
        }
        budget.wait_as_cleaner(&NoTime, ledger, seen, 1, Duration::MAX);
    }
    assert!(taker.join().is_ok());
}
