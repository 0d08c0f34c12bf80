//! `perdura holder`: started by `serve` with its link as standard input.

use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use perdura_media::RealClock;
use perdura_region::holder::{self, HolderOptions};

use crate::args::HolderArgs;

/// The program that `serve` starts as its holder, without its arguments.
pub fn program() -> Command {
    let this = std::env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut command = Command::new(this);
    command.arg("holder").stdout(Stdio::null()).env_remove("PERDURA_PASSWORD");
    command
}

pub fn run(args: HolderArgs, warning: std::os::fd::OwnedFd) -> Result<()> {
    let link = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    let null = std::fs::File::open("/dev/null").context("/dev/null")?;
    rustix::stdio::dup2_stdin(&null).context("give up standard input")?;
    let options = HolderOptions { dir: args.dir, threads: args.threads };
    holder::serve(link, warning, &RealClock, options)?;
    Ok(())
}
