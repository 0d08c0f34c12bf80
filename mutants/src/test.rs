//! The tests: their names, and one run of some of them with its limits.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use serde::{Deserialize, Serialize};

use crate::compile::Program;

/// One test: the names of its program and of itself, and how it went without a mutant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Test {
    pub program: String,
    pub name: String,
    pub cpu_ms: u64,
    pub wall_ms: u64,
    /// Keys of the mutants whose places it reaches, ascending.
    pub reached: Vec<u64>,
    pub passed: bool,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    Passed,
    Failed,
    /// Ended because it used too much time.
    Late,
}

/// A finished run.
pub struct Done {
    pub end: End,
    pub cpu: Duration,
    pub wall: Duration,
    pub output: String,
}

/// The names of a program's tests, without those that are ignored.
pub fn names(program: &Program) -> Result<Vec<String>> {
    let list = |words: &[&str]| -> Result<Vec<String>> {
        let mut command = Command::new(&program.path);
        let done = command.args(words).current_dir(&program.folder).output()?;
        ensure!(done.status.success(), "{} {words:?}", program.path.display());
        let text = String::from_utf8(done.stdout)?;
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        Ok(names.map(str::to_owned).collect())
    };
    let ignored = list(&["--list", "--format", "terse", "--ignored"])?;
    let mut all = list(&["--list", "--format", "terse"])?;
    all.retain(|name| !ignored.contains(name));
    Ok(all)
}

/// The bounds of a run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Processor time of each process, rounded down to seconds.
    pub cpu: Duration,
    /// Time of all.
    pub wall: Duration,
}

/// Runs tests of one program, one after another, with one variable of the environment.
pub fn run(
    program: &Program,
    tests: &[&str],
    (key, value): (&str, &str),
    limits: Limits,
) -> Result<Done> {
    let began = Instant::now();
    let log = tempfile(value)?;
    let mut command = Command::new("prlimit");
    command.arg(format!("--cpu={}", limits.cpu.as_secs().max(1))).arg("--core=0");
    command.arg(&program.path).args(["--exact", "--test-threads", "1"]).args(tests);
    command.env(key, value).current_dir(&program.folder).process_group(0);
    command.env("MALLOC_MMAP_THRESHOLD_", "33554432").env("MALLOC_TRIM_THRESHOLD_", "268435456");
    command.env("PROPTEST_FAILURE_PERSISTENCE", "off");
    command.stdin(Stdio::null()).stdout(log.1.try_clone()?).stderr(log.1);
    let mut child = command.spawn().context("prlimit")?;
    let pid = Pid::from_child(&child);
    let mut is_late = false;
    // The child stays a zombie until its times have been read.
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let mut pause = Duration::from_millis(1);
    while waitid(WaitId::Pid(pid), ended)?.is_none() {
        if began.elapsed() > limits.wall && !is_late {
            is_late = true;
            // It may have ended just now.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    let cpu = cpu_of(pid)?;
    // What it started and left behind.
    let _ = kill_process_group(pid, Signal::KILL);
    let status = child.wait()?;
    let output = String::from_utf8_lossy(&std::fs::read(&log.0)?).into_owned();
    std::fs::remove_file(&log.0)?;
    let was_stopped = std::os::unix::process::ExitStatusExt::signal(&status)
        .is_some_and(|signal| signal == Signal::XCPU.as_raw() || signal == Signal::KILL.as_raw());
    let end = match status.success() {
        _ if is_late || was_stopped => End::Late,
        true => End::Passed,
        false => End::Failed,
    };
    Ok(Done { end, cpu, wall: began.elapsed(), output })
}

/// Runs `work` in so many threads, each with its number, and returns the first error.
pub fn in_threads(threads: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|at| scope.spawn(move || work(at))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}

/// Locks what the threads share.
pub fn locked<T>(shared: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    shared.lock().map_err(|_| anyhow!("another thread panicked"))
}

fn tempfile(tag: &str) -> Result<(std::path::PathBuf, std::fs::File)> {
    let tag: String = tag.chars().filter(char::is_ascii_alphanumeric).collect();
    let thread = format!("{:?}", std::thread::current().id());
    let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
    let path =
        std::env::temp_dir().join(format!("mutants-run-{}-{thread}-{tag}.log", std::process::id()));
    let file = std::fs::File::create(&path)?;
    Ok((path, file))
}

/// The processor time of a zombie and of all children it waited for.
fn cpu_of(pid: Pid) -> Result<Duration> {
    let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
    let text = std::fs::read_to_string(Path::new(&path)).context(path)?;
    let fields = text.rsplit_once(") ").context("stat")?.1.split(' ');
    let ticks: u64 = fields.skip(11).take(4).filter_map(|word| word.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}
