//! `perdura flush`: ask a holder without a server to flush.

use std::process::ExitCode;

use anyhow::Result;
use perdura_media::{Bytes, format_duration};
use perdura_region::holder;

use crate::args::FlushArgs;
use perdura_terminal::say;

pub fn run(args: &FlushArgs) -> Result<ExitCode> {
    match holder::flush(&args.dir)? {
        Some((dirty_bytes, device_bytes, elapsed)) => {
            say(format_args!(
                "flushed {} of dirty memory ({} written) in {}; the holder is gone",
                Bytes(dirty_bytes),
                Bytes(device_bytes),
                format_duration(elapsed)
            ));
        }
        None => say(format_args!("no holder in {}: nothing to flush", args.dir.display())),
    }
    Ok(ExitCode::SUCCESS)
}
