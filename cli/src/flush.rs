//! `perdura flush`: asks the holder of a server that died to flush.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use perdura_media::{Bytes, format_duration};
use perdura_region::holder::{self, LinkError};

use crate::args::FlushArgs;
use perdura_terminal::say;

pub fn run(args: &FlushArgs) -> Result<ExitCode> {
    let dir = args.dir.display();
    let flushed = match holder::flush(&args.dir) {
        Err(LinkError::Busy { pid }) => bail!(
            "--dir {dir}: process {pid} serves this directory and keeps the memory itself; SIGTERM \
             to it flushes"
        ),
        flushed => flushed.with_context(|| format!("--dir {dir}"))?,
    };
    match flushed {
        Some((dirty_bytes, device_bytes, elapsed)) => {
            say(format_args!(
                "flushed {} of dirty memory ({} written) in {}; the holder is gone",
                Bytes(dirty_bytes),
                Bytes(device_bytes),
                format_duration(elapsed)
            ));
        }
        None => say(format_args!("no holder in {dir}: nothing to flush")),
    }
    Ok(ExitCode::SUCCESS)
}
