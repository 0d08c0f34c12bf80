//! The library's beginning and end in a process.
//!
//! Settings are read by a constructor. The medium is made when the first served file is opened, so
//! that processes which have none (a shell that only starts others) cost nothing and leave the
//! recording to who has.

use std::fmt::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::*};

use rustix::fs::{Mode, OFlags};
use serde_json::json;

use crate::medium::{Medium, Refused};
use crate::say::{self, Kept};
use crate::settings::Settings;
use crate::table::PASSED;

static SETTINGS: OnceLock<Settings> = OnceLock::new();
static MEDIUM: OnceLock<Medium> = OnceLock::new();
/// Standard error as it was at the start: many programs close theirs before they end.
static REPORT: OnceLock<Kept> = OnceLock::new();
static IS_REPORTED: AtomicBool = AtomicBool::new(false);

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static AT_START: extern "C" fn() = start;

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".fini_array"))]
static AT_EXIT: extern "C" fn() = end;

extern "C" fn start() {
    let settings = match Settings::of(|name| std::env::var_os(name)) {
        Ok(settings) => settings,
        Err(wrong) => say::refuse(format_args!("{wrong}")),
    };
    if settings.report
        && let Some(kept) = Kept::of(2)
    {
        let _ = REPORT.set(kept);
    }
    let _ = SETTINGS.set(settings);
    crate::process::watch();
}

/// `None`: the constructor has not run yet.
#[inline]
pub fn settings() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// The medium, made at the first call.
pub fn medium(settings: &Settings) -> &'static Medium {
    MEDIUM.get_or_init(|| match Medium::new(settings) {
        Ok(medium) => medium,
        Err(Refused::Emulator(error)) => say::refuse(format_args!("no modelled medium: {error}")),
        Err(Refused::Recording(error)) => say::refuse(format_args!("{error}")),
    })
}

/// The medium, if there is one.
#[inline]
pub fn medium_made() -> Option<&'static Medium> {
    MEDIUM.get()
}

/// A forked child has reported nothing.
pub fn part() {
    IS_REPORTED.store(false, Relaxed);
    if let Some(medium) = medium_made() {
        medium.part();
    }
    for count in [&PASSED.opens, &PASSED.streams, &PASSED.mappings] {
        count.store(0, Relaxed);
    }
}

/// The process ends, or becomes another program.
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
    let count = |count: &std::sync::atomic::AtomicU64| count.load(Relaxed);
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

/// The program goes on after all: it could not become another.
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
