//! The examples, run as a reader would: each twice or more, so that what they keep is seen.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// An example, which cargo has built beside the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(path.exists(), "{}: cargo test -p perdura builds it", path.display());
    path
}

fn run(name: &str, words: &[&Path]) -> String {
    let output = Command::new(example(name)).args(words).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn examples_are_short() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let lines = |path: &Path| std::fs::read_to_string(path).unwrap().lines().count();
    let mut examples: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    examples.retain(|path| lines(path) > 40);
    assert!(examples.is_empty(), "more than 40 lines: {examples:?}");
}

#[test]
fn the_map_counts_visits() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let visit = |guest: &str| run("map", &[&dir, guest.as_ref()]);
    assert_eq!(visit("alice"), "visits of alice: 1\n");
    assert_eq!(visit("bob"), "visits of alice: 1\nvisits of bob: 1\n");
    assert_eq!(visit("alice"), "visits of alice: 2\nvisits of bob: 1\n");
}

#[test]
fn the_transaction_moves_coins_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let moved = |coins: &str| run("transaction", &[&dir, coins.as_ref()]);
    assert_eq!(moved("70"), "alice 30, bob 70\n");
    assert_eq!(moved("70"), "nothing was moved: too few coins\n");
    assert_eq!(moved("30"), "alice 0, bob 100\n");
}

#[test]
fn the_bytes_are_a_log() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    assert_eq!(run("bytes", &[&dir, "one".as_ref()]), "one\n");
    assert_eq!(run("bytes", &[&dir, "two".as_ref()]), "one\ntwo\n");
}

#[test]
fn the_heap_counts_visits() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("heap");
    assert_eq!(run("heap", &[&file]), "visit 1\n");
    assert_eq!(run("heap", &[&file]), "visit 2\n");
}

#[test]
fn the_program_closes_at_a_warning_of_either_source() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, status) = (folder.path().join("data"), folder.path().join("status"));
    std::fs::write(&status, "steady").unwrap();
    let source = format!("file:{}", status.display());
    for by_signal in [true, false] {
        let mut program = Command::new(example("warning"))
            .arg(&dir)
            .arg(&source)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(program.stdout.take().unwrap());
        let mut said = String::new();
        lines.read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        match by_signal {
            true => kill_process(Pid::from_child(&program), Signal::TERM).unwrap(),
            false => std::fs::write(&status, "low").unwrap(),
        }
        lines.read_to_string(&mut said).unwrap();
        assert!(program.wait().unwrap().success() && said.contains("is_in_time: true"), "{said}");
    }
}
