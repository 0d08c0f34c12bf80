//! `perdura run`: another program, with its heap in capacity memory or its files on a modelled
//! medium.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use perdura_media::Bytes;

use crate::args::RunArgs;
use crate::program;
use crate::served;
use crate::settings;

const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// A library that is preloaded.
struct Library {
    file: &'static str,
    package: &'static str,
    /// Says where it is, if not beside this binary.
    variable: &'static str,
}

const HEAP: Library = Library {
    file: "libperdura_preload.so",
    package: "perdura-preload",
    variable: "PERDURA_PRELOAD",
};

const FILES: Library = Library {
    file: "libperdura_files.so",
    package: "perdura-files",
    variable: "PERDURA_FILES_LIBRARY",
};

/// Becomes the program; returns only if that is not possible.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    let serves_files = !args.at.is_empty();
    let moves_heap = args.capacity.is_some() || args.size.is_some() || args.numa_node.is_some();
    let mut libraries = Vec::new();
    if serves_files {
        libraries.push(FILES.find()?);
    }
    if moves_heap || !serves_files {
        libraries.push(HEAP.find()?);
    }
    let Some((name, words)) = args.program.split_first() else { bail!("no program to run") };
    let path = program::find(name)?;
    program::check(&path, words)?;
    let mut command = Command::new(&path);
    // The name it was called by, as a shell would.
    command.arg0(name).args(words).env(PRELOAD_VARIABLE, before(&libraries)?);
    set_heap(&mut command, args)?;
    served::set_files(&mut command, args)?;
    let error = command.exec();
    Err(error).with_context(|| path.display().to_string())
}

fn set_heap(command: &mut Command, args: &RunArgs) -> Result<()> {
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
    set(command, "PERDURA_CAPACITY_BYTES", size);
    set(command, "PERDURA_NUMA_NODE", args.numa_node.map(|node| node.to_string()));
    set(command, "PERDURA_CAPACITY_REPORT", args.report.then(|| "1".to_owned()));
    Ok(())
}

pub fn set(command: &mut Command, name: &str, value: Option<impl Into<OsString>>) {
    match value {
        Some(value) => command.env(name, value.into()),
        None => command.env_remove(name),
    };
}

/// What is preloaded already comes after: the first function found counts.
fn before(libraries: &[PathBuf]) -> Result<OsString> {
    let mut all = OsString::new();
    for library in libraries {
        let text = library.as_os_str();
        if text.to_string_lossy().contains([' ', ':']) {
            bail!(
                "{}: LD_PRELOAD cannot name a path with a space or a colon in it; move it, or set {} or {}",
                library.display(),
                HEAP.variable,
                FILES.variable
            );
        }
        if !all.is_empty() {
            all.push(":");
        }
        all.push(text);
    }
    if let Some(others) = std::env::var_os(PRELOAD_VARIABLE).filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    Ok(all)
}

impl Library {
    /// Beside this binary, or in the `lib` beside its folder, or where the environment says.
    fn find(&self) -> Result<PathBuf> {
        let Self { file, package, variable } = self;
        if let Some(path) = std::env::var_os(variable) {
            let path = PathBuf::from(path);
            return path.canonicalize().with_context(|| format!("{variable} {}", path.display()));
        }
        let binary = std::env::current_exe().context("where this program is")?;
        let folder = binary.parent().unwrap_or(Path::new("/"));
        let places = [folder.join(file), folder.join("../lib").join(file)];
        match places.iter().find(|place| place.is_file()) {
            Some(found) => Ok(found.canonicalize()?),
            None => bail!(
                "no {file} beside {} or in the lib folder beside it; build it (cargo build --release -p \
                 {package}), or say where it is with {variable}",
                binary.display()
            ),
        }
    }
}
