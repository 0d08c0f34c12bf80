//! The memory that the process takes for an analysis, as the system counts it: heap, mappings, and
//! the temporary peak when a table grows.
#![allow(clippy::unwrap_used)]

use std::sync::Mutex;

use perdura_plan::skew::{Analyzer, Options, Sampling};
use perdura_plan::trace::{Op, Record};

/// The process has one memory: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A line of the process's state, in bytes.
fn memory(line: &str) -> u64 {
    let state = std::fs::read_to_string("/proc/self/status").unwrap();
    let value = state.lines().find_map(|text| text.strip_prefix(line)).unwrap();
    value.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn forget_peak() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    memory("VmRSS")
}

fn write(time_ns: u64, page: u64, volume: u32) -> Record {
    Record { time_ns, offset_bytes: page * 4096, len_bytes: 4096, volume, op: Op::Write }
}

#[test]
fn a_page_takes_at_most_40_bytes_while_the_table_grows() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // Pages in a row, and pages scattered over all there are.
    for stride in [1u64, 0x9E37_79B9_7F4B] {
        let before = forget_peak();
        let mut analyzer = Analyzer::new(&Options::default(), 0).unwrap();
        let mut batch = Vec::with_capacity(4096);
        for pages in 1..=2_500_000u64 {
            batch.push(write(pages >> 16, pages.wrapping_mul(stride) & ((1 << 51) - 1), 0));
            if batch.len() == batch.capacity() {
                analyzer.add(&batch).unwrap();
                batch.clear();
                // Fixed: buffers, and what the allocator keeps.
                let taken = memory("VmHWM").saturating_sub(before);
                assert!(taken <= 40 * pages + (6 << 20), "{stride}: {taken} B for {pages} pages");
            }
        }
        println!("{stride}: {:.1} B a page", (memory("VmHWM") - before) as f64 / 2.5e6);
    }
}

#[test]
fn a_sampled_analysis_takes_at_most_64_mib() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = forget_peak();
    let mut options = Options::default();
    options.sampling = Some(Sampling::default());
    let mut analyzer = Analyzer::new(&options, 0).unwrap();
    // Every write a new page at a new instant, an hour's window that never ends, and more volumes
    // than have counters of their own.
    let mut batch = Vec::with_capacity(4096);
    for number in 0..4_000_000u64 {
        batch.push(write(number, number * 3, (number % 20_000) as u32));
        if batch.len() == batch.capacity() {
            analyzer.add(&batch).unwrap();
            batch.clear();
        }
    }
    assert!(analyzer.spilled_bytes() > 50 << 20, "the queue lies in a file");
    analyzer.add(&batch).unwrap();
    let all = analyzer.finish().unwrap().all().unwrap();
    let figures = all.figures(&options).unwrap();
    let taken = memory("VmHWM") - before;
    println!("{:.1} MiB", taken as f64 / f64::from(1 << 20));
    assert!(taken <= 64 << 20, "{taken} B");
    assert!(figures.touched_pages.holds(4_000_000), "{:?}", figures.touched_pages);
}
