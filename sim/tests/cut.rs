//! The simulation finds every planted bug and nothing in the right program, and its findings can be
//! replayed.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use perdura_region::Planted;
use perdura_sim::cut::{CUTS_PER_SCENARIO, FAILURES_MAX, Outcome, Plan, run};

const CUTS: u64 = 400;

fn cut(seed: u64, cuts: u64, only: Option<u64>, planted: Planted) -> Outcome {
    run(&Plan { seed, cuts, only, planted, threads: 1 }, &|_, _| ControlFlow::Continue(()))
}

#[track_caller]
fn assert_caught(planted: Planted) {
    assert_caught_from(1, planted);
}

#[track_caller]
fn assert_caught_from(seed: u64, planted: Planted) {
    let outcome = cut(seed, CUTS, None, planted);
    let Some(first) = outcome.failures.first() else {
        panic!("{} was not caught:\n{outcome}", planted.name());
    };
    assert!(outcome.failures.len() <= FAILURES_MAX);
    println!("{} caught by cut {}: {}", planted.name(), first.cut, first.why);
    let replayed = cut(seed, CUTS, Some(first.cut), planted);
    assert_eq!(replayed.failures.first(), Some(first), "the replay differs");
    let command =
        format!("perdura sim cut --seed {seed} --only {} --plant {}", first.cut, planted.name());
    assert!(outcome.to_string().contains(&command), "{outcome}");
}

#[test]
fn the_right_program_keeps_every_promise() {
    let told = AtomicU64::new(0);
    let plan = Plan { seed: 1, cuts: CUTS, only: None, planted: Planted::None, threads: 1 };
    let outcome = run(&plan, &|done, of| {
        assert!(done <= of && told.fetch_max(done, Ordering::Relaxed) < done);
        ControlFlow::Continue(())
    });
    assert!(outcome.failures.is_empty(), "{outcome}");
    assert_eq!((outcome.cuts, told.into_inner()), (CUTS, CUTS));
    let kinds = outcome.kinds;
    let each =
        [kinds.unwarned, kinds.warned, kinds.crashed, kinds.flipped, kinds.latched, kinds.served];
    assert!(each.iter().all(|count| *count > 0) && each.iter().sum::<u64>() == CUTS, "{outcome}");
    assert!(outcome.durable_ops > 5 * CUTS, "{outcome}");
    println!("{outcome}, {} refused", outcome.refused_ops);
    let text = outcome.to_string();
    assert!(text.starts_with("400 cuts: ") && text.ends_with("; 0 failures"), "{text}");
}

#[test]
fn a_seed_decides_everything() {
    let first = cut(7, 2 * CUTS_PER_SCENARIO, None, Planted::None);
    assert_eq!(first, cut(7, 2 * CUTS_PER_SCENARIO, None, Planted::None));
    assert_ne!(first, cut(8, 2 * CUTS_PER_SCENARIO, None, Planted::None));
}

