//! How processes come and go with a heap open: forks, and what runs at the end of a process or of a
//! thread.

use perdura_heap::check;

const ENDINGS: &str = include_str!("endings.c");

#[test]
fn a_forked_child_is_refused_and_changes_nothing_of_its_parents_heap() {
    let Some((folder, program)) = crate::programs::program("c", ENDINGS) else { return };
    let path = folder.path().join("a.heap");
    for part in ["forks", "forks-and-closes"] {
        crate::programs::run_well(&program, &[part, "a.heap"], folder.path());
        let report = check::heap_file(&path).unwrap();
        assert!(report.is_sound(), "{part}: {report}");
        assert_eq!(report.roots.len(), 100, "{part}: {report}");
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_forked_child_of_a_program_with_a_directory_is_refused() {
    let Some((folder, program)) = crate::programs::program("c", ENDINGS) else { return };
    std::fs::create_dir(folder.path().join("region")).unwrap();
    crate::programs::run_well(&program, &["forks-and-closes", "region"], folder.path());
}

#[test]
fn exit_within_a_transaction_leaves_none_of_it() {
    let Some((folder, program)) = crate::programs::program("c", ENDINGS) else { return };
    crate::programs::run_well(&program, &["exits-within", "a.heap"], folder.path());
    let report = check::heap_file(&folder.path().join("a.heap")).unwrap();
    assert!(report.is_sound() && report.objects == 1, "{report}");
}

#[test]
fn calls_fail_as_ever_in_handlers_of_exit_and_late_in_a_thread() {
    let Some((folder, program)) = crate::programs::program("c", ENDINGS) else { return };
    let output = crate::programs::run(&program, &["fails-late", "a.heap"], folder.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said == "closed\n", "{}: {said}", output.status);
}

#[test]
fn a_programs_handlers_of_faults_stand_before_the_librarys_or_pass_on() {
    let Some((folder, program)) = crate::programs::program("c", ENDINGS) else { return };
    std::fs::create_dir(folder.path().join("region")).unwrap();
    for part in ["handler-before", "handler-passes-on"] {
        crate::programs::run_well(&program, &[part, "region"], folder.path());
    }
}
