//! Every model holds in all its schedules, and finds the orderings that are weakened.

use perdura_model::subjects;

#[test]
fn the_account_keeps_its_limit_and_wakes_who_waits() {
    subjects::budget::SUBJECT.prove();
}

#[test]
fn the_gate_excludes_and_wakes_who_waits() {
    subjects::gate::SUBJECT.prove();
}

#[test]
fn the_mutex_with_waiters_excludes() {
    subjects::waited::SUBJECT.prove();
}

#[test]
fn the_owner_of_a_log_and_its_visitors_never_meet() {
    subjects::owned::SUBJECT.prove();
}

#[test]
fn a_frame_is_in_one_pair_of_hands_and_complete_for_who_takes_over() {
    subjects::appender::SUBJECT.prove();
}

#[test]
fn a_block_has_one_user_though_it_moves_or_is_loaded_meanwhile() {
    subjects::lanes::SUBJECT.prove();
}

#[test]
fn the_mutex_of_signal_handlers_excludes_and_wakes() {
    subjects::fault_lock::SUBJECT.prove();
}
