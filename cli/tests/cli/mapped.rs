//! Programs that nobody here wrote, with mapped files in bounded-dirty memory: `perdura run --dir`.

mod edges;
mod executed;
mod written;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::guarding::*;
use crate::running::*;

const PYTHON: &str = "/usr/bin/python3";
/// A budget far below what the programs store.
const OPTIONS: [&str; 8] =
    ["--size", "64MiB", "--budget", "1MiB", "--grace", "8s", "--checkpoint", "100ms"];

/// Whether a process may track others here, and `module` of Python, if one is named, is there.
fn can_run(module: &str) -> bool {
    let has_module = module.is_empty()
        || Command::new(PYTHON)
            .args(["-c", &format!("import {module}")])
            .output()
            .is_ok_and(|output| output.status.success());
    let setting = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd");
    let may = rustix::process::geteuid().is_root() || setting.is_ok_and(|text| text.trim() == "1");
    if !has_module || !may {
        eprintln!("SKIPPED: no {PYTHON} with {module:?}, or userfaultfd is refused");
    }
    has_module && may
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/mapped").join(name)
}

fn run(dir: &Path, program: &[&str]) -> Command {
    run_with(dir, &[], program)
}

fn run_with(dir: &Path, options: &[&str], program: &[&str]) -> Command {
    run_exactly(dir, &[&OPTIONS[..], options].concat(), program)
}

fn run_exactly(dir: &Path, options: &[&str], program: &[&str]) -> Command {
    // A test's dependency, so it lies where the test does.
    let library = std::env::current_exe().unwrap().with_file_name("libperdura_interpose.so");
    let mut command = Command::new(PERDURA);
    command.args(["run", "--dir"]).arg(dir).args(options).arg("--").args(program);
    command.current_dir(dir).env("PERDURA_LOG", "warn").env("PERDURA_INTERPOSE", library);
    command.stdin(Stdio::null());
    command
}

