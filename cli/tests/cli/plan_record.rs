//! `perdura plan record` as people call it.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use perdura_plan::trace::{ReadOptions, TraceReader};

fn record(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perdura"));
    command.args(["plan", "record"]).args(words);
    command
}

fn trace(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perdura"));
    command.args(["plan", "trace"]).args(words).output().unwrap()
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Reads the page writes of each volume.
fn read(path: &Path) -> Vec<(String, u64)> {
    let mut reader = TraceReader::open(path, &ReadOptions::default()).unwrap();
    let (mut batch, mut pages) = (Vec::new(), Vec::new());
    while reader.next_batch(&mut batch).unwrap() {
        for record in &batch {
            pages.resize(pages.len().max(record.volume as usize + 1), 0);
            pages[record.volume as usize] += record.pages().1;
        }
    }
    reader.volumes().iter().cloned().zip(pages).collect()
}

/// Whether the part of the trace that is there so far has a record.
fn has_record(path: &Path) -> bool {
    let options = ReadOptions { skip_bad: 1, ..ReadOptions::default() };
    let Ok(mut reader) = TraceReader::open(path, &options) else { return false };
    let mut batch = Vec::new();
    reader.next_batch(&mut batch).is_ok() && !batch.is_empty()
}

#[test]
fn a_program_runs_as_ever_and_its_pages_are_in_the_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let name = path.to_str().unwrap();
    let script = "dd if=/dev/zero of=/dev/null bs=8M count=3 status=none; echo done; exit 7";
    let output = record(&["-o", name, "--children", "--", "sh", "-c", script]).output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(
        said.starts_with("done\n") && said.contains(&format!("next: perdura plan trace {name}"))
    );
    let volumes = read(&path);
    assert!(
        volumes.iter().any(|(name, pages)| name.contains("stack") && *pages > 0),
        "{volumes:?}"
    );
    for (volume, pages) in &volumes {
        assert!(said.contains(&format!("{pages:>14}  {volume}\n")), "{said}");
    }
}

#[test]
fn the_help_says_what_looks_do_not_see() {
    let help = text(&record(&["--help"]).output().unwrap());
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("Memory that is unmapped or given back before the next look is not seen")
    );
    assert!(!words.contains("exact"), "{words}");
}

#[test]
fn children_that_were_not_recorded_are_said_to_be_at_least_so_many() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    // The child waits for the end of its parent, and only the recorder asks for the parent's
    // status.
    let script = "(while kill -0 $$ 2>/dev/null; do :; done) & exit 0";
    let output = record(&["-o", path.to_str().unwrap(), "--", "sh", "-c", script]).output();
    let said = text(&output.unwrap());
    assert!(said.contains("at least 1 children were not recorded; --children"), "{said}");
}

#[test]
fn standard_output_is_the_programs() {
    let output = record(&["-o", "-", "--", "echo", "heard"]).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    assert!(text(&output).contains("--output -: standard output is the program's own"));
}

