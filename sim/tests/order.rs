//! The heap survives every loss that its stores allow, and a flush or fence that is left out is
//! found.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use perdura_heap::Planted;
use perdura_sim::order::{Bug, Outcome, Place, Plan, PlanError, Plant, names, run};

/// States at each event for which CI has time; of the planted flushes, fewer find enough.
const STATES_MAX: usize = 32;
const STATES_EACH: usize = 8;

fn plan(operation: Option<&str>, plant: Plant) -> Plan {
    let operation = operation.map(str::to_owned);
    let states_max =
        if matches!(plant, Plant::One(Bug::Heap(_))) { STATES_MAX } else { STATES_EACH };
    Plan { operation, seed: 1, states_max, only: None, plant }
}

fn check(operation: Option<&str>, plant: Plant) -> Outcome {
    run(&plan(operation, plant), &|_, _| ()).unwrap()
}

#[test]
fn every_operation_bears_every_loss() {
    let outcome = check(None, Plant::None);
    println!("{outcome}");
    assert_eq!(outcome.failures().count(), 0, "{outcome}");
    assert_eq!(outcome.operations.len(), names().len());
    for operation in &outcome.operations {
        assert!(operation.tally.reopened > 5 && operation.fences > 0, "{outcome}");
        assert!(operation.tally.recoveries > 0, "no recovery was cut: {outcome}");
    }
}

#[track_caller]
fn assert_flushes_matter(operation: &str) {
    let outcome = check(Some(operation), Plant::Each);
    println!("{outcome}");
    assert_eq!(outcome.failures().count(), 0, "{outcome}");
    let report = &outcome.operations[0];
    let of = |kind| report.caught.iter().find(|(name, _)| *name == kind).unwrap().1;
    assert!(of("drop-flush").caught > 0 && of("drop-fence").caught > 0, "{outcome}");
    // A missed one is replayed by its name, and is missed again; a caught one fails.
    let missed: Vec<_> = report.missed.iter().map(|(bug, _)| *bug).collect();
    let flushes = (0..report.flushes).map(Bug::DropFlush);
    let Some(caught) = flushes.into_iter().find(|bug| !missed.contains(bug)) else {
        panic!("no flush was missed: {outcome}");
    };
    let failed = check(Some(operation), Plant::One(caught));
    let failure = failed.failures().next().unwrap().clone();
    assert!(failure.to_string().contains(&format!("--only {} --plant {caught}", failure.place)));
    let only = Some(failure.place.clone());
    let replayed = run(&Plan { only, ..plan(Some(operation), Plant::One(caught)) }, &|_, _| ());
    assert_eq!(replayed.unwrap().failures().next(), Some(&failure), "the replay differs");
}

#[test]
fn flushes_of_an_allocation_matter() {
    assert_flushes_matter("alloc");
}

#[test]
fn flushes_of_a_redo_commit_matter() {
    assert_flushes_matter("commit-redo");
}

#[test]
fn flushes_of_a_link_matter() {
    assert_flushes_matter("link");
}

#[test]
fn flushes_of_a_recovery_matter() {
    assert_flushes_matter("open-undo");
}

#[track_caller]
fn assert_caught(operation: &str, planted: Planted) {
    let bug = Bug::Heap(planted);
    let outcome = check(Some(operation), Plant::One(bug));
    let Some(failure) = outcome.failures().next().cloned() else {
        panic!("{bug} was not caught: {outcome}");
    };
    let fewer = Plan { states_max: 8, ..plan(Some(operation), Plant::One(bug)) };
    let fewer = run(&fewer, &|_, _| ()).unwrap().failures().count();
    println!("{bug} in {failure}; with 8 states {}", if fewer > 0 { "too" } else { "not" });
    assert!(failure.to_string().ends_with(&format!("--only {} --plant {bug}", failure.place)));
    let only = Some(failure.place.clone());
    let replayed = run(&Plan { only, ..plan(Some(operation), Plant::One(bug)) }, &|_, _| ());
    assert_eq!(replayed.unwrap().failures().next(), Some(&failure), "the replay differs");
    let sound = Plan { states_max: STATES_MAX, ..plan(Some(operation), Plant::None) };
    assert_eq!(run(&sound, &|_, _| ()).unwrap().failures().count(), 0);
}

#[test]
fn a_free_that_is_durable_before_its_commit_is_caught() {
    assert_caught("commit-redo", Planted::FreeBeforeCommit);
    assert_caught("commit-undo", Planted::FreeBeforeCommit);
}

#[test]
fn a_link_that_is_durable_before_the_frees_it_builds_on_is_caught() {
    assert_caught("link-between-frees", Planted::LinkBeforeFrees);
}

#[test]
fn a_chunk_that_is_cleared_without_saying_so_is_caught() {
    assert_caught("log-again-redo", Planted::ClearUnmarked);
}

#[test]
fn lines_that_are_not_written_back_before_their_groups_are_over_are_caught() {
    assert_caught("fold-commits-redo", Planted::SettleUnflushed);
}

#[test]
fn what_is_not_there_is_named() {
    let wrong = run(&plan(Some("dance"), Plant::None), &|_, _| ()).unwrap_err();
    assert!(wrong.to_string().contains("commit-undo"), "{wrong}");
    let none = run(&plan(Some("alloc"), Plant::One(Bug::DropFlush(9_999))), &|_, _| ());
    assert!(matches!(none, Err(PlanError::NoBug { .. })));
    let place: Place = "power:9999:0".parse().unwrap();
    let none = run(&Plan { only: Some(place), ..plan(Some("alloc"), Plant::None) }, &|_, _| ());
    assert!(matches!(none, Err(PlanError::NoState { .. })));
}
