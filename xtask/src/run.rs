//! Runs cargo and other programs to their end.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The folder of cargo's build outputs.
pub fn target() -> Result<PathBuf> {
    let place = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    std::fs::create_dir_all(&place)?;
    Ok(place.canonicalize()?)
}

/// Runs a program to its end; prints its command line and the time that it took.
pub fn run(command: &mut Command) -> Result<()> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    eprintln!("+ {}", words.join(" "));
    let began = Instant::now();
    let status = command.status().with_context(|| words[0].clone())?;
    eprintln!("  {:.0} s", began.elapsed().as_secs_f64());
    if !status.success() {
        bail!("{} ended with {status}", words.join(" "));
    }
    Ok(())
}

/// Runs cargo with these arguments.
pub fn cargo(words: &[&str]) -> Result<()> {
    run(Command::new("cargo").args(words))
}

/// Cargo that lints what it compiles: the workspace's packages are compiled by clippy's driver,
/// which is rustc with more lints, and a warning is an error. Linting after compiling would read
/// every package a second time, those of others included.
pub fn linting_cargo() -> Command {
    let mut cargo = Command::new("cargo");
    cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    // Between arguments clippy's driver expects this word, as `cargo clippy` writes it.
    cargo.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    cargo
}
