//! `perdura holder`: the process that `serve` starts to keep the memory. Its standard input is the
//! link to the server.

use anyhow::{Context, Result};
use perdura_guard::HolderOptions;
use perdura_media::RealClock;
use perdura_region::holder::HolderProgram;
use perdura_warning::Warnings;
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::args::HolderArgs;
use crate::password::PASSWORD_VARIABLE;

/// The program that `serve` starts as its holder, which is this one. The holder heeds the same
/// sources of warnings, because it flushes when the server is gone.
pub fn program(sources: &[String]) -> HolderProgram {
    let this = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut program = HolderProgram::perdura(this);
    program.arguments.extend(sources.iter().map(|source| format!("--warning={source}").into()));
    program.hidden_variables.push(PASSWORD_VARIABLE.into());
    program
}

/// Adds the sources that `--warning` names.
pub fn add_sources(warnings: &mut Warnings, sources: &[String]) -> Result<()> {
    for text in sources {
        let source = perdura_warning::open(text).with_context(|| format!("--warning {text}"))?;
        warnings.add(source);
    }
    Ok(())
}

pub fn run(args: HolderArgs, mut warnings: Warnings) -> Result<()> {
    add_sources(&mut warnings, &args.warning)?;
    let link = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    let null = std::fs::File::open("/dev/null").context("/dev/null")?;
    rustix::stdio::dup2_stdin(&null).context("give up standard input")?;
    let options = HolderOptions { dir: args.dir, threads: args.threads };
    perdura_guard::hold(link, warnings, Arc::new(RealClock), options)?;
    Ok(())
}
