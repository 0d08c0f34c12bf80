//! Mapped regions from C: what is stored is found again, and each mistake has its code.

use std::os::unix::process::ExitStatusExt;

use crate::programs::{program, run, run_well};

const MAPPINGS: &str = include_str!("mappings.c");

#[test]
fn what_is_stored_to_a_mapping_is_there_after_unmap_and_what_was_synced_after_a_kill() {
    let Some((folder, program)) = program("c", MAPPINGS) else { return };
    run_well(&program, &["stores", "region"], folder.path());
    let killed = run(&program, &["finds", "region"], folder.path());
    let said = String::from_utf8_lossy(&killed.stderr);
    assert_eq!(killed.status.signal(), Some(9), "{said}");
    run_well(&program, &["finds-synced", "region"], folder.path());
}

#[test]
fn a_system_call_stores_to_pages_that_were_prepared() {
    let Some((folder, program)) = program("c", MAPPINGS) else { return };
    run_well(&program, &["reads", "region"], folder.path());
}

#[test]
fn a_mapping_has_a_code_for_each_mistake_and_none_in_a_forked_child() {
    let Some((folder, program)) = program("c", MAPPINGS) else { return };
    run_well(&program, &["mistakes", "region"], folder.path());
    run_well(&program, &["forks", "region"], folder.path());
}