/// A program that answers each line with the same line, until it has no more input.
struct Echo {
    program: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Echo {
    fn start() -> Self {
        let mut program = Command::new("sh")
            .args(["-c", "while read line; do echo $line; done"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        Self { program, lines }
    }

    fn pid(&self) -> String {
        self.program.id().to_string()
    }

    fn answers(&mut self) {
        writeln!(self.program.stdin.as_ref().unwrap(), "word").unwrap();
        assert_eq!(self.lines.next().unwrap().unwrap(), "word");
    }

    /// Starts a recorder and waits until its file has a record of a page.
    fn recorded(&mut self, path: &Path, words: &[&str]) -> Child {
        let pid = self.pid();
        let all = [&["-o", path.to_str().unwrap(), "--pid", &pid], words].concat();
        let recorder = record(&all).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while !has_record(path) {
            self.answers();
        }
        recorder
    }

    fn goes_on_to_its_own_end(mut self) {
        self.answers();
        drop(self.program.stdin.take());
        assert!(self.program.wait().unwrap().success());
    }
}

#[test]
fn a_signal_ends_the_recording_and_not_the_program() {
    let dir = tempfile::tempdir().unwrap();
    for signal in ["-INT", "-TERM"] {
        let path = dir.path().join(signal);
        let mut echo = Echo::start();
        let recorder = echo.recorded(&path, &["--every", "5ms"]);
        let sent = Command::new("kill").args([signal, &recorder.id().to_string()]).status();
        assert!(sent.unwrap().success());
        let output = recorder.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        assert!(read(&path).iter().map(|(_, pages)| pages).sum::<u64>() > 0);
        echo.goes_on_to_its_own_end();
    }
}

#[test]
fn a_recording_ends_in_time_and_with_a_last_look() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let mut echo = Echo::start();
    let pid = echo.pid();
    // The time between looks is longer than the recording, so all records come from the last look.
    let words = ["-o", path.to_str().unwrap(), "--every", "1h", "--for", "300ms", "--pid", &pid];
    let recorder = record(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let ended = std::thread::spawn(|| recorder.wait_with_output().unwrap());
    while !ended.is_finished() {
        echo.answers();
    }
    let output = ended.join().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(read(&path).iter().map(|(_, pages)| pages).sum::<u64>() > 0, "{}", text(&output));
    echo.goes_on_to_its_own_end();
}

#[test]
fn what_a_killed_recorder_saw_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let mut echo = Echo::start();
    let mut recorder = echo.recorded(&path, &["--every", "5ms"]);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let strict = trace(&[path.to_str().unwrap(), "--no-sizing"]);
    assert!(text(&strict).contains("--skip-bad 1 takes it as far as it goes"), "{}", text(&strict));
    let lenient = trace(&[path.to_str().unwrap(), "--no-sizing", "--skip-bad", "1"]);
    assert!(text(&lenient).contains("a recording by looks 5ms apart"), "{}", text(&lenient));
    echo.goes_on_to_its_own_end();
}

#[test]
fn a_process_that_ends_is_said_to_have_ended_unseen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let mut echo = Echo::start();
    let recorder = echo.recorded(&path, &["--every", "5ms"]);
    echo.goes_on_to_its_own_end();
    let output = recorder.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("1 processes ended or became another program"));
    assert!(read(&path).iter().map(|(_, pages)| pages).sum::<u64>() > 0);
}

#[test]
fn a_second_recorder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut echo = Echo::start();
    let mut first = echo.recorded(&dir.path().join("first"), &["--every", "5ms"]);
    let path = dir.path().join("second");
    let second = record(&["-o", path.to_str().unwrap(), "--pid", &echo.pid()]).output().unwrap();
    assert!(!second.status.success() && !path.exists());
    assert!(text(&second).contains("another `perdura plan record`"), "{}", text(&second));
    first.kill().unwrap();
    first.wait().unwrap();
    echo.goes_on_to_its_own_end();
}

#[test]
fn a_trace_says_how_far_apart_its_looks_were_and_warns_of_what_is_too_short_for_that() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (path, json, html) = (at("trace"), at("json"), at("html"));
    let words = ["-o", &path, "--every", "20ms", "--", "dd", "if=/dev/zero", "of=/dev/null"];
    let output = record(&[&words[..], &["bs=8M", "count=20"]].concat()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let (unseen, more) =
        ("what is unmapped or given back before the next look is not seen", "a shorter --every");
    let summary = text(&output);
    assert!(summary.contains(unseen) && summary.contains(more), "{summary}");
    let words = [&path, "--windows", "100ms,1h", "--flush-rate", "1GB/s"];
    let output = trace(&[&words[..], &["--json", &json, "--html", &html]].concat());
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    let plan: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let resolution = &plan["traces"][0]["resolution"];
    assert_eq!(resolution["every_ns"], 20_000_000);
    assert!(resolution["interval_ns"].as_u64() >= Some(20_000_000));
    assert_eq!(resolution["short_windows"], serde_json::json!(["0.1"]));
    assert_eq!(plan["traces"][0]["files"][0]["looks"]["every_ns"], 20_000_000);
    let page = std::fs::read_to_string(html).unwrap();
    for shown in [&said, &page] {
        assert!(shown.contains("a recording by looks 20ms apart"), "{shown}");
        assert!(shown.contains(unseen) && shown.contains(more), "{shown}");
        assert!(shown.contains("windows of 100ms are shorter than 10 times that"), "{shown}");
        // These are about 8 MiB, which the device writes in 8 ms.
        assert!(shown.contains("how long writes wait is not known from this recording"), "{shown}");
    }
}

