//! `perdura flush`: asks the holder, or the guard, of a server that died to flush.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use perdura_media::{Bytes, format_duration};
use perdura_region::directory::{self, IMAGE_NAME};
use perdura_region::holder::wire::ImageFile;
use perdura_region::holder::{self, LinkError, SOCKET_NAME};

use crate::args::FlushArgs;
use perdura_terminal::say;

pub fn run(args: &FlushArgs) -> Result<ExitCode> {
    let dir = args.dir.display();
    let place = || format!("--dir {dir}");
    let image = ImageFile::at(&args.dir.join(IMAGE_NAME)).with_context(place)?;
    let socket = args.guard.clone().unwrap_or_else(|| args.dir.join(SOCKET_NAME));
    // A directory that has no image has nothing to flush.
    let flushed = match image.map_or(Ok(None), |image| holder::flush(&socket, image)) {
        Err(LinkError::Busy { pid }) => bail!(
            "--dir {dir}: process {pid} serves this directory and keeps the memory itself; SIGTERM \
             to it flushes"
        ),
        flushed => flushed.with_context(place)?,
    };
    match flushed {
        Some((dirty_bytes, device_bytes, elapsed)) => {
            say(format_args!(
                "flushed {} of dirty memory ({} written) in {}; the memory is let go",
                Bytes(dirty_bytes),
                Bytes(device_bytes),
                format_duration(elapsed)
            ));
        }
        None if args.guard.is_some() => {
            say(format_args!("the guard holds no memory of {dir}: nothing to flush"));
        }
        None => match directory::memory_files_of(&args.dir)? {
            Some(place) => bail!(
                "no holder in {dir}, but its memory is in files, in {}: start a server there; \
                 SIGTERM to it flushes",
                place.display()
            ),
            None => say(format_args!("no holder in {dir}: nothing to flush")),
        },
    }
    Ok(ExitCode::SUCCESS)
}
