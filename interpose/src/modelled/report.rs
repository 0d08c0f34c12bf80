//! The report of a process: its requests and their times, the recording, and files that were not
//! served.

use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use rustix::fs::{Mode, OFlags};
use serde_json::json;

use crate::modelled::medium::Medium;
use crate::modelled::settings::Settings;
use crate::modelled::setup::{medium_made, settings};
use crate::say::{self, Kept};

/// Counts of opens, streams and mappings that went to the kernel although the file lies where files
/// are served.
pub struct Passed {
    pub opens: AtomicU64,
    pub streams: AtomicU64,
    pub mappings: AtomicU64,
}

pub static PASSED: Passed =
    Passed { opens: AtomicU64::new(0), streams: AtomicU64::new(0), mappings: AtomicU64::new(0) };

/// Standard error as it was at the start: many programs close theirs before they end.
static REPORT: OnceLock<Kept> = OnceLock::new();
static IS_REPORTED: AtomicBool = AtomicBool::new(false);

/// Keeps standard error for the report, if one is asked for.
pub fn prepare(settings: &Settings) {
    if settings.report
        && let Some(kept) = Kept::of(2)
    {
        let _ = REPORT.set(kept);
    }
}

/// Starts the counts of a forked child at zero.
pub fn part() {
    IS_REPORTED.store(false, Relaxed);
    if let Some(medium) = medium_made() {
        medium.part();
    }
    for count in [&PASSED.opens, &PASSED.streams, &PASSED.mappings] {
        count.store(0, Relaxed);
    }
}

/// Ends the recording and writes the report, once: the process ends, or becomes another program.
pub extern "C" fn end() {
    if IS_REPORTED.swap(true, AcqRel) {
        return;
    }
    let Some(settings) = settings() else { return };
    let steps =
        medium_made().and_then(Medium::recorder).map(|some| (some.steps(), some.cut_off_steps()));
    if let Some(Err(error)) = medium_made().map(Medium::stop_recording) {
        say::say(format_args!("{error}"));
    }
    let count = |count: &AtomicU64| count.load(Relaxed);
    let passed = [&PASSED.opens, &PASSED.streams, &PASSED.mappings].map(count);
    let has_asked = medium_made().is_some_and(|medium| medium.tally.all().requests > 0);
    if !has_asked && passed == [0; 3] {
        return;
    }
    if let Some(kept) = REPORT.get().filter(|kept| kept.is_same()) {
        kept.say(format_args!("{}", text(passed, steps)));
    }
    if let Some(path) = &settings.report_json {
        let line = format!("{}\n", json(passed, steps));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644));
        let written = file.and_then(|file| rustix::io::write(file, line.as_bytes()));
        if let Err(errno) = written {
            say::say(format_args!("{}: no report: {errno}", path.display()));
        }
    }
}

/// Lets the process report again: it could not become another program, and goes on.
pub fn go_on() {
    IS_REPORTED.store(false, Relaxed);
}

fn text(passed: [u64; 3], steps: Option<(u64, u64)>) -> String {
    let mut text = String::new();
    if let Some(medium) = medium_made() {
        let (all, in_kernel) = (medium.tally.all(), medium.tally.in_kernel.load(Relaxed));
        let (modelled, measured) = (all.modelled_ps as f64 / 1e9, all.measured_ps as f64 / 1e9);
        let of = match medium.describe() {
            Some(name) => format!(
                "{name}: modelled {modelled:.3} ms, measured {measured:.3} ms ({:+.2} %)",
                (measured / modelled.max(f64::MIN_POSITIVE) - 1.0) * 100.0
            ),
            None => format!("no medium modelled: measured {measured:.3} ms"),
        };
        let _ = write!(
            text,
            "files: requests={} bytes={} in_kernel={in_kernel} {of};",
            all.requests, all.bytes
        );
    }
    let [opens, streams, mappings] = passed;
    let _ =
        write!(text, " passed_opens={opens} passed_streams={streams} passed_mappings={mappings}");
    if let Some((steps, cut_off)) = steps {
        let _ = write!(text, " steps={} cut_off_steps={cut_off}", steps - cut_off);
    }
    text
}

fn json(passed: [u64; 3], steps: Option<(u64, u64)>) -> serde_json::Value {
    let program = std::env::args_os().next().unwrap_or_default();
    let mut all = json!({
        "pid": std::process::id(),
        "program": program.to_string_lossy(),
        "passed_opens": passed[0],
        "passed_streams": passed[1],
        "passed_mappings": passed[2],
    });
    if let Some(medium) = medium_made() {
        let name = medium.describe();
        let sums = medium.tally.all();
        all["requests"] = medium.tally.json(name.is_some());
        all["in_kernel_requests"] = json!(medium.tally.in_kernel.load(Relaxed));
        all["measured_ns"] = json!(sums.measured_ps / 1000);
        if name.is_some() {
            all["modelled_ns"] = json!(sums.modelled_ps / 1000);
            all["error"] = json!(sums.measured_ps as f64 / sums.modelled_ps.max(1) as f64 - 1.0);
        }
        all["medium"] = json!(name);
    }
    if let Some((steps, cut_off)) = steps {
        all["steps"] = json!(steps - cut_off);
        all["cut_off_steps"] = json!(cut_off);
    }
    all
}