#[test]
fn a_run_that_is_ended_early_makes_the_first_cuts_of_the_whole_run() {
    let plan = Plan { seed: 7, cuts: u64::MAX, only: None, planted: Planted::None, threads: 1 };
    let outcome = run(&plan, &|done, _| match done {
        12 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    assert_eq!(outcome, cut(7, 12, None, Planted::None));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let plan = Plan { seed: 7, cuts: 90, only: None, planted: Planted::None, threads: 1 };
    let several = Plan { threads: 3, ..plan };
    let outcome = |plan: &Plan| run(plan, &|_, _| ControlFlow::Continue(()));
    assert_eq!(outcome(&plan), outcome(&several));
}

#[test]
fn a_skipped_flush_is_caught() {
    assert_caught(Planted::SkipFlush);
}

#[test]
fn a_dropped_checksum_is_caught() {
    assert_caught(Planted::DropChecksum);
}

#[test]
fn a_grain_opened_before_it_is_accounted_for_is_caught() {
    assert_caught(Planted::OpenBeforeAccounting);
}

#[test]
fn bytes_called_clean_when_only_copied_are_caught() {
    assert_caught(Planted::CleanAtCopy);
}

#[test]
fn an_acknowledgement_before_the_commit_is_caught() {
    assert_caught(Planted::AcknowledgeBeforeCommit);
}

#[test]
fn a_segment_freed_before_the_commit_is_caught() {
    assert_caught_from(2, Planted::FreeBeforeCommit);
}

#[test]
fn a_block_that_counts_as_loaded_too_early_is_caught() {
    assert_caught(Planted::LoadedTooEarly);
}

#[test]
fn compressed_bytes_let_go_before_they_are_durable_are_caught() {
    // It takes a process that dies between a write and a device flush, with a frame that shrank
    // among them. Most seeds need hundreds of cuts, and some thousands.
    assert_caught_from(5, Planted::LetGoWhenWritten);
}

#[test]
fn a_place_given_back_that_another_frame_lies_behind_is_caught() {
    assert_caught(Planted::GiveBackAlways);
}

#[test]
fn neighbours_that_cease_to_count_as_dirty_with_a_freed_object_are_caught() {
    assert_caught(Planted::DropNeighbours);
}

#[test]
fn a_frame_made_durable_before_those_before_it_is_caught() {
    assert_caught_from(2, Planted::SingleAlways);
}

#[test]
fn zeros_written_to_a_segment_that_others_may_take_are_caught() {
    assert_caught_from(2, Planted::ZeroUntaken);
}

#[test]
fn a_saved_number_of_keys_that_stays_when_the_number_changes_is_caught() {
    assert_caught(Planted::KeepSavedCount);
}

#[test]
fn a_reply_before_the_group_is_committed_is_caught() {
    assert_caught(Planted::ReplyBeforeGroup);
}

#[test]
fn a_group_that_counts_as_durable_with_the_one_before_it_is_caught() {
    assert_caught(Planted::CountLateGroups);
}

#[test]
fn a_reply_though_the_commit_failed_is_caught() {
    assert_caught(Planted::ReplyThoughFailed);
}

#[test]
fn a_small_group_that_is_not_committed_is_caught() {
    assert_caught_from(4, Planted::SkipSmallGroups);
}

#[test]
fn every_planted_bug_has_a_test_here() {
    let covered = [
        Planted::SkipFlush,
        Planted::DropChecksum,
        Planted::OpenBeforeAccounting,
        Planted::CleanAtCopy,
        Planted::AcknowledgeBeforeCommit,
        Planted::FreeBeforeCommit,
        Planted::LoadedTooEarly,
        Planted::LetGoWhenWritten,
        Planted::GiveBackAlways,
        Planted::DropNeighbours,
        Planted::SingleAlways,
        Planted::ZeroUntaken,
        Planted::KeepSavedCount,
        Planted::ReplyBeforeGroup,
        Planted::CountLateGroups,
        Planted::ReplyThoughFailed,
        Planted::SkipSmallGroups,
    ];
    // A store has no capacity memory: `region/tests/region/kinds.rs` catches that one. Overwriting
    // in place is killed at each of its steps in `store/tests/store/overwrite.rs`, and changes of
    // lists and streams in `lists.rs` and `streams.rs` there.
    // What a loop sends of another loop's writes is seen in `server/tests/server/loops.rs`.
    // `store/tests/store/set.rs` counts the fields of a table, and `hash_expiry.rs` beside it those
    // that expire.
    let elsewhere = [
        Planted::KeepCapacity,
        Planted::FillFreedRoom,
        Planted::UnloggedDeletion,
        Planted::KeepFieldCount,
        Planted::KeepFieldExpiry,
        Planted::ReadOthersWrites,
        Planted::LeaveOverwritten,
        Planted::UndoWithoutBytes,
    ];
    let mut all = [&covered[..], &elsewhere].concat();
    all.sort_by_key(|bug| Planted::ALL.iter().position(|other| other == bug));
    assert_eq!(all, Planted::ALL);
}
