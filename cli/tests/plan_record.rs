//! `perdura plan record` as people call it.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use perdura_plan::trace::{ReadOptions, TraceReader};

fn record(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perdura"));
    command.args(["plan", "record"]).args(words);
    command
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Page writes by volume.
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
fn a_signal_ends_the_recording_and_not_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let mut program = Command::new("sh")
        .args(["-c", "while read line; do echo $line; done"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = program.id().to_string();
    let recorder = record(&["-o", path.to_str().unwrap(), "--every", "5ms", "--pid", &pid])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // The header is there from the start; names of volumes come with the first look that finds something.
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut told = 0_u64;
    while std::fs::metadata(&path).map_or(0, |file| file.len()) < 200 {
        use std::io::Write;
        writeln!(program.stdin.as_ref().unwrap(), "{told}").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), told.to_string());
        told += 1;
    }
    let signal = Command::new("kill").args(["-INT", &recorder.id().to_string()]).status().unwrap();
    assert!(signal.success());
    let output = recorder.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(read(&path).iter().map(|(_, pages)| pages).sum::<u64>() > 0);
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success(), "the program goes on to its own end");
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
    refused(&["--every", "0s", "--", "true"], "--every 0s");
    refused(&[], "PROGRAM");
    let output = record(&["-o", "/nowhere/at/all", "--", "true"]).output().unwrap();
    assert!(text(&output).contains("--output /nowhere/at/all"), "{}", text(&output));
}