#[test]
fn a_file_that_is_being_recorded_to_is_left_to_its_recorder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let mut echo = Echo::start();
    let first = echo.recorded(&path, &["--every", "5ms"]);
    let second = record(&["-o", path.to_str().unwrap(), "--", "echo", "started"]).output().unwrap();
    let said = text(&second);
    assert!(!second.status.success() && second.stdout.is_empty(), "{said}");
    assert!(said.contains(path.to_str().unwrap()), "{said}");
    assert!(said.contains("another `perdura plan record` is writing this file"), "{said}");
    let sent = Command::new("kill").args(["-INT", &first.id().to_string()]).status();
    assert!(sent.unwrap().success());
    assert!(first.wait_with_output().unwrap().status.success());
    assert!(read(&path).iter().map(|(_, pages)| pages).sum::<u64>() > 0);
    echo.goes_on_to_its_own_end();
}

#[test]
fn a_file_that_cannot_be_begun_is_named_with_the_cause() {
    let output = record(&["-o", "/dev/full", "--", "echo", "heard"]).output().unwrap();
    let said = text(&output);
    assert!(!output.status.success() && said.starts_with("heard\n"), "the program goes on: {said}");
    let cause = "--output /dev/full: the trace cannot be written: No space left on device";
    assert!(said.contains(cause), "{said}");
    assert_eq!(said.matches("No space left").count(), 1, "{said}");
}

#[test]
fn what_could_not_be_begun_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    // No file may have a byte, so the first write fails.
    let script = "ulimit -f 0; exec \"$@\"";
    let recorder = record(&["-o", path.to_str().unwrap(), "--", "true"]);
    let words = std::iter::once(recorder.get_program()).chain(recorder.get_args());
    let output = Command::new("sh").args(["-c", script, "sh"]).args(words).output().unwrap();
    assert!(text(&output).contains("be written: File too large"), "{}", text(&output));
    assert!(!path.exists());
    std::fs::write(&path, "").unwrap();
    let recorder = record(&["-o", path.to_str().unwrap(), "--", "true"]);
    let words = std::iter::once(recorder.get_program()).chain(recorder.get_args());
    let output = Command::new("sh").args(["-c", script, "sh"]).args(words).output().unwrap();
    assert!(!output.status.success() && path.exists(), "it was there before");
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let refused = |words: &[&str], part: &str| {
        let output = record(&[&["-o", path.to_str().unwrap()], words].concat()).output().unwrap();
        let said = text(&output);
        assert!(!output.status.success() && said.contains(part), "{words:?}: {said}");
        assert!(!path.exists(), "{words:?}");
    };
    refused(&["--", "/nowhere/at/all"], "starting /nowhere/at/all: No such file");
    std::fs::write(&path, "old").unwrap();
    let failed = record(&["-o", path.to_str().unwrap(), "--", "/nowhere/at/all"]).output().unwrap();
    assert!(!failed.status.success());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old", "nothing was recorded over it");
    std::fs::remove_file(&path).unwrap();
    refused(&["--pid", "2147483647"], "process 2147483647: there is none");
    refused(&["--pid", "0"], "--pid 0: expected");
    refused(&["--pid", "1,1"], "--pid 1: given twice");
    refused(&["--every", "0s", "--", "true"], "--every 0s");
    refused(&[], "PROGRAM");
    let output = record(&["-o", "/nowhere/at/all", "--", "true"]).output().unwrap();
    assert!(text(&output).contains("--output /nowhere/at/all"), "{}", text(&output));
}
