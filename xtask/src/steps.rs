//! The steps of the commands, each a program run to its end.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::pages;

/// How programs are built that are run whole: as they are released, without what only makes them
/// faster.
pub const PROFILE: &str = "ci";

pub fn lint() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    pages::check()?;
    cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])
}

/// The programs that are run whole, and all tests.
pub fn build() -> Result<()> {
    cargo(&["build", "--profile", PROFILE, "--features", "perdura-cli/release", "--quiet"])?;
    cargo(&["test", "--workspace", "--no-run", "--quiet"])
}

pub fn test() -> Result<()> {
    cargo(&["test", "--workspace", "--quiet"])?;
    let program =
        ["run", "--profile", PROFILE, "--features", "perdura-cli/release", "--quiet", "--", "sim"];
    let sim = |words: &[&str]| cargo(&[&program[..], words].concat());
    // Seeds that no test has.
    sim(&["cut", "--seed", "2", "--cuts", "300"])?;
    sim(&["order", "--seed", "2", "--states-max", "8"])
}

/// The engines beside the store.
pub fn rivals() -> Result<()> {
    let small = ["--records", "2000", "--workload", "a,c", "--dir", "target/rivals-run"];
    apart("lab/rivals/Cargo.toml", &small)
}

/// The small applications.
pub fn apps() -> Result<()> {
    let small = ["--size", "small", "--rounds", "3", "--disk-dir", "target/apps-run"];
    apart("lab/apps/Cargo.toml", &small)
}

/// A workspace of its own, none of which is in the other steps: all of them, and its program with
/// some words.
fn apart(manifest: &str, words: &[&str]) -> Result<()> {
    let of = ["--manifest-path", manifest];
    let step = |before: &[&str], after: &[&str]| cargo(&[before, &of[..], after].concat());
    step(&["fmt", "--check"], &[])?;
    step(&["clippy", "--release", "--all-targets", "--quiet"], &["--", "-D", "warnings"])?;
    step(&["test", "--release", "--quiet"], &[])?;
    step(&["run", "--release", "--quiet"], &[&["--"], words].concat())
}

/// Each fuzz target in turn, on the nightly toolchain.
pub fn fuzz(seconds: u64) -> Result<()> {
    let listed = Command::new("cargo")
        .args(["+nightly", "fuzz", "list"])
        .output()
        .context("cargo +nightly fuzz list (install cargo-fuzz and a nightly toolchain)")?;
    if !listed.status.success() {
        bail!("cargo fuzz list: {}", String::from_utf8_lossy(&listed.stderr));
    }
    let seeds =
        ["run", "--quiet", "--manifest-path", "fuzz/Cargo.toml", "--example", "trace_seeds"];
    cargo(&[&seeds[..], &["fuzz/corpus/trace"]].concat())?;
    for target in String::from_utf8_lossy(&listed.stdout).lines() {
        let time = format!("-max_total_time={seconds}");
        cargo(&["+nightly", "fuzz", "run", target, "--", &time, "-rss_limit_mb=4096"])?;
    }
    Ok(())
}

pub fn cargo(words: &[&str]) -> Result<()> {
    eprintln!("+ cargo {}", words.join(" "));
    let began = Instant::now();
    let status = Command::new("cargo").args(words).status().context("cargo")?;
    eprintln!("  {:.0} s", began.elapsed().as_secs_f64());
    if !status.success() {
        bail!("cargo {} ended with {status}", words.join(" "));
    }
    Ok(())
}