fn output(dir: &Path, program: &[&str]) -> Output {
    let output = run(dir, program).output().unwrap();
    let (said, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{program:?}: {}: {said}{error}", output.status);
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Nothing but files is left of a run.
fn is_tidy(dir: &Path) -> bool {
    [".perdura", ".perdura-written"].iter().all(|name| !dir.join(name).exists())
}

#[test]
fn every_call_finds_what_another_has_stored_and_the_files_are_complete_afterwards() {
    if !can_run("mmap") {
        return;
    }
    let dir = TestDir::new();
    let script = script("calls.py");
    let output = output(dir.path(), &[PYTHON, script.to_str().unwrap()]);
    assert_eq!(text(&output.stdout), "all right\n");
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let before = read("before");
    assert_eq!((before.len(), &before[4..7]), ((1 << 20) + 8, &b"new"[..]));
    for (at, bytes) in [
        (100, &b"abc"[..]),
        (105, b"xyz"),
        (4096, b"both"),
        (4196, &[0, 1, 2]),
        (50_000, b"written"),
        (300_000, b"kkk"),
        (310_000, b"other"),
        (320_000, b"daemon"),
        ((1 << 20) - 3, b"e\0\0appended"),
    ] {
        assert_eq!(&before[at..at + bytes.len()], bytes, "at {at}");
    }
    assert_eq!(&read("renamed")[..5], b"made\0");
    assert_eq!(read("emptied"), b"again");
    assert_eq!(&read("below/deep/file")[4090..], b"bottom");
    assert!(!dir.path().join("gone").exists() && !dir.path().join("made").exists());
    assert!(is_tidy(dir.path()));
}

#[test]
fn who_uses_a_file_at_the_same_time_loses_nothing_and_every_name_has_it_afterwards() {
    if !can_run("mmap") {
        return;
    }
    let dir = TestDir::new();
    let script = script("at_once.py");
    let output = output(dir.path(), &[PYTHON, script.to_str().unwrap()]);
    assert_eq!(text(&output.stdout), "all right\n");
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    for (name, bytes) in [
        ("linked", &b"linked\0"[..]),
        ("linked-too", b"linked\0"),
        ("later", b"late\0"),
        ("named", b"unnamed\0"),
        ("moved-by-mv", b"moved\0"),
    ] {
        assert_eq!(read(name)[..bytes.len()], *bytes, "{name}");
    }
    for name in ["late", "moved", "removed"] {
        assert!(!dir.path().join(name).exists(), "{name}");
    }
    let huge = read("huge");
    assert_eq!((huge.len(), &huge[64 * 4096..]), (64 * 4096 + 4, &b"near"[..]));
    assert!(huge[..64 * 4096].iter().all(|byte| *byte == 0));
    assert_eq!(read("append-processes").len(), 4096 + 4 * 500 * 64);
    assert!(is_tidy(dir.path()));
}

#[test]
fn a_signal_handler_may_write_while_its_thread_does() {
    let dir = TestDir::new();
    let program = dir.path().join("handler");
    let compiled = Command::new("cc").arg("-o").arg(&program).arg(script("handler.c")).output();
    if !can_run("") || compiled.is_err() {
        eprintln!("SKIPPED: no C compiler, or userfaultfd is refused; install gcc");
        return;
    }
    let compiled = compiled.unwrap();
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let output = output(dir.path(), &["timeout", "30", program.to_str().unwrap()]);
    assert_eq!(text(&output.stdout), "all right\n");
}

/// A program that commits to LMDB until it is killed.
struct Writer {
    child: Child,
    /// What it says, read by a thread so that it never waits for the test.
    commits: Receiver<u64>,
    /// The last commit that was said to be done.
    said: u64,
}

impl Writer {
    fn start(dir: &Path, more: &[&str]) -> Self {
        Self::start_with(dir, &[], more)
    }

    fn start_with(dir: &Path, options: &[&str], more: &[&str]) -> Self {
        let (script, db) = (script("lmdb_writer.py"), dir.join("db"));
        let program = [PYTHON, script.to_str().unwrap(), db.to_str().unwrap()];
        Self::of(run_with(dir, options, &[&program[..], more].concat()))
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (say, commits) = channel();
        std::thread::spawn(move || {
            let numbers = lines.map_while(|line| line.ok()?.parse().ok());
            numbers.for_each(|commit| say.send(commit).unwrap_or(()));
        });
        Self { child, commits, said: 0 }
    }

    /// Reads until this commit is said to be done.
    fn until(&mut self, commit: u64) {
        while self.next().expect("the program ended") < commit {}
    }

    fn next(&mut self) -> Option<u64> {
        self.said = self.commits.recv().ok()?;
        Some(self.said)
    }

    /// The last commit that was said to be done, when the program has ended.
    fn last(&mut self) -> u64 {
        while self.next().is_some() {}
        self.said
    }
}

/// The program that `perdura run` has started.
fn program_of(host: u32) -> u32 {
    let path = format!("/proc/{host}/task/{host}/children");
    let children = std::fs::read_to_string(path).unwrap();
    let is_python = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().starts_with("python")
    };
    children.split_whitespace().map(|pid| pid.parse().unwrap()).find(is_python).unwrap()
}

/// How many processes have this word on their command lines.
fn programs_with(word: &str) -> usize {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.split(|byte| *byte == 0).any(|it| it == word.as_bytes())).count()
}

/// The last commit that LMDB itself finds, in the ordinary file.
fn found(dir: &Path) -> u64 {
    let output =
        Command::new(PYTHON).arg(script("lmdb_check.py")).arg(dir.join("db")).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).trim().parse().unwrap()
}

#[test]
fn lmdb_loses_nothing_when_it_is_killed() {
    if !can_run("lmdb") {
        return;
    }
    let dir = TestDir::new();
    let mut writer = Writer::start(dir.path(), &[]);
    writer.until(8_000);
    signal_process(program_of(writer.child.id()), "KILL");
    let last = writer.last();
    assert_eq!(writer.child.wait().unwrap().code(), Some(128 + 9));
    assert!(is_tidy(dir.path()));
    let found = found(dir.path());
    assert!(found >= last && last >= 8_000, "{found} of {last}");
}

#[test]
fn lmdb_loses_nothing_when_the_host_is_killed_and_the_holder_is_warned() {
    if !can_run("lmdb") {
        return;
    }
    for is_warned in [false, true] {
        let dir = TestDir::new();
        let region = dir.path().join(".perdura");
        let mut writer = Writer::start(dir.path(), &[]);
        writer.until(8_000);
        writer.child.kill().unwrap();
        writer.child.wait().unwrap();
        let last = writer.last();
        if is_warned {
            let holder = holder_of(&region).unwrap();
            signal_process(holder, "TERM");
            wait_until("the holder's end", || holder_of(&region).is_none());
        }
        output(dir.path(), &["true"]);
        assert!(is_tidy(dir.path()));
        let found = found(dir.path());
        assert!(found >= last && last >= 8_000, "{found} of {last}, warned: {is_warned}");
    }
}

