//! Builds the workspace's test programs once, runs them on all processors, and lists skipped tests.
//!
//! Many tests measure time, so no more tests run at once than there are processors: as many
//! programs, and in each program one test after another, but for the program whose tests mostly
//! wait. A program's output is kept until it ends: a failed program's output is printed whole, and
//! of others only the tests that they skipped, with the reason.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The programs that take longest, begun first, so that no processor waits for one at the end.
const LONGEST: [&str; 10] = [
    "region: region",
    "cli: cli",
    "heap: power",
    "xtask: recipes",
    "perdura: fresh_project",
    "sim: cut",
    "lab: lab",
    "plan: sizing",
    "sim: order",
    "plan: skew_sample",
];

/// The program whose tests start servers and wait for them: they use a quarter of a processor.
const WAITING: &str = "cli: cli";

/// How many of its tests run at once.
const WAITING_AT_ONCE: usize = 3;

/// The longest that a program may run: twice as long as the longest takes beside others. A program
/// that waits for ever is ended then, and its last lines name the test.
const LONGEST_RUN: Duration = Duration::from_secs(400);

/// Settings of glibc's `malloc`: freed memory stays with the program. Tests make and drop regions
/// of megabytes thousands of times; without these settings the kernel clears their pages each time,
/// which was a third of the processor time of region's tests.
const KEEP_FREED_MEMORY: [(&str, &str); 2] =
    [("MALLOC_MMAP_THRESHOLD_", "33554432"), ("MALLOC_TRIM_THRESHOLD_", "268435456")];

/// How many of the slowest programs are shown at the end, with their times.
const SLOWEST: usize = 12;

/// A test program that cargo has built.
pub struct Program {
    path: PathBuf,
    /// The folder of the program's package, in which its tests run.
    folder: PathBuf,
}

/// How a program ended.
struct Done {
    name: String,
    took: Duration,
    output: String,
    failed: bool,
}

/// Builds, with this `cargo`, the test programs that `words` choose.
pub fn build(mut cargo: Command, words: &[&str]) -> Result<Vec<Program>> {
    let all = [&["test", "--no-run", "--message-format", "json-render-diagnostics"], words];
    let all = all.concat();
    eprintln!("+ cargo {}", all.join(" "));
    let began = Instant::now();
    let built = cargo.args(&all).stderr(Stdio::inherit()).output().context("cargo")?;
    eprintln!("  {:.0} s", began.elapsed().as_secs_f64());
    if !built.status.success() {
        bail!("cargo {} ended with {}", all.join(" "), built.status);
    }
    let messages = String::from_utf8_lossy(&built.stdout).into_owned();
    messages.lines().filter_map(|line| program(line).transpose()).collect()
}

/// Runs the programs, and prints the slowest, the skipped tests and the failures.
pub fn run(mut programs: Vec<Program>) -> Result<()> {
    let at_once = std::thread::available_parallelism()?.get();
    eprintln!("+ {} test programs, {at_once} at a time", programs.len());
    programs.sort_by_key(|program| {
        let name = program.name();
        LONGEST.iter().position(|long| *long == name).unwrap_or(LONGEST.len())
    });
    let began = Instant::now();
    let mut all = run_all(programs, at_once)?;
    eprintln!("  {:.0} s for the test programs, the slowest:", began.elapsed().as_secs_f64());
    all.sort_by_key(|done| std::cmp::Reverse(done.took));
    for done in all.iter().take(SLOWEST) {
        eprintln!("  {:6.1} s  {}", done.took.as_secs_f64(), done.name);
    }
    show_skipped(&all);
    let failed: Vec<_> = all.iter().filter(|done| done.failed).collect();
    for done in &failed {
        eprintln!("\n--- {}\n{}", done.name, done.output);
    }
    if !failed.is_empty() {
        let names: Vec<_> = failed.iter().map(|done| done.name.as_str()).collect();
        bail!("tests failed in {}", names.join(", "));
    }
    Ok(())
}

/// The test program that cargo's message names, if it names one.
fn program(line: &str) -> Result<Option<Program>> {
    let message: Value = serde_json::from_str(line).context("a message of cargo")?;
    let Some(path) = message["executable"].as_str() else { return Ok(None) };
    if message["profile"]["test"] != true {
        return Ok(None);
    }
    let manifest = Path::new(message["manifest_path"].as_str().context("no manifest_path")?);
    let folder = manifest.parent().context("a manifest without a folder")?;
    Ok(Some(Program { path: path.into(), folder: folder.to_owned() }))
}

