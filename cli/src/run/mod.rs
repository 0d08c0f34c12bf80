//! `perdura run`: another program, with its heap in capacity memory, or with its mapped files in
//! durable memory.

mod mapped;

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use perdura_media::Bytes;
use perdura_terminal::{become_program, optional, set};

use crate::args::RunArgs;

/// Turns this process into the program, and returns only if that fails; with --dir, runs it.
pub fn run(args: &RunArgs) -> Result<ExitCode> {
    if let Some(dir) = &args.dir {
        return mapped::run(args, dir);
    }
    become_program(&args.program, |command| set_heap(command, args))
}

fn set_heap(command: &mut Command, args: &RunArgs) -> Result<()> {
    if let Some(dir) = args.capacity.as_ref().filter(|dir| dir.as_os_str() != "anonymous") {
        if !dir.is_dir() {
            bail!(
                "--capacity {}: there is no such directory; name one on the medium whose memory is \
                 to be used",
                dir.display()
            );
        }
        command.env("PERDURA_CAPACITY", dir.canonicalize().context("--capacity")?);
    } else {
        command.env("PERDURA_CAPACITY", "anonymous");
    }
    // With --dir it is the size of something else.
    let size = args.size.as_ref().filter(|_| args.dir.is_none()).cloned();
    let size = optional::<Bytes>("size", &size)?;
    let size = size.map(|Bytes(bytes)| bytes.to_string());
    set(command, "PERDURA_CAPACITY_BYTES", size);
    set(command, "PERDURA_NUMA_NODE", args.numa_node.map(|node| node.to_string()));
    set(command, "PERDURA_CAPACITY_REPORT", args.report.then(|| "1".to_owned()));
    Ok(())
}
