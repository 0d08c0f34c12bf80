//! Mutants of the code that makes data durable: wrong lines that cargo-mutants plants, each of
//! which a test must notice. `.cargo/mutants.toml` says where and why there.
//!
//! Of a change, each mutant is compiled by itself, in a copy of the tree. All mutants are compiled
//! into one program, by the package in `mutants/`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::changed;
use crate::run::{cargo, run, target};

/// Most mutants of a change that CI runs: each costs 10 to 60 processor seconds.
const MOST_IN_CI: usize = 4;

/// The packages whose tests are run for mutants that their own package's tests did not catch.
const ABOVE: &str = "perdura-region,perdura-slots,perdura-heap,perdura-store,perdura-server";

/// Processor seconds of tests for one of all mutants, as they take without it.
const SECONDS: &str = "30";

/// Runs the mutants in the lines that differ from `since`.
pub fn of_change(since: Option<&str>) -> Result<()> {
    require()?;
    let base = since.map_or_else(changed::base, |since| Ok(since.to_owned()))?;
    let diff = diff(&base)?;
    let listed = list(&["--in-diff", text(&diff)?])?;
    eprintln!("xtask: {listed} mutants in the lines that differ from {base}");
    if listed == 0 { Ok(()) } else { run_each(&diff, None) }
}

/// Runs a few mutants of the lines that differ from `main`, where cargo-mutants is installed.
/// Returns what was left out, and why.
pub fn in_ci() -> Result<Option<String>> {
    if !is_installed() {
        return Ok(Some("cargo-mutants is not installed".to_owned()));
    }
    let diff = diff(&changed::base()?)?;
    let listed = list(&["--in-diff", text(&diff)?])?;
    if listed > 0 {
        run_each(&diff, Some(listed.div_ceil(MOST_IN_CI)))?;
    }
    let left = listed.saturating_sub(MOST_IN_CI);
    Ok((left > 0).then(|| format!("{left} of {listed} mutants; `cargo xtask mutants` runs all")))
}

/// Runs all mutants, or one of several parts of them.
pub fn all(shard: &str) -> Result<()> {
    require()?;
    let place = target()?.join("mutants");
    std::fs::create_dir_all(&place)?;
    let list = place.join("list.json");
    let mut command = cargo_mutants(&["--list", "--json"]);
    let done = command.stderr(Stdio::inherit()).output()?;
    ensure!(done.status.success(), "cargo mutants --list ended with {}", done.status);
    std::fs::write(&list, done.stdout)?;
    // Many mutants make a test wait for ever, mostly without a processor.
    let threads = (2 * std::thread::available_parallelism()?.get()).to_string();
    let before = ["run", "--release", "--quiet", "--manifest-path", "mutants/Cargo.toml", "--"];
    let tree = place.join("woven");
    let after = [text(&list)?, ".", text(&tree)?, shard, SECONDS, &threads];
    cargo(&[&before[..], &after].concat())
}

/// Runs each mutant of a diff by itself: with the tests of its own package, and those that are left
/// with the tests of the packages above. `parts`: only the first of so many parts.
fn run_each(diff: &Path, parts: Option<usize>) -> Result<()> {
    let shard = parts.map_or_else(|| "0/1".to_owned(), |parts| format!("0/{parts}"));
    let output = target()?.join("mutants");
    let words = [
        "--in-diff",
        text(diff)?,
        "--shard",
        &shard,
        "--baseline",
        "skip",
        "--timeout",
        "300",
        "--output",
        text(&output)?,
    ];
    let own = cargo_mutants(&words).status().context("cargo mutants")?;
    // cargo-mutants ends with 2 if it missed mutants, and with 3 if a test did not end, whether or
    // not it missed others.
    match own.code() {
        Some(0) => Ok(()),
        Some(2 | 3) => run(cargo_mutants(&words).args(["--iterate", "--test-package", ABOVE])),
        _ => bail!("cargo mutants ended with {own}"),
    }
}

/// The number of mutants that `words` choose.
fn list(words: &[&str]) -> Result<usize> {
    let done = cargo_mutants(words).arg("--list").stderr(Stdio::inherit()).output()?;
    ensure!(done.status.success(), "cargo mutants --list ended with {}", done.status);
    Ok(String::from_utf8(done.stdout)?.lines().count())
}

/// Writes the diff from a revision to the files as they are.
fn diff(base: &str) -> Result<PathBuf> {
    let path = target()?.join("mutants-diff");
    std::fs::write(&path, changed::git(&["diff", base])?)?;
    Ok(path)
}

fn cargo_mutants(words: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--workspace"]).args(words);
    command
}

fn is_installed() -> bool {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn require() -> Result<()> {
    ensure!(
        is_installed(),
        "this needs cargo-mutants: `cargo install cargo-mutants --locked` (three processor minutes)"
    );
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is no text", path.display()))
}
