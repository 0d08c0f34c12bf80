//! `perdura plan record`: the page writes of a live program, as a trace.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use perdura_media::{RealClock, format_duration, parse_duration};
use perdura_plan::record::{Exit, RecordError, RecordOptions, Recorded, Target, run as record};
use perdura_plan::trace::{Looks, PAGE_BYTES, Record, TraceWriter};
use perdura_warning::{State, Warnings};

use super::claim::{Claimed, claim, refuse_claimed};
use perdura_terminal::Output;
use perdura_terminal::once;
use perdura_terminal::say;
use perdura_terminal::{named, time};

/// Options of `plan record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// File for the trace, which `perdura plan trace` reads.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Time between looks at the program's memory. A page that is written many times between two
    /// looks counts once, so distinct pages are right for windows of this length and longer. Memory
    /// that is unmapped or given back before the next look is not seen; a shorter time sees more.
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    every: String,
    /// End the recording after this time, unless the program ends before; the program goes on.
    #[arg(long = "for", value_name = "TIME")]
    length: Option<String>,
    /// Record the running processes with these numbers, separated by commas, instead of a program.
    /// Each is stopped once, for some tens of microseconds. What they write in the last interval
    /// before their end is not seen.
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with = "program")]
    pid: Vec<i32>,
    /// Also record the processes that the program starts, each from the look that first sees it.
    #[arg(long)]
    children: bool,
    /// The program to record, behind `--`, with its arguments.
    #[arg(value_name = "PROGRAM", last = true, required_unless_present = "pid")]
    program: Vec<OsString>,
}

pub fn run(args: &RecordArgs) -> Result<ExitCode> {
    let (target, options) = resolve(args)?;
    // Before any thread is started, which would take the signals.
    let warnings = Warnings::by_signals()?;
    let output = Output::of("output", Some(&args.output))?;
    if output.is_some_and(|output| output.is_stdout()) {
        bail!("--output -: standard output is the program's own; give a file");
    }
    let mut kept = Kept::new(&args.output, options.every);
    // The file is claimed when there is something to write. To look now as well spares the start of
    // a program that could not be recorded.
    refuse_claimed(&args.output).with_context(|| kept.name())?;
    let stop = stop_at(warnings)?;
    let recorded = record(&target, &options, &RealClock, &stop, &mut |names, records, looks| {
        // An error that is passed on shows its outermost context only, and the user must put the
        // cause right.
        kept.take(names, records, looks).map_err(|error| io::Error::other(once(&error)))
    });
    let (recorded, seen) = kept.end(recorded)?;
    show(args, options.every, &recorded, &seen);
    Ok(match recorded.exit {
        Some(Exit::Code(code)) => ExitCode::from(code as u8),
        // The exit code that a shell gives a program which a signal ended.
        Some(Exit::Signal(signal)) => ExitCode::from((128 + signal) as u8),
        None => ExitCode::SUCCESS,
    })
}

fn resolve(args: &RecordArgs) -> Result<(Target, RecordOptions)> {
    let every: Duration = named("every", &args.every, parse_duration(&args.every))?;
    if every.is_zero() {
        bail!("--every {}: expected more than 0", args.every);
    }
    let length = time("for", &args.length)?;
    for (at, pid) in args.pid.iter().enumerate() {
        if *pid <= 0 {
            bail!("--pid {pid}: expected the number of a process");
        }
        if args.pid[..at].contains(pid) {
            bail!("--pid {pid}: given twice");
        }
    }
    let target = match args.pid.as_slice() {
        [] => Target::Program(args.program.clone()),
        pids => Target::Processes(pids.to_vec()),
    };
    Ok((target, RecordOptions { every, length, children: args.children }))
}

/// The volumes and page writes that went into the trace.
#[derive(Debug, Default)]
struct Seen {
    names: Vec<String>,
    /// The page writes of each volume.
    page_writes: Vec<u64>,
}

/// The file of the trace. Its old content stays until there is something to write.
struct Kept<'a> {
    path: &'a Path,
    every_ns: u64,
    trace: Option<TraceWriter<File>>,
    seen: Seen,
}