#[test]
fn a_guard_keeps_what_a_killed_run_leaves_and_stores_wait_while_it_is_lost() {
    if !can_run("lmdb") {
        return;
    }
    let (dir, mut guard) = (TestDir::new(), GuardProcess::start());
    guard.again_with(&["--grace", "10s"]);
    let socket = guard.socket.to_str().unwrap().to_owned();
    let options = ["--guard", &socket, "--power-settle", "100ms"];
    let mut writer = Writer::start_with(dir.path(), &options, &[]);
    writer.until(2_000);
    guard.kill_both();
    std::thread::sleep(Duration::from_secs(1));
    while writer.commits.try_recv().is_ok() {}
    std::thread::sleep(Duration::from_millis(300));
    assert!(writer.commits.try_recv().is_err(), "stores go on without a guard");
    guard.again_with(&["--grace", "10s"]);
    writer.next().expect("stores go on");
    // The guard, and nobody else, has what is not saved when the run is killed.
    writer.child.kill().unwrap();
    writer.child.wait().unwrap();
    let last = writer.last();
    assert_eq!(holder_of(&dir.path().join(".perdura")), None);
    let recovered = run_with(dir.path(), &options, &["true"]).output().unwrap();
    assert!(recovered.status.success(), "{}", text(&recovered.stderr));
    assert!(is_tidy(dir.path()));
    let found = found(dir.path());
    assert!(found == last || found == last + 1, "{found} of {last}");
}

#[test]
fn while_the_power_is_low_stores_wait_and_nothing_is_lost_without_another_warning() {
    if !can_run("lmdb") {
        return;
    }
    let (dir, place) = (TestDir::new(), tempfile::tempdir().unwrap());
    let power = place.path().join("power");
    let source = format!("file:{}", power.display());
    let options = ["--warning", &source, "--power-settle", "100ms"];
    let mut writer = Writer::start_with(dir.path(), &options, &[]);
    writer.until(500);
    let low = || {
        std::fs::write(&power, "low").unwrap();
        // It is acted on within a second.
        std::thread::sleep(Duration::from_secs(1));
    };
    low();
    std::fs::write(&power, "steady").unwrap();
    while writer.commits.try_recv().is_ok() {}
    writer.next().expect("stores go on");
    low();
    cut_the_power(&mut writer, dir.path());
    let last = writer.last();
    output(dir.path(), &["true"]);
    let found = found(dir.path());
    assert!(found == last || found == last + 1, "{found} of {last}");
}

/// Ends the holder and the run, whose program stops before and says nothing that is not saved.
fn cut_the_power(writer: &mut Writer, dir: &Path) {
    let holder = holder_of(&dir.join(".perdura")).unwrap();
    signal_process(writer.child.id(), "STOP");
    signal_process(holder, "KILL");
    writer.child.kill().unwrap();
    writer.child.wait().unwrap();
}

#[test]
fn a_loss_of_power_without_warning_leaves_a_sound_database_as_of_a_checkpoint() {
    if !can_run("lmdb") {
        return;
    }
    let dir = TestDir::new();
    let mut writer = Writer::start(dir.path(), &[]);
    writer.until(2_000);
    // Checkpoints are made every 0.1 s; what was stored 3 s ago is in one, on a busy machine, too.
    let began = Instant::now();
    let mut sure = 0;
    while began.elapsed() < Duration::from_millis(3_400) {
        let commit = writer.next().unwrap();
        if began.elapsed() < Duration::from_millis(400) {
            sure = commit;
        }
    }
    cut_the_power(&mut writer, dir.path());
    let last = writer.last();
    output(dir.path(), &["true"]);
    let found = found(dir.path());
    assert!(found >= sure && found <= last + 1, "{found} of {sure} to {last}");
}