fn run_all(programs: Vec<Program>, at_once: usize) -> Result<Vec<Done>> {
    let waiting = Mutex::new(programs.into_iter());
    let next = || waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
    let work = || -> Result<Vec<Done>> {
        let mut all = Vec::new();
        while let Some(program) = next() {
            all.push(program.run()?);
        }
        Ok(all)
    };
    let all = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(joined).collect::<Result<Vec<_>>>()
    })?;
    Ok(all.into_iter().flatten().collect())
}

impl Program {
    fn run(&self) -> Result<Done> {
        let began = Instant::now();
        let mut command = Command::new(&self.path);
        // Without --show-output, the reasons why tests were skipped would not be printed.
        let at_once = if self.name() == WAITING { WAITING_AT_ONCE } else { 1 };
        command.args(["--show-output", "--test-threads", &at_once.to_string()]);
        command.envs(KEEP_FREED_MEMORY);
        command.current_dir(&self.folder).stdin(Stdio::null());
        let (succeeded, output) =
            run_within(command, LONGEST_RUN).with_context(|| self.path.display().to_string())?;
        let (name, took) = (self.name(), began.elapsed());
        let done = Done { name, took, output, failed: !succeeded };
        eprintln!("  {} {}", if done.failed { "FAILED" } else { "ok" }, done.name);
        Ok(done)
    }

    /// The package's folder and the program's name without the hash that cargo appends.
    fn name(&self) -> String {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        let name = file.rsplit_once('-').map_or(&*file, |(name, _)| name);
        let folder = self.folder.file_name().unwrap_or_default().to_string_lossy();
        format!("{folder}: {name}")
    }
}

/// Prints the skipped tests of each program, each reason once.
fn show_skipped(all: &[Done]) {
    let mut reasons: Vec<String> = all
        .iter()
        .flat_map(|done| {
            let is_skip = |line: &&str| line.trim().to_lowercase().starts_with("skipped");
            let lines = done.output.lines().filter(is_skip);
            lines.map(|line| format!("{}: {}", done.name, line.trim()))
        })
        .collect();
    reasons.sort();
    reasons.dedup();
    if !reasons.is_empty() {
        eprintln!("\nskipped here:");
        reasons.iter().for_each(|reason| eprintln!("  {reason}"));
    }
}

/// Runs a program, but no longer than `longest`. Returns whether it succeeded, and its output, with
/// a last line that says so if it was ended.
fn run_within(mut command: Command, longest: Duration) -> Result<(bool, String)> {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let id = Pid::from_child(&child);
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let (ended, end) = channel::<()>();
        let ending = scope.spawn(move || {
            let is_late = end.recv_timeout(longest) == Err(RecvTimeoutError::Timeout);
            // The child was not waited for yet, so the number is still its own.
            if is_late { kill_process(id, Signal::KILL).map(|()| true) } else { Ok(false) }
        });
        let stdout = scope.spawn(|| read_all(stdout));
        let mut output = read_all(stderr)?;
        output.insert_str(0, &joined(stdout)?);
        // Both ends are closed, so the program has ended, or is about to.
        drop(ended);
        let was_ended = joined(ending)?;
        if was_ended {
            output.push_str(&format!("\nended, because it ran longer than {longest:?}\n"));
        }
        Ok((child.wait()?.success() && !was_ended, output))
    })
}

fn read_all(from: Option<impl Read>) -> Result<String> {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        from.read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The result of a thread; its panic goes on in this one.
pub fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_with_tests_are_run_each_in_its_packages_folder() {
        let found = |text: &str| program(text).unwrap().map(|one| (one.name(), one.folder));
        let test = r#"{"manifest_path":"/w/media/Cargo.toml","profile":{"test":true},
            "executable":"/w/target/debug/deps/perdura_media-0a1b"}"#;
        assert_eq!(found(test), Some(("media: perdura_media".into(), "/w/media".into())));
        assert_eq!(found(r#"{"executable":"/x","profile":{"test":false}}"#), None);
        assert_eq!(found(r#"{"reason":"build-finished","executable":null}"#), None);
    }

    #[test]
    fn a_program_that_waits_for_ever_is_ended_and_what_it_wrote_is_kept() {
        let run = |script: &str, longest| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            run_within(command, longest).unwrap()
        };
        assert_eq!(run("echo done", LONGEST_RUN), (true, "done\n".into()));
        let (succeeded, output) = run("echo test one; exec sleep 1000", Duration::from_millis(300));
        assert!(!succeeded && output.starts_with("test one\n") && output.contains("ran longer"));
    }
}
