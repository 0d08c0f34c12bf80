//! Runs the test suites of Redis itself against `perdura serve`, in their external mode.
//!
//! Each file has a server of its own. What the suites say about DEBUG, replicas and HyperLogLog's
//! test of itself is skipped by its tags, and what Redis keeps for servers that the suite starts
//! itself is skipped by the suite. Sums of DEBUG DIGEST are not compared.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::run;
use crate::served::{self, Served};

/// The files that are run where none is named.
const FILES: [&str; 42] = [
    "unit/type/string",
    "unit/type/incr",
    "unit/type/list",
    "unit/type/list-2",
    "unit/type/list-3",
    "unit/type/set",
    "unit/type/zset",
    "unit/type/hash",
    "unit/type/stream",
    "unit/type/stream-cgroups",
    "unit/keyspace",
    "unit/expire",
    "unit/scan",
    "unit/sort",
    "unit/dump",
    "unit/bitops",
    "unit/bitfield",
    "unit/hyperloglog",
    "unit/geo",
    "unit/multi",
    "unit/pubsub",
    "unit/pubsubshard",
    "unit/scripting",
    "unit/functions",
    "unit/tracking",
    "unit/acl",
    "unit/acl-v2",
    "unit/auth",
    "unit/info",
    "unit/info-command",
    "unit/introspection",
    "unit/introspection-2",
    "unit/slowlog",
    "unit/latency-monitor",
    "unit/pause",
    "unit/protocol",
    "unit/quit",
    "unit/querybuf",
    "unit/networking",
    "unit/other",
    "unit/limits",
    "unit/maxmemory",
];

/// Seconds without a word from the suite after which a test counts as hanging.
const PATIENCE_S: &str = "60";
/// Tags of tests that need what is left out on purpose.
const TAGS: &str = "-needs:debug -needs:repl -needs:pfdebug";

/// Runs files of the suites in `redis`, Redis' source, and prints a table.
///
/// `words`: `--perdura PROGRAM`, `--threads N`, and the files.
pub fn measure(redis: &str, words: &[&str]) -> Result<()> {
    let (mut program, mut threads, mut files) = (None, "1", Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--perdura" => program = Some(*words.next().context("--perdura PROGRAM")?),
            "--threads" => threads = *words.next().context("--threads N")?,
            option if option.starts_with('-') => bail!("unknown option {option}"),
            file => files.push(file),
        }
    }
    if files.is_empty() {
        files.extend(FILES);
    }
    let redis = fs::canonicalize(redis).with_context(|| redis.to_owned())?;
    ensure!(redis.join("runtest").exists(), "{}: no runtest of Redis there", redis.display());
    let perdura = served::program(program)?;
    let place = run::target()?.join("redis-suites");
    fs::create_dir_all(&place)?;
    let (mut all, mut unsound) = (Counts::default(), Vec::new());
    println!("| file | passed | failed | skipped |\n|---|---|---|---|");
    for file in files {
        let log = place.join(format!("{}-{threads}.log", file.replace('/', "-")));
        let counts = run_file(&redis, &perdura, &place, file, threads, &log)?;
        println!("| {file} | {} | {} | {} |", counts.passed, counts.failed.len(), counts.skipped);
        all.passed += counts.passed;
        all.skipped += counts.skipped;
        unsound.extend(counts.failed.iter().map(|name| format!("{file}: {name}")));
    }
    println!("| all | {} | {} | {} |\n", all.passed, unsound.len(), all.skipped);
    unsound.iter().for_each(|line| println!("- {line}"));
    Ok(())
}

/// The tests of a file by their ends.
#[derive(Default, Debug, PartialEq)]
struct Counts {
    passed: usize,
    failed: Vec<String>,
    skipped: usize,
}

impl Counts {
    /// Reads what the suite has printed.
    fn of(log: &str) -> Self {
        let mut counts = Self::default();
        for line in log.lines() {
            let line = plain(line);
            if line.starts_with("[ok]") {
                counts.passed += 1;
            } else if line.starts_with("[ignore]") || line.starts_with("[skip]") {
                counts.skipped += 1;
            } else if let Some(name) = line.strip_prefix("[err]: ") {
                let name = name.split(" in tests/").next().unwrap_or(name);
                counts.failed.push(name.to_owned());
            } else if let Some((_, name)) = line.split_once("(IN PROGRESS) ") {
                counts.failed.push(format!("{name} (hangs: no test behind it is run)"));
            } else if let Some(why) = line.strip_prefix("[exception]: ") {
                counts.failed.push(format!("{why} (no test behind it is run)"));
            }
        }
        counts
    }
}

/// A line without the colours of a terminal.
fn plain(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, behind)| behind))
}

fn run_file(
    redis: &Path,
    perdura: &Path,
    place: &Path,
    file: &str,
    threads: &str,
    log: &Path,
) -> Result<Counts> {
    let dir = place.join("data");
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    let options = ["--memory", "512MiB", "--threads", threads];
    let (server, _) = Served::start(perdura, &dir, &options, &log.with_extension("server"))?;
    let port = server.address().rsplit(':').next().unwrap_or_default();
    let words = [
        "--host",
        "127.0.0.1",
        "--port",
        port,
        "--tags",
        TAGS,
        "--ignore-digest",
        "--durable",
        "--clients",
        "1",
        "--timeout",
        PATIENCE_S,
        "--single",
        file,
    ];
    let (out, err) = (File::create(log)?, File::options().append(true).open(log)?);
    let mut suite = Command::new("./runtest");
    suite.current_dir(redis).args(words).stdin(Stdio::null()).stdout(out).stderr(err);
    // A test that fails is told by the log.
    suite.status().context("runtest of Redis, which needs tclsh")?;
    let mut counts = Counts::of(&String::from_utf8_lossy(&fs::read(log)?));
    if let Err(error) = server.kill_with_holder() {
        counts.failed.push(format!("the server had ended: {error:#}"));
    }
    fs::remove_dir_all(&dir)?;
    ensure!(counts != Counts::default(), "{file}: the suite ran no test: see {}", log.display());
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_tests_are_counted_and_failures_named() {
        let log = "[\u{1b}[0;32;49mok\u{1b}[0m]: PING (0 ms)\n\
                   [\u{1b}[0;31;49merr\u{1b}[0m]: A test in tests/unit/x.tcl\nExpected 1\n\
                   [ignore]: Other: Tag: needs:debug denied\n\
                   sock5 => (IN PROGRESS) Third\n\
                   *** [\u{1b}[0;31;49merr\u{1b}[0m]: A test in tests/unit/x.tcl\n";
        let failed = ["A test", "Third (hangs: no test behind it is run)"];
        let failed = failed.map(str::to_owned).to_vec();
        assert_eq!(Counts::of(log), Counts { passed: 1, failed, skipped: 1 });
    }
}