#[test]
fn a_warning_is_kept_to_although_the_program_does_not_end_by_itself() {
    if !can_run("lmdb") {
        return;
    }
    let dir = TestDir::new();
    let mut writer = Writer::start(dir.path(), &["stubborn"]);
    writer.until(8_000);
    let warned = Instant::now();
    signal_process(writer.child.id(), "TERM");
    let last = writer.last();
    assert_eq!(writer.child.wait().unwrap().code(), Some(128 + 9));
    assert!(warned.elapsed() < Duration::from_secs(8), "{:?}", warned.elapsed());
    assert!(is_tidy(dir.path()));
    let found = found(dir.path());
    assert!(found >= last && last >= 8_000, "{found} of {last}");
}

#[test]
fn a_warning_is_kept_to_when_only_a_program_that_was_left_behind_runs() {
    if !can_run("lmdb") {
        return;
    }
    let dir = TestDir::new();
    let (script, db) = (script("lmdb_writer.py"), dir.path().join("db"));
    let line = format!("{PYTHON} {} {} stubborn & sleep 2", script.display(), db.display());
    let mut writer = Writer::of(run(dir.path(), &["bash", "-c", &line]));
    // The program itself ends after two seconds, when the other one has mapped its files.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        writer.next().expect("the program that was left behind ended");
    }
    let warned = Instant::now();
    signal_process(writer.child.id(), "TERM");
    let last = writer.last();
    assert_eq!(writer.child.wait().unwrap().code(), Some(0));
    assert!(warned.elapsed() < Duration::from_secs(8), "{:?}", warned.elapsed());
    let found = found(dir.path());
    assert!(found >= last && is_tidy(dir.path()), "{found} of {last}");
}

#[test]
fn numpy_tdb_and_rrdtool_find_what_they_have_stored_and_it_passes_their_own_checks() {
    if !can_run("numpy") || !can_run("tdb") {
        return;
    }
    let dir = TestDir::new();
    let numpy = "import numpy as np\n\
                 a = np.memmap('a', dtype='int64', mode='w+', shape=(1000, 1000))\n\
                 a[:] = np.arange(1000000).reshape(1000, 1000)\n\
                 a[5, 5] = -1\n\
                 a.flush()\n\
                 print(np.memmap('a', dtype='int64', mode='r').sum())";
    assert_eq!(text(&output(dir.path(), &[PYTHON, "-c", numpy]).stdout), "499999494994\n");
    let words = std::fs::read(dir.path().join("a")).unwrap();
    let words = words.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap()));
    assert_eq!(words.sum::<i64>(), 499_999_494_994);

    let tdb = "import os, tdb\n\
               t = tdb.open('t.tdb', 0, 0, os.O_RDWR | os.O_CREAT, 0o600)\n\
               for i in range(20000): t[b'k%d' % i] = b'v%d' % i * 10\n\
               for i in range(0, 20000, 2): t.delete(b'k%d' % i)\n\
               print(len(list(t.keys())))";
    assert_eq!(text(&output(dir.path(), &[PYTHON, "-c", tdb]).stdout), "10000\n");
    let tool = Command::new("sh")
        .args(["-c", "printf 'check\\nquit\\n' | tdbtool t.tdb"])
        .current_dir(dir.path())
        .output();
    let said = text(&tool.unwrap().stdout);
    assert!(said.contains("integrity is OK and has 10000 records"), "{said}");

    let rrd = "rrdtool create r.rrd --start 1000000000 --step 60 DS:x:GAUGE:120:0:U \
               RRA:AVERAGE:0.5:1:1000 && for i in $(seq 1 50); do rrdtool update r.rrd \
               $((1000000000+i*60)):$i || exit 1; done";
    output(dir.path(), &["bash", "-c", rrd]);
    let mut last = Command::new("rrdtool");
    let last = last.args(["lastupdate", "r.rrd"]).current_dir(dir.path()).output();
    let said = text(&last.unwrap().stdout);
    assert!(said.ends_with("1000003000: 50\n"), "{said}");
    assert!(is_tidy(dir.path()));
}

const STORES_TO_A_FILE: &str = "
import ctypes, mmap
allocate = ctypes.CDLL(None).malloc
allocate.restype = ctypes.c_void_p
assert allocate(30_000_000)
with open('file', 'w+b') as file:
    file.truncate(8192)
    memory = mmap.mmap(file.fileno(), 8192)
    memory[5000:5005] = b'bytes'
    memory.flush()
";

