//! Tables for the terminal.

use std::fmt::Write as _;

use perdura_bench::machine::Machine;
use perdura_media::Bytes;

use crate::measure::{Measured, MeasuredWay};
use crate::pages::PageLatency;

/// The text above all tables.
pub fn head(machine: &Machine, size: &str, rounds: usize, seed: u64) -> String {
    format!(
        "{}\nsize {size}, seed {seed}, {rounds} timed runs of each way in turn; \
         medians\n",
        machine,
    )
}

/// The tables of one application.
pub fn app(measured: &Measured) -> String {
    let mut text = format!(
        "== {}: {}\n{} in, {} in {} results, equal by all ways\n",
        measured.app,
        measured.about,
        Bytes(measured.input_bytes),
        Bytes(measured.result_bytes),
        measured.results
    );
    text.push_str(&calls(&measured.ways));
    let _ = writeln!(
        text,
        "{:<14}{:>10}{:>8}{:>10}{:>10}{:>8}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}  \
         finished data survive",
        "",
        "run",
        "/ dram",
        "/ ramdisk",
        "system",
        "waits",
        "malloc",
        "resident",
        "persistent",
        "capacity",
        "files",
        "mapped",
    );
    for way in &measured.ways {
        text.push_str(&line(way));
    }
    text
}

/// The calls as the paper's table has them: by what the application asks for, equal by all ways.
fn calls(ways: &[MeasuredWay]) -> String {
    let Some(way) = ways.first() else { return String::new() };
    let calls = &way.calls;
    let average = |bytes: u64, count: u64| bytes.checked_div(count).unwrap_or(0);
    format!(
        "average write {} B, average read {} B, {} reads, {} writes\n",
        average(calls.write_bytes, calls.writes),
        average(calls.read_bytes, calls.reads),
        calls.reads,
        calls.writes
    )
}

fn line(way: &MeasuredWay) -> String {
    let ratio = |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| format!("{ratio:.3}"));
    let bytes = |bytes: u64| if bytes == 0 { "-".into() } else { mib(bytes) };
    format!(
        "{:<14}{:>10}{:>8}{:>10}{:>10}{:>8}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}  {}\n",
        way.way,
        milliseconds(way.run_median_ns),
        ratio(way.of_dram),
        ratio(way.of_ram_disk),
        way.system_calls,
        way.calls.syncs,
        bytes(way.memory.malloc_peak_bytes),
        bytes(way.memory.resident_peak_bytes),
        bytes(way.usage.persistent_bytes),
        bytes(way.usage.capacity_peak_bytes),
        bytes(way.usage.file_bytes),
        bytes(way.memory.resident_mapped_bytes),
        way.survives
    )
}

/// The table of page latencies.
pub fn pages(pages: usize, found: &[PageLatency]) -> String {
    let mut text = format!(
        "== {pages} pages of 4 KiB, ns a page\n{:<16}{:>13}{:>13}{:>13}{:>18}\n",
        "", "first write", "write again", "read", "write and wait"
    );
    for page in found {
        let durable = page.durable_write_ns.map_or("-".into(), |ns| ns.to_string());
        let _ = writeln!(
            text,
            "{:<16}{:>13}{:>13}{:>13}{durable:>18}",
            page.of, page.first_write_ns, page.write_ns, page.read_ns
        );
    }
    text
}

fn milliseconds(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}
