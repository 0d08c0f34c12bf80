//! `perdura run`: another program, with its heap in capacity memory.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use perdura_media::Bytes;

use crate::args::RunArgs;
use crate::program;
use crate::settings;

const LIBRARY: &str = "libperdura_preload.so";
const LIBRARY_VARIABLE: &str = "PERDURA_PRELOAD";
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// Becomes the program; returns only if that is not possible.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let library = library()?;
    let Some((name, words)) = args.program.split_first() else { bail!("no program to run") };
    let path = program::find(name)?;
    program::check(&path, words)?;
    let mut command = Command::new(&path);
    // The name it was called by, as a shell would.
    command.arg0(name).args(words).env(PRELOAD_VARIABLE, before(&library)?);
    if let Some(dir) = args.capacity.as_ref().filter(|dir| dir.as_os_str() != "anonymous") {
        if !dir.is_dir() {
            bail!(
                "--capacity {}: no directory; name one on the medium whose memory is to be used",
                dir.display()
            );
        }
        command.env("PERDURA_CAPACITY", dir.canonicalize().context("--capacity")?);
    } else {
        command.env_remove("PERDURA_CAPACITY");
    }
    let size = settings::optional::<Bytes>("size", &args.size)?;
    let size = size.map(|Bytes(bytes)| bytes.to_string());
    set(&mut command, "PERDURA_CAPACITY_BYTES", size);
    set(&mut command, "PERDURA_NUMA_NODE", args.numa_node.map(|node| node.to_string()));
    set(&mut command, "PERDURA_CAPACITY_REPORT", args.report.then(|| "1".to_owned()));
    let error = command.exec();
    Err(error).with_context(|| path.display().to_string())
}

fn set(command: &mut Command, name: &str, value: Option<String>) {
    match value {
        Some(value) => command.env(name, value),
        None => command.env_remove(name),
    };
}

/// What is preloaded already comes after: the first `malloc` found counts.
fn before(library: &Path) -> Result<OsString> {
    let text = library.as_os_str();
    if text.to_string_lossy().contains([' ', ':']) {
        bail!(
            "{}: LD_PRELOAD cannot name a path with a space or a colon in it; move it, or set {LIBRARY_VARIABLE}",
            library.display()
        );
    }
    let mut all = text.to_owned();
    if let Some(others) = std::env::var_os(PRELOAD_VARIABLE).filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    Ok(all)
}

/// Beside this binary, or in the `lib` beside its folder, or where the environment says.
fn library() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(LIBRARY_VARIABLE) {
        let path = PathBuf::from(path);
        return path
            .canonicalize()
            .with_context(|| format!("{LIBRARY_VARIABLE} {}", path.display()));
    }
    let binary = std::env::current_exe().context("where this program is")?;
    let folder = binary.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)];
    match places.iter().find(|place| place.is_file()) {
        Some(found) => Ok(found.canonicalize()?),
        None => bail!(
            "no {LIBRARY} beside {} or in the lib folder beside it; build it (cargo build --release -p \
             perdura-preload), or say where it is with {LIBRARY_VARIABLE}",
            binary.display()
        ),
    }
}