impl<'a> Kept<'a> {
    fn new(path: &'a Path, every: Duration) -> Self {
        let every_ns = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX);
        Self { path, every_ns, trace: None, seen: Seen::default() }
    }

    fn name(&self) -> String {
        format!("--output {}", self.path.display())
    }

    fn create(&self) -> Result<TraceWriter<File>> {
        let looks = Looks { every_ns: self.every_ns, longest_ns: 0 };
        let Claimed { file, is_new } = claim(self.path).with_context(|| self.name())?;
        TraceWriter::of_looks(file, looks).with_context(|| self.name()).inspect_err(|_| {
            if is_new {
                // An empty file would be taken for a trace. That it cannot be removed either would
                // say less than the first error.
                let _ = std::fs::remove_file(self.path);
            }
        })
    }

    /// Writes the page writes that a look found.
    fn take(&mut self, names: &[String], records: &[Record], looks: Looks) -> Result<()> {
        let trace = match self.trace.take() {
            Some(trace) => trace,
            None => self.create()?,
        };
        let (trace, seen) = (self.trace.insert(trace), &mut self.seen);
        for name in &names[seen.names.len()..] {
            trace.volume(name)?;
            seen.names.push(name.clone());
            seen.page_writes.push(0);
        }
        for record in records {
            trace.write(record)?;
            seen.page_writes[record.volume as usize] += record.pages().1;
        }
        trace.looked(looks.longest_ns)?;
        // If this process is killed, the trace ends here.
        Ok(trace.flush()?)
    }

    /// Ends the trace, also after a recording that failed, so that its records can be read.
    fn end(mut self, recorded: Result<Recorded, RecordError>) -> Result<(Recorded, Seen)> {
        let name = self.name();
        let trace = match (self.trace.take(), recorded.is_ok()) {
            (Some(trace), _) => trace,
            (None, true) => self.create()?,
            (None, false) => return Ok((recorded?, self.seen)),
        };
        let ended = trace.finish().with_context(|| name.clone());
        let how = if ended.is_err() { ", with --skip-bad 1" } else { "" };
        let recorded = recorded.with_context(|| {
            format!(
                "{name}: the recording ended early; the program goes on, and what came before can \
                 be read{how}"
            )
        })?;
        ended?;
        Ok((recorded, self.seen))
    }
}

/// A flag that the first signal sets. The recorded program, if it gets a signal too, is not kept
/// from acting on it.
fn stop_at(mut warnings: Warnings) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&stop);
    let watch = move || {
        warnings.wait_for(State::Ending);
        set.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(watch)
        .context("thread for signals")?;
    Ok(stop)
}

fn show(args: &RecordArgs, every: Duration, recorded: &Recorded, seen: &Seen) {
    let whole = Duration::from_nanos(recorded.duration_ns);
    let share = recorded.looking_ns as f64 / recorded.duration_ns.max(1) as f64 * 100.0;
    say(format_args!(
        "recorded for {}: {} looks at the memory, {} apart, which took {share:.1} % of the time; \
         {} page writes",
        format_duration(whole),
        recorded.looks,
        format_duration(every),
        recorded.page_writes,
    ));
    let mut order: Vec<usize> = (0..seen.names.len()).collect();
    order.sort_by_key(|volume| std::cmp::Reverse(seen.page_writes[*volume]));
    for volume in order {
        say(format_args!("{:>14}  {}", seen.page_writes[volume], seen.names[volume]));
    }
    say(format_args!(
        "a page written many times between two looks counts once: distinct pages are right for \
         windows from {} on; what is unmapped or given back before the next look is not seen; a \
         shorter --every sees more",
        format_duration(every)
    ));
    for note in notes(recorded) {
        say(note);
    }
    say(format_args!("next: perdura plan trace {}", args.output.display()));
}

/// Notes on what the figures leave out.
fn notes(recorded: &Recorded) -> Vec<String> {
    let mut notes = Vec::new();
    if recorded.late_looks > 0 {
        notes.push(format!(
            "{} looks were left out, as those before took longer than the time between them: \
             windows are right from {} on",
            recorded.late_looks,
            format_duration(Duration::from_nanos(recorded.longest_ns))
        ));
    }
    if recorded.huge_page_writes > 0 {
        notes.push(format!(
            "{} page writes are of fresh huge pages ({} each), which count whole when they are \
             first written",
            recorded.huge_page_writes,
            perdura_media::Bytes(512 * PAGE_BYTES)
        ));
    }
    if recorded.children_left_out > 0 {
        notes.push(format!(
            "at least {} children were not recorded; --children records them",
            recorded.children_left_out
        ));
    }
    if recorded.children_failed > 0 {
        notes.push(format!(
            "at least {} children, or programs that a process became, could not be recorded",
            recorded.children_failed
        ));
    }
    if recorded.refused_mappings > 0 {
        notes.push(format!(
            "{} mappings could not be recorded: the program has a userfaultfd for them, or the \
             kernel cannot protect them",
            recorded.refused_mappings
        ));
    }
    if recorded.unseen_ends > 0 {
        notes.push(format!(
            "{} processes ended or became another program between two looks: what they wrote in \
             the last {} before that, at most, is not in the trace; a program started with \
             `perdura plan record -- PROGRAM` is looked at when it ends",
            recorded.unseen_ends,
            format_duration(Duration::from_nanos(recorded.unseen_ns))
        ));
    }
    if recorded.execs > 0 {
        notes.push(format!("{} times a process became another program", recorded.execs));
    }
    notes
}
