//! `perdura-lab run`: another program with its files on a modelled medium. The settings of the
//! preloaded library are checked before the program starts.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use perdura_media::System;
use perdura_media::recording::{HEADER_BYTES, Recording, STEPS_MAX};

use clap::Args;
use perdura_terminal::{become_program, set};

/// Options of `perdura-lab run`: the served files, the medium, and the program.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// File to serve, or a directory with all files in it, best on tmpfs; may be repeated. The
    /// bytes stay where they are, the time is the medium's.
    #[arg(long, value_name = "PATH", required = true)]
    at: Vec<PathBuf>,
    /// The medium whose time is modelled: a built-in profile or the path of a TOML file.
    #[arg(long, value_name = "NAME|FILE")]
    media: Option<String>,
    /// Put the medium behind this link, or behind `none` [default: the profile's own link].
    #[arg(long, value_name = "NAME", requires = "media")]
    link: Option<String>,
    /// Record the requests of the first process that opens a served file; the recording can be
    /// replayed on any medium.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Most requests to record [default: 4194304, of 24 B each].
    #[arg(long, value_name = "N", requires = "record")]
    record_steps: Option<u64>,
    /// Append a line of JSON to this file for each process, when the process ends.
    #[arg(long, value_name = "FILE")]
    report_json: Option<PathBuf>,
    /// Report the modelled time and the requests on standard error when a process ends.
    #[arg(long)]
    report: bool,
    /// The program and its arguments. It must be dynamically linked.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

/// Becomes the program; returns only if that fails.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    become_program(&args.program, |command| set_files(command, args))
}

/// Sets the environment variables that the preloaded library reads.
fn set_files(command: &mut Command, args: &RunArgs) -> Result<()> {
    let at = args.at.iter().map(|path| place(path)).collect::<Result<Vec<_>>>()?;
    let lines = at.iter().map(|path| path.as_os_str().to_owned());
    let lines: Vec<OsString> = lines.collect();
    set(command, "PERDURA_FILES_AT", (!lines.is_empty()).then(|| lines.join("\n".as_ref())));
    let media = args.media.as_ref().map(|name| medium(name, args.link.as_deref())).transpose()?;
    set(command, "PERDURA_FILES_MEDIA", media);
    set(command, "PERDURA_FILES_LINK", args.link.clone());
    let record = args.record.as_ref().map(|path| recording(path, &at)).transpose()?;
    set(command, "PERDURA_FILES_RECORD", record);
    if let Some(steps) = args.record_steps.filter(|steps| !(1..=STEPS_MAX).contains(steps)) {
        bail!("--record-steps {steps}: expected 1 to {STEPS_MAX}");
    }
    set(command, "PERDURA_FILES_RECORD_STEPS", args.record_steps.map(|steps| steps.to_string()));
    set(command, "PERDURA_FILES_REPORT", args.report.then_some("1"));
    let json = args.report_json.as_ref().map(|path| named(path, "--report-json")).transpose()?;
    set(command, "PERDURA_FILES_REPORT_JSON", json);
    Ok(())
}

/// The served path without links, as the kernel names it; the file itself may be created later.
fn place(path: &Path) -> Result<PathBuf> {
    let place = match path.canonicalize() {
        Ok(found) if !found.is_dir() && !found.is_file() => {
            bail!("--at {}: neither a file nor a directory", path.display())
        }
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => named(path, "--at")?,
        Err(error) => return Err(error).with_context(|| format!("--at {}", path.display())),
    };
    if place.as_os_str().as_bytes().contains(&b'\n') {
        bail!("--at {}: the name has a line break in it", path.display());
    }
    if place == Path::new("/") {
        bail!("--at /: name a file or a directory below it");
    }
    Ok(place)
}

/// The path of a file that may be missing, in a directory that exists.
fn named(path: &Path, option: &str) -> Result<PathBuf> {
    let place = || format!("{option} {}", path.display());
    let Some(name) = path.file_name() else { bail!("{}: expected the name of a file", place()) };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    Ok(folder.canonicalize().with_context(place)?.join(name))
}

/// The medium by a name that is valid in any working directory.
fn medium(name: &str, link: Option<&str>) -> Result<OsString> {
    let system = System::find(name).with_context(|| format!("--media {name}"))?;
    if let Some(link) = link {
        system.with_link(link).with_context(|| format!("--link {link}"))?;
    }
    if name.contains('/') || name.ends_with(".toml") {
        return Ok(Path::new(name)
            .canonicalize()
            .with_context(|| format!("--media {name}"))?
            .into());
    }
    Ok(name.into())
}

/// The path of the recording: an old recording is replaced, any other existing file is refused.
fn recording(path: &Path, at: &[PathBuf]) -> Result<PathBuf> {
    let option = || format!("--record {}", path.display());
    let place = named(path, "--record")?;
    if at.iter().any(|at| place.starts_with(at)) {
        bail!("{}: the recording would be among the served files; record elsewhere", option());
    }
    match File::open(&place) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(place),
        Err(error) => return Err(error).with_context(option),
        Ok(file) => {
            let mut head = Vec::new();
            file.take(HEADER_BYTES).read_to_end(&mut head).with_context(option)?;
            if !head.is_empty() && !Recording::is_one(&head) {
                bail!(
                    "{}: the existing file is not a recording, so it is not replaced; give \
                       another path",
                    option()
                );
            }
        }
    }
    std::fs::remove_file(&place).with_context(option)?;
    Ok(place)
}
