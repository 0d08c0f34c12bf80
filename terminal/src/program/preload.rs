//! Turns this process into another program, with the interposing library loaded before the
//! program's own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use super::check::{check, find};

const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// The library's file.
const FILE: &str = "libperdura_interpose.so";
/// The package that it is built from.
const PACKAGE: &str = "perdura-interpose";
/// The environment variable that says where the library is, if not beside this binary.
const VARIABLE: &str = "PERDURA_INTERPOSE";

/// Turns this process into the program with its arguments, with this library loaded first.
/// `prepare` sets the program's environment. This returns only if it fails.
pub fn become_program(
    words: &[OsString],
    prepare: impl FnOnce(&mut Command) -> Result<()>,
) -> Result<ExitCode> {
    let mut command = with_library(words)?;
    prepare(&mut command)?;
    let error = command.exec();
    Err(error).with_context(|| command.get_program().display().to_string())
}

/// The program with its arguments, to be started with this library loaded first.
pub fn with_library(words: &[OsString]) -> Result<Command> {
    let library = library()?;
    let Some((name, words)) = words.split_first() else { bail!("no program to run") };
    let path = find(name)?;
    check(&path, words)?;
    let mut command = Command::new(&path);
    // The program sees the name by which the user called it, as from a shell.
    command.arg0(name).args(words).env(PRELOAD_VARIABLE, before_others(library)?);
    Ok(command)
}

/// Sets a variable of a program's environment, or removes it.
pub fn set(command: &mut Command, name: &str, value: Option<impl Into<OsString>>) {
    match value {
        Some(value) => command.env(name, value.into()),
        None => command.env_remove(name),
    };
}

/// The value of `LD_PRELOAD`: this library, and then those that are in it already. The first
/// library that has a function is the one that counts.
fn before_others(library: PathBuf) -> Result<OsString> {
    let mut all = library.into_os_string();
    if all.to_string_lossy().contains([' ', ':']) {
        bail!(
            "{}: LD_PRELOAD cannot name a path with a space or a colon in it; move it, or set \
             {VARIABLE}",
            all.display()
        );
    }
    if let Some(others) = std::env::var_os(PRELOAD_VARIABLE).filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    Ok(all)
}

/// Finds the library: at the path that the environment variable gives, else beside this binary, or
/// in the `lib` folder beside its folder, perhaps in the folder of a package there.
fn library() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(VARIABLE) {
        let path = PathBuf::from(path);
        return path.canonicalize().with_context(|| format!("{VARIABLE} {}", path.display()));
    }
    let binary = std::env::current_exe().context("where this program is")?;
    let folder = binary.parent().unwrap_or(Path::new("/"));
    let places = ["", "../lib", "../lib/perdura"].map(|place| folder.join(place).join(FILE));
    match places.iter().find(|place| place.is_file()) {
        Some(found) => Ok(found.canonicalize()?),
        None => bail!(
            "no {FILE} beside {} or in the lib folder beside it; build it (cargo build \
             --release -p {PACKAGE}), or say where it is with {VARIABLE}",
            binary.display()
        ),
    }
}
