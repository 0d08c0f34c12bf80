//! The rules of waiting, on the profile of a published server.

use super::super::super::result::bandwidth;
use super::super::super::run::PartRun;
use super::super::super::workload::parse;
use super::super::simulate;
use super::*;

fn ran(args: &str) -> PartRun {
    let benchmark = parse("w.yaml", &format!("b:\n  args: {{{args}}}\n")).unwrap().remove(0);
    let config = benchmark.parts[0].cells[0].config.clone();
    let system = System::find("apache-256").unwrap();
    assert!(system.server.is_some());
    simulate(&system, &[(&config, None)]).runs.remove(0)
}

fn million_per_s(run: &PartRun) -> f64 {
    run.operations() as f64 * 1e3 / run.ns as f64
}

fn chain(operations: &str, threads: u64) -> f64 {
    let args = format!(
        "memory_range: 1G, exec_mode: custom, custom_operations: '{operations}', \
         number_threads: {threads}, number_operations: 20000"
    );
    million_per_s(&ran(&args))
}

#[test]
fn chains_overlap_as_far_as_the_window_reaches() {
    let system = System::find("apache-256").unwrap();
    let read_ns = system.server.unwrap().memory.read_ns;
    let (one, three) = (1e3 / chain("r_64", 1), 1e3 / chain("r_64,r_64,r_64", 1));
    assert!(one < 0.7 * read_ns && one > 0.3 * read_ns, "{one} of {read_ns}");
    // Reads that depend on each other take their times one after the other, less what overlaps with
    // the next chain.
    assert!(three > 1.3 * read_ns && three < 3.0 * read_ns, "{three} of {read_ns}");
}

#[test]
fn threads_that_share_a_core_share_its_window() {
    let (alone, shared) = (chain("r_64", 18), chain("r_64", 36));
    assert!(shared < 1.3 * alone, "{shared} {alone}");
}

#[test]
fn a_second_flush_of_a_line_waits_until_it_is_back() {
    let (once, twice) = (chain("r_64,w_64_cache", 1), chain("r_64,w_64_cache,w_64_cache", 1));
    assert!(twice < 0.85 * once, "{twice} {once}");
}

#[test]
fn a_rate_is_kept_and_no_more() {
    let args = "memory_range: 1G, exec_mode: custom, custom_operations: r_64, number_threads: 4, \
                number_operations: 4000, rate_limit: 1000000";
    let found = million_per_s(&ran(args));
    assert!((found - 1.0).abs() < 0.01, "{found}");
}

#[test]
fn writes_that_leave_the_caches_line_by_line_cost_a_granule_each() {
    let with = |persist: &str| {
        bandwidth(&ran(&format!(
            "memory_range: 1G, exec_mode: random, operation: write, access_size: 256, \
             persist_instruction: {persist}, number_threads: 32, number_operations: 30000"
        )))
    };
    let (streamed, left) = (with("nocache"), with("none"));
    assert!(streamed > 2.5 * left, "{streamed} {left}");
}
