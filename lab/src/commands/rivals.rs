//! `perdura-lab rivals` passes its arguments to a program of its own, so that building Perdura does
//! not build RocksDB.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct RivalsArgs {
    /// Options of perdura-rivals; --help lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTION")]
    pub words: Vec<OsString>,
}

const PROGRAM: &str = "perdura-rivals";
/// Folder in which `cargo build --release --manifest-path lab/rivals/Cargo.toml` leaves the
/// program, relative to the source's folder.
const BUILT: &str = "lab/rivals/target/release";

pub fn run(args: &RivalsArgs) -> Result<ExitCode> {
    let Some(program) = places().map(|place| place.join(PROGRAM)).find(|path| path.is_file())
    else {
        bail!(
            "{PROGRAM} is not beside this program, in {BUILT} or on PATH; in Perdura's source, \
             build it with: cargo build --release --manifest-path lab/rivals/Cargo.toml"
        )
    };
    // `exec` returns only if it fails.
    let error = Command::new(&program).args(&args.words).exec();
    Err(error).with_context(|| program.display().to_string())
}

/// Folders that may have the program, best first.
fn places() -> impl Iterator<Item = PathBuf> {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    // The source's folder as seen from `target/release/perdura-lab`.
    let source = own.as_deref().and_then(|own| own.ancestors().nth(3)).map(|dir| dir.join(BUILT));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<_> = std::env::split_paths(&path).collect();
    beside.into_iter().chain([PathBuf::from(BUILT)]).chain(source).chain(path)
}
