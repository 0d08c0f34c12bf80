//! Measures the analysis of traces beside pandas and polars, on the same records in one run, and
//! compares the figures.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

const REQUIREMENTS: &str = "plan/compare/requirements.txt";
const ROUNDS: &str = "5";
/// Windows of 1 s, 10 s and 1 min, which suit records that are 10 us apart.
const WINDOWS_NS: [&str; 3] = ["1000000000", "10000000000", "60000000000"];

/// Prints the seconds that each program takes, and fails if figures differ.
pub fn compare(records: &str) -> Result<()> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let place = target.join("plan-rivals");
    fs::create_dir_all(&place)?;
    let python = environment(&place.join("venv"))?;
    let example =
        ["build", "--release", "--quiet", "-p", "perdura-plan", "--example", "skew_speed"];
    crate::run::cargo(&example)?;
    let (speed, dump) = (target.join("release/examples/skew_speed"), place.join("records"));
    for distribution in ["zipf", "uniform"] {
        let make = ["1048576", distribution, records, "2", "--dump"];
        output(Command::new(&speed).args(make).arg(&dump))?;
        let mut ways = BTreeMap::new();
        let ours = ["1", "uniform", "1", "--rounds", ROUNDS, "--load"];
        ways.insert("perdura, one thread", output(Command::new(&speed).args(ours).arg(&dump))?);
        // `perdura plan trace` counts windows on a thread of their own as well.
        let two = output(Command::new(&speed).args(ours).arg(&dump).arg("--apart"))?;
        ways.insert("perdura, two threads", two);
        let rival = |name: &str, threads: Option<&str>| {
            let mut command = Command::new(&python);
            command.args(["plan/compare/rivals.py", name]).arg(&dump).arg(ROUNDS).args(WINDOWS_NS);
            if let Some(threads) = threads {
                command.env("POLARS_MAX_THREADS", threads);
            }
            output(&mut command)
        };
        ways.insert("pandas", rival("pandas", None)?);
        ways.insert("polars, one thread", rival("polars", Some("1"))?);
        ways.insert("polars, all threads", rival("polars", None)?);
        show(distribution, &ways)?;
    }
    Ok(fs::remove_file(dump)?)
}

/// Prints the median of each program and its ratio to ours. Fails if figures differ.
fn show(distribution: &str, ways: &BTreeMap<&str, String>) -> Result<()> {
    let mut medians = BTreeMap::new();
    let mut figures = None;
    for (name, lines) in ways {
        let mut seconds = Vec::new();
        for line in lines.lines() {
            let round: serde_json::Value = serde_json::from_str(line)?;
            seconds.push(round["seconds"].as_f64().context("no seconds")?);
            if figures.get_or_insert_with(|| round["figures"].clone()) != &round["figures"] {
                bail!("{name} counts otherwise: {line}");
            }
        }
        seconds.sort_unstable_by(f64::total_cmp);
        medians.insert(*name, seconds[seconds.len() / 2]);
    }
    for (name, seconds) in &medians {
        println!(
            "{distribution}: {name}: {seconds:.2} s, {:.1} times ours",
            seconds / medians["perdura, two threads"]
        );
    }
    Ok(())
}

/// The interpreter of a virtual environment with pandas and polars. Making it needs the network.
fn environment(place: &Path) -> Result<PathBuf> {
    let (python, done) = (place.join("bin/python"), place.join("requirements.txt"));
    let required = fs::read_to_string(REQUIREMENTS).context(REQUIREMENTS)?;
    if !fs::read_to_string(&done).is_ok_and(|installed| installed == required) {
        output(Command::new("python3").args(["-m", "venv", "--clear"]).arg(place))
            .context("a virtual environment (Debian: python3-venv)")?;
        let install = ["-m", "pip", "install", "--quiet", "-r", REQUIREMENTS];
        output(Command::new(&python).args(install)).context("packages from PyPI")?;
        fs::write(done, required)?;
    }
    Ok(python)
}

fn output(command: &mut Command) -> Result<String> {
    let done = command.output().with_context(|| format!("{:?}", command.get_program()))?;
    if !done.status.success() {
        bail!("{command:?} ended with {}: {}", done.status, String::from_utf8_lossy(&done.stderr));
    }
    Ok(String::from_utf8(done.stdout)?)
}
