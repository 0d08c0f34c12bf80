//! The commands on the pages of the laboratory are run.

#[path = "../../../cli/tests/cli/script.rs"]
mod script;

use script::run_page;

const LAB: &str = env!("CARGO_BIN_EXE_perdura-lab");

#[test]
fn block_does_what_it_says() {
    run_page("block", 2, LAB);
}

#[test]
fn files_do_what_they_say() {
    run_page("files", 1, LAB);
}

#[test]
fn workloads_do_what_they_say() {
    run_page("workloads", 1, LAB);
}