#[test]
fn a_program_has_its_heap_in_capacity_memory_and_its_files_in_durable_memory_at_once() {
    if !can_run("mmap") {
        return;
    }
    let dir = TestDir::new();
    let words = [PYTHON, "-c", STORES_TO_A_FILE];
    let output = run_with(dir.path(), &["--report"], &words).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let reported = said.split("capacity_bytes=").nth(1).unwrap_or_else(|| panic!("{said}"));
    let bytes: u64 = reported.split(' ').next().unwrap().parse().unwrap();
    assert!(bytes > 20_000_000, "{bytes} bytes of heap");
    assert_eq!(&std::fs::read(dir.path().join("file")).unwrap()[5000..5005], b"bytes");
}

#[test]
fn a_program_that_brings_its_own_allocator_keeps_it() {
    let jemalloc = Path::new("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2");
    if !can_run("mmap") || !jemalloc.exists() {
        return;
    }
    let dir = TestDir::new();
    let mut command = run(dir.path(), &[PYTHON, "-c", STORES_TO_A_FILE]);
    command.env("LD_PRELOAD", jemalloc).env("MALLOC_CONF", "stats_print:true");
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let allocated = said.split("\nAllocated: ").skip(1);
    let bytes = allocated.filter_map(|rest| rest.split(',').next()?.parse::<u64>().ok()).max();
    assert!(bytes > Some(20_000_000), "{bytes:?} bytes by jemalloc: {said:.2000}");
    assert_eq!(&std::fs::read(dir.path().join("file")).unwrap()[5000..5005], b"bytes");
}

#[test]
fn what_cannot_be_run_is_refused_and_nothing_is_left_behind() {
    let dir = TestDir::new();
    let refused = |command: &mut Command, why: &str| {
        let output = command.output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{why:?} is missing in: {said}");
    };
    refused(run(dir.path(), &["true"]).env("PERDURA_INTERPOSE", "/nowhere"), "/nowhere");
    refused(&mut run(dir.path(), &["no-such-program-anywhere"]), "no-such-program-anywhere");
    let missing = dir.path().join("missing");
    let mut command = Command::new(PERDURA);
    refused(command.args(["run", "--dir"]).arg(&missing).args(["--", "true"]), "missing");
    let mut command = Command::new(PERDURA);
    refused(command.args(["run", "--grace", "1s", "--", "true"]), "--dir");
    assert!(is_tidy(dir.path()));
    if !can_run("") {
        return;
    }
    // Two at once.
    let mut first = run(dir.path(), &["sleep", "60"]);
    let mut first = first.spawn().unwrap();
    wait_until("the first run", || holder_of(&dir.path().join(".perdura")).is_some());
    refused(&mut run(dir.path(), &["true"]), "in use");
    signal_process(first.id(), "TERM");
    assert_eq!(first.wait().unwrap().code(), Some(128 + 15));
    assert!(is_tidy(dir.path()));
    // The program's own exit code.
    assert_eq!(run(dir.path(), &["sh", "-c", "exit 7"]).status().unwrap().code(), Some(7));
}

#[test]
fn what_forked_children_store_is_flushed_when_only_the_ledger_knows_of_it() {
    if !can_run("mmap") {
        return;
    }
    let dir = TestDir::new();
    let region = dir.path().join(".perdura");
    let script = script("forked.py");
    let mut child = run(dir.path(), &[PYTHON, script.to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let generations = [b'c', b'g'].map(|it| it.to_string());
    assert_eq!([lines.next().unwrap().unwrap(), lines.next().unwrap().unwrap()], generations);
    child.kill().unwrap();
    child.wait().unwrap();
    let holder = holder_of(&region).unwrap();
    signal_process(holder, "TERM");
    wait_until("the holder's end", || holder_of(&region).is_none());
    // Nobody goes on without a host.
    let name = script.to_str().unwrap();
    wait_until("the end of all", || programs_with(name) == 0);
    output(dir.path(), &["true"]);
    for name in ["forked", "written"] {
        let found = std::fs::read(dir.path().join(name)).unwrap();
        assert_eq!(found.len(), 512 * 4096);
        for (page, bytes) in found.chunks(4096).enumerate() {
            assert_eq!(&bytes[1..3], b"cg", "page {page} of {name}");
        }
    }
    let cut = std::fs::read(dir.path().join("cut")).unwrap();
    assert!(cut[..5] == *b"xxxxx" && cut[5..].iter().all(|byte| *byte == 0), "what was cut off");
    assert_eq!(std::fs::read(dir.path().join("again")).unwrap()[..6], *b"again\0");
}
