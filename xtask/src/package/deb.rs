//! The Debian package, by cargo-deb; `cli/Cargo.toml` says what is in it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::place;
use super::stage::Stage;
use crate::run::{self, run};

/// The version that the description in `cli/Cargo.toml` is written for.
const VERSION: &str = "3.8.0";

/// Writes the package, and returns its path.
pub fn write(stage: &Stage, version: Option<&str>) -> Result<PathBuf> {
    let mut command = Command::new(tool()?);
    command.args([
        "--package",
        "perdura-cli",
        "--no-build",
        "--no-strip",
        "--no-dbgsym",
        "--quiet",
    ]);
    // Of the command-line tools, because the crate for it takes a library of C code.
    command.args(["--compress-system", "--output"]).arg(place()?.join("perdura.deb"));
    if !stage.is_release {
        command.arg("--fast");
    }
    if let Some(version) = version {
        command.args(["--deb-version", version]);
    }
    run(command.env("CARGO_TARGET_DIR", &stage.target))?;
    let written = place()?.join("perdura.deb");
    let format = "--showformat=${Version}_${Architecture}";
    let fields = Command::new("dpkg-deb").args(["--show", format]).arg(&written).output();
    let fields = fields.context("dpkg-deb")?;
    let named = format!("perdura_{}.deb", String::from_utf8_lossy(&fields.stdout));
    let path = place()?.join(named);
    std::fs::rename(written, &path)?;
    Ok(path)
}

/// cargo-deb in the target folder, installed if it is not there.
fn tool() -> Result<PathBuf> {
    let place = run::target()?.join("tools");
    let program = place.join("bin/cargo-deb");
    let has_it = Command::new(&program).arg("--version").output();
    if has_it.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains(VERSION)) {
        return Ok(program);
    }
    let words = ["install", "cargo-deb", "--version", VERSION, "--locked", "--debug", "--force"];
    let mut install = Command::new("cargo");
    install.args(words).args(["--no-default-features", "--root"]).arg(&place);
    // Its own outputs are of no further use.
    let outputs = place.join("build");
    run(install.env("CARGO_TARGET_DIR", &outputs))?;
    std::fs::remove_dir_all(outputs)?;
    Ok(program)
}
