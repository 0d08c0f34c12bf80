//! `perdura plan trace`: traces in, budgets and batteries out.

mod args;
mod emit;
mod resolve;
mod show;
mod stdin;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};
use perdura_plan::page::trace_page;
use perdura_plan::report::{Progress, Question, TraceReport};

use serde::Serialize;

pub use args::TraceArgs;
use emit::Provision;
use resolve::Resolved;

use perdura_terminal::LateBar;
use perdura_terminal::Output;

pub fn run(args: &TraceArgs) -> Result<ExitCode> {
    let files = stdin::placed(&args.files)?;
    let resolved = resolve::of(args)?;
    let traces = traces(&files, args.reading.together);
    if args.emit.is_some() && traces.len() != 1 {
        bail!(
            "--emit: settings follow from one trace, {} are given; give one, or --together",
            traces.len()
        );
    }
    // Before the work, because nobody wants to wait for a plan that cannot be written.
    let json = Output::of("json", args.json.as_deref())?;
    let html = Output::of("html", args.html.as_deref())?;
    let emit = Output::of("emit", args.emit.as_deref())?;
    let outputs: Vec<_> = [&json, &html, &emit].into_iter().flatten().collect();
    Output::keep_apart(&outputs, &files)?;
    stdin::keep(&args.files, resolved.question.sizing.is_some())?;
    let reports = report_all(&traces, &resolved.question, resolved.jobs)?;
    // A plan that cannot be stored is shown all the same, and the other files are written.
    if !outputs.iter().any(|output| output.is_stdout()) {
        reports.iter().for_each(show::report);
    }
    let written = [
        json.as_ref().map(|json| json.write(plan(&reports)?.as_bytes())),
        html.as_ref().map(|html| html.write(trace_page(&reports).as_bytes())),
        emit.as_ref().map(|emit| emit_settings(emit, &reports, &resolved)),
    ];
    written.into_iter().flatten().collect::<Result<()>>()?;
    Ok(ExitCode::SUCCESS)
}

fn plan(reports: &[TraceReport]) -> Result<String> {
    let plan = Plan { version: env!("CARGO_PKG_VERSION"), traces: reports };
    Ok(serde_json::to_string_pretty(&plan)? + "\n")
}

/// The JSON that `plan trace` writes.
#[derive(Serialize)]
struct Plan<'r> {
    version: &'static str,
    traces: &'r [TraceReport],
}

/// A trace: its name and its files.
type Trace = (String, Vec<PathBuf>);

fn traces(files: &[PathBuf], together: bool) -> Vec<Trace> {
    let name = |path: &Path| path.display().to_string();
    if together && files.len() > 1 {
        let names: Vec<_> = files.iter().map(|path| name(path)).collect();
        return vec![(names.join(" + "), files.to_vec())];
    }
    files.iter().map(|path| (name(path), vec![path.clone()])).collect()
}

/// Reports on all traces, several at a time, and returns the reports in the order of the traces. If
/// several fail, the error is that of the first in this order.
fn report_all(traces: &[Trace], question: &Question, jobs: usize) -> Result<Vec<TraceReport>> {
    let board = Board::new(traces.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some((name, paths)) = traces.get(at) else { return done };
            done.push((at, question.report(name, paths, &|progress| board.tell(at, progress))));
        }
    };
    let mut reports: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.clamp(1, traces.len())).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    board.bar.finish();
    reports.sort_by_key(|(at, _)| *at);
    reports.into_iter().map(|(_, report)| Ok(report?)).collect()
}

/// One bar for the progress on all traces.
struct Board {
    bar: LateBar,
    each: Mutex<Vec<Option<Progress>>>,
}

impl Board {
    fn new(traces: usize) -> Self {
        Self { bar: LateBar::new("reading"), each: Mutex::new(vec![None; traces]) }
    }

    fn tell(&self, at: usize, progress: Progress) {
        let mut each = self.each.lock().unwrap_or_else(PoisonError::into_inner);
        each[at] = Some(progress);
        let begun = || each.iter().flatten();
        let done_bytes = begun().map(|progress| progress.done_bytes).sum();
        let total_bytes: u64 = begun().map(|progress| progress.total_bytes.unwrap_or(0)).sum();
        let records: u64 = begun().map(|progress| progress.records).sum();
        self.bar.bytes_of(progress.step, records, done_bytes, total_bytes.max(done_bytes));
    }
}

fn emit_settings(emit: &Output, reports: &[TraceReport], resolved: &Resolved) -> Result<()> {
    // There is one report, because several traces were refused before the work.
    for report in reports {
        let Some(sizing) = &report.sizing else {
            bail!("--emit: nothing is written in {}: there is no budget to choose", report.trace);
        };
        emit.write(Provision { trace: &report.trace, sizing, resolved }.toml()?.as_bytes())?;
    }
    Ok(())
}
