//! The library as an embedding program gets it: a project outside the workspace, with the ten lines
//! of the crate's page, is built by cargo, run, and killed in the middle of its writes.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's own failure

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use perdura::{Durability, Options, Region, Store};
use rustix::process::{Pid, Signal, kill_process};

const PAGE: &str = include_str!("../src/lib.rs");
const WRITER: &str = include_str!("programs/writer.rs");

/// The first Rust block of the page under a heading.
fn block(heading: &str) -> String {
    let (_, section) = PAGE.split_once(heading).unwrap();
    let (_, code) = section.split_once("```no_run\n").unwrap();
    let (code, _) = code.split_once("//! ```\n").unwrap();
    let lines: Vec<&str> = code.lines().map(|line| line[3..].trim_start()).collect();
    assert!(lines.len() <= 12, "{} lines under {heading}", lines.len());
    lines.join("\n")
}

/// The folder with the programs of a fresh project, built once.
fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    &PROGRAMS
        .get_or_init(|| {
            let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
            let project = tempfile::tempdir().unwrap();
            let manifest = format!(
                "[package]\nname = \"fresh\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
                 [dependencies]\nperdura = {{ path = {:?} }}\n\n\
                 [profile.dev]\ndebug = false\nlto = \"off\"\n",
                workspace.join("perdura")
            );
            let bin = project.path().join("src/bin");
            std::fs::create_dir_all(&bin).unwrap();
            std::fs::write(project.path().join("Cargo.toml"), manifest).unwrap();
            std::fs::copy(workspace.join("Cargo.lock"), project.path().join("Cargo.lock")).unwrap();
            std::fs::write(bin.join("map.rs"), block("# A durable map in ten lines")).unwrap();
            std::fs::write(bin.join("bytes.rs"), block("# Durable bytes in ten lines")).unwrap();
            std::fs::write(bin.join("writer.rs"), WRITER).unwrap();
            // This target folder stays, so that a second run compiles next to nothing. The copy of
            // `xtask/tests/recipes.rs` has it, too, and the same profile: what both need of others'
            // packages is compiled once.
            let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside");
            let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
            let output = Command::new(cargo)
                .args(["build", "--quiet", "--offline", "--target-dir"])
                .arg(&target)
                .current_dir(project.path())
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            (project, target.join("debug"))
        })
        .1
}

fn run(program: &str, folder: &Path) -> String {
    let output = Command::new(programs().join(program)).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_ten_lines_of_the_map_count_their_visits() {
    let folder = tempfile::tempdir().unwrap();
    for visits in ["I", "II", "III"] {
        assert_eq!(run("map", folder.path()), format!("visits: {visits}\n"));
    }
}

#[test]
fn the_ten_lines_of_the_bytes_count_their_runs() {
    let folder = tempfile::tempdir().unwrap();
    for run_number in 1..=3 {
        let said = run("bytes", folder.path());
        assert_eq!(said, format!("run {run_number} of {} bytes\n", 256 << 20));
    }
}

/// A writer at work, and the last number it has acknowledged.
struct Writer {
    process: Child,
    lines: BufReader<std::process::ChildStdout>,
    acknowledged: u64,
}

impl Writer {
    fn start(face: &str, dir: &Path, way: &str) -> Self {
        let mut process = Command::new(programs().join("writer"))
            .args([face, dir.to_str().unwrap(), way])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines, acknowledged: 0 }
    }

    fn read_on(&mut self, at_most: u64) {
        for _ in 0..at_most {
            let mut line = String::new();
            // A line that the end has cut was not acknowledged.
            if self.lines.read_line(&mut line).unwrap() == 0 || !line.ends_with('\n') {
                return;
            }
            self.acknowledged = line.trim_end().parse().unwrap();
        }
    }

    /// Sends a signal in the middle of the writes, and returns the last number acknowledged before
    /// the end.
    fn end_by(mut self, signal: Signal, after: u64) -> u64 {
        self.read_on(after);
        kill_process(Pid::from_child(&self.process), signal).unwrap();
        self.read_on(u64::MAX);
        self.process.wait().unwrap();
        assert!(self.acknowledged >= after, "it ended by itself after {}", self.acknowledged);
        self.acknowledged
    }
}

fn plain() -> Options {
    Options::new().durability(Durability::Warned)
}

/// The number of moves in the map. Every purse must be as that many moves leave it.
fn moves_in(dir: &Path) -> u64 {
    let store = Store::open_with(dir, &plain()).unwrap();
    let number = |key: &str| {
        let value = store.get(key).unwrap();
        value.map_or(0, |text| String::from_utf8(text).unwrap().parse::<u64>().unwrap())
    };
    let moves = number("moves");
    for purse in 0..100 {
        let last = (0..=moves).rev().take(100).find(|at| at % 100 == purse && *at > 0);
        assert_eq!(number(&format!("purse {purse}")), last.unwrap_or(0), "{moves} moves");
    }
    store.close().unwrap();
    moves
}

/// Opens one directory, writes to it and kills the writer, three times.
fn lives_of_a_killed_map(way: &str, after: u64) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    for life in 0..3 {
        let acknowledged = Writer::start("map", &dir, way).end_by(Signal::KILL, after + 37 * life);
        let found = moves_in(&dir);
        // One more move may have been done without its acknowledgement being read.
        let is_kept = found == acknowledged || found == acknowledged + 1;
        assert!(is_kept, "{way}, life {life}: {acknowledged} acknowledged, {found} found");
    }
}

#[test]
fn a_killed_map_with_a_holder_has_every_change_that_was_acknowledged() {
    lives_of_a_killed_map("holder", 3000);
}

#[test]
fn a_killed_map_without_a_holder_has_every_change_that_was_acknowledged() {
    lives_of_a_killed_map("alone", 100);
}

#[test]
fn changes_that_nothing_keeps_are_lost_with_the_process_and_the_test_sees_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let acknowledged = Writer::start("map", &dir, "warned").end_by(Signal::KILL, 3000);
    let found = moves_in(&dir);
    assert!(found < acknowledged, "{acknowledged} acknowledged, {found} found");
}

#[test]
fn killed_bytes_are_whole_up_to_the_word_that_counts_them() {
    for (way, after) in [("holder", 2000), ("alone", 100)] {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("data");
        let acknowledged = Writer::start("bytes", &dir, way).end_by(Signal::KILL, after);
        let region = Region::open_with(&dir, &plain()).unwrap();
        let count = region.load_word(0).unwrap();
        let is_kept = count == acknowledged || count == acknowledged + 1;
        assert!(is_kept, "{way}: {acknowledged} acknowledged, {count} counted");
        for number in (1..=count).rev().take(999) {
            let page: [u8; 4096] = region.get(4096 + number % 1000 * 4096).unwrap();
            assert!(page.iter().all(|byte| *byte == number as u8), "{way}: {number} of {count}");
        }
        region.close().unwrap();
    }
}

#[test]
fn a_program_that_closes_at_sigterm_has_every_change_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    for life in 1..=3 {
        let writer = Writer::start("map", &dir, "warned");
        let acknowledged = writer.end_by(Signal::TERM, 2000 * life);
        let found = moves_in(&dir);
        assert!(found >= acknowledged, "{acknowledged} acknowledged, {found} found");
    }
}
