//! Runs the tests of the Python package: makes a virtual environment, builds the wheel, installs it
//! there, and starts Spark on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run::{run, target};

const REQUIREMENTS: &str = "python/requirements.txt";

/// Runs the tests in an environment. If the environment could not be made, the tests are skipped
/// and the reason is returned; where `CI` is set, that is an error.
pub fn test(environment: Result<PathBuf>) -> Result<Option<String>> {
    let python = match environment {
        Ok(python) => python,
        Err(error) if std::env::var_os("CI").is_none() => {
            return Ok(Some(format!("{error:#}")));
        }
        Err(error) => return Err(error),
    };
    let target = target()?;
    let wheels = target.join("python/wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    let beside = |name: &str| python.with_file_name(name);
    let build = ["build", "--profile", "dev", "--quiet", "--compatibility", "linux", "--out"];
    run(Command::new(beside("maturin"))
        .args(build)
        .arg(&wheels)
        .args(["-m", "python/Cargo.toml"]))?;
    let wheel = fs::read_dir(&wheels)?.next().context("maturin left no wheel")??.path();
    let install = ["install", "--quiet", "--no-deps", "--force-reinstall"];
    run(Command::new(beside("pip")).args(install).arg(wheel))?;
    let tests = ["-m", "unittest", "discover", "-s", "python/tests"];
    let perdura = target.join("debug/perdura");
    // Short runs of Spark are mostly just-in-time compilation, so only the first tier is used.
    let java = ("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1");
    let mut command = Command::new(python);
    command.args(tests).env("PERDURA", perdura).env(java.0, java.1);
    run(command.env("PYTHONWARNINGS", "ignore"))?;
    Ok(None)
}

/// The interpreter of a virtual environment that has the required packages. The environment is made
/// anew when the requirements have changed.
///
/// # Errors
/// Java, Python's `venv` or the network, which the first installation needs, is missing.
pub fn environment() -> Result<PathBuf> {
    let java = Command::new("java").arg("-version").output();
    if !java.is_ok_and(|java| java.status.success()) {
        bail!("Spark needs Java 17 or newer (Debian: openjdk-17-jre-headless)");
    }
    installed(&target()?.join("python/venv"), REQUIREMENTS)
}

/// The interpreter of the virtual environment at `place`, which has the packages that the file
/// `requirements` names.
///
/// # Errors
/// Python's `venv` or the network, which the first installation needs, is missing.
pub fn installed(place: &Path, requirements: &str) -> Result<PathBuf> {
    let python = place.join("bin/python");
    let required = fs::read_to_string(requirements).with_context(|| requirements.to_owned())?;
    let done = place.join("requirements.txt");
    if fs::read_to_string(&done).is_ok_and(|installed| installed == required) {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(place))
        .context("a virtual environment (Debian: python3-venv)")?;
    // Most modules are never loaded, and Python compiles the others when it loads them.
    let install =
        ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"];
    run(Command::new(&python).args(install).args(["-r", requirements]))
        .context("packages from PyPI; the network is needed once")?;
    // This file is written last, so that an unfinished environment is made again.
    fs::write(done, required)?;
    Ok(python)
}
