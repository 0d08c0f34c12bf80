//! The commands on the pages that a user of `perdura` follows are run.

use std::path::Path;

use crate::running::PERDURA;
use crate::script::{Script, run_page};

/// The pages of `perdura-lab`, whose tests run them.
const OF_THE_LAB: [&str; 3] = ["block", "files", "workloads"];

/// Declares a test for each page, which says how many of its blocks are run.
macro_rules! pages {
    ($($test:ident: $page:literal, $blocks:literal;)*) => {
        $(#[test]
        fn $test() {
            run_page($page, $blocks, PERDURA);
        })*

        /// The pages of which blocks are run.
        const PAGES: &[&str] = &[$($page),*];
    };
}

pages! {
    backup_does_what_it_says: "backup", 4;
    devices_do_what_they_say: "devices", 1;
    encryption_does_what_it_says: "encryption", 2;
    the_guard_does_what_it_says: "guard", 3;
    the_heap_does_what_it_says: "heap", 1;
    mapped_files_do_what_they_say: "mapped", 1;
    media_do_what_they_say: "media", 1;
    moving_does_what_it_says: "moving", 4;
    operating_does_what_it_says: "operating", 1;
    packages_do_what_they_say: "packages", 3;
    the_plan_does_what_it_says: "plan", 2;
    protection_does_what_it_says: "protection", 1;
    security_does_what_it_says: "security", 3;
    the_start_does_what_it_says: "start", 5;
    watching_does_what_it_says: "watching", 2;
}

#[test]
fn other_pages_say_why_their_blocks_are_not_run() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    for path in std::fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_page = path.extension().is_some_and(|end| end == "md");
        if is_page && !PAGES.contains(&name) && !OF_THE_LAB.contains(&name) {
            let script = Script::of(&std::fs::read_to_string(&path).unwrap());
            assert_eq!(script.commands, "", "{name}.md has commands that no test runs");
        }
    }
}
