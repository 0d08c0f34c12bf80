//! How processes come and go with a heap open: forks, and what runs at the end of a process or of a thread.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

mod common;

use perdura_heap::check;

const ENDINGS: &str = include_str!("endings.c");

#[test]
fn exit_within_a_transaction_leaves_none_of_it() {
    let Some((folder, program)) = common::program("c", ENDINGS) else { return };
    common::run_well(&program, &["exits-within", "a.heap"], folder.path());
    let report = check::heap_file(&folder.path().join("a.heap")).unwrap();
    assert!(report.is_sound() && report.objects == 1, "{report}");
}
