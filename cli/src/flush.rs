//! `perdura flush`: asks the holder, or the guard, of a server that died to flush.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use perdura_mapped::REGION_NAME;
use perdura_media::file::{Direct, Engine, OpenMode};
use perdura_media::{Bytes, FileDevice, format_duration};
use perdura_region::directory::{self, IMAGE_NAME, has_image};
use perdura_region::holder::wire::ImageFile;
use perdura_region::holder::{self, LinkError, SOCKET_NAME};

use crate::args::FlushArgs;
use perdura_terminal::say;

pub fn run(args: &FlushArgs) -> Result<ExitCode> {
    let of_run = args.dir.join(REGION_NAME);
    // The directory of a `perdura run`, whose memory lies below.
    let dir_path = match !has_image(&args.dir) && has_image(&of_run) {
        true => &of_run,
        false => &args.dir,
    };
    let dir = dir_path.display();
    let place = || format!("--dir {dir}");
    let image_path = dir_path.join(IMAGE_NAME);
    let image = ImageFile::at(&image_path).with_context(place)?;
    let socket = args.guard.clone().unwrap_or_else(|| dir_path.join(SOCKET_NAME));
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
        None if is_locked(&image_path)? => {
            let asked = match &args.guard {
                Some(socket) => {
                    format!("the guard at {} does not keep its memory", socket.display())
                }
                None => "there is no holder in it".into(),
            };
            bail!(
                "--dir {dir}: nothing was flushed: {asked}, but a process has the image: a guard \
                 (give --guard and its socket), or a server (SIGTERM to it flushes)"
            )
        }
        None if args.guard.is_some() => {
            say(format_args!("the guard holds no memory of {dir}: nothing to flush"));
        }
        None => match directory::memory_files_of(dir_path)? {
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

/// Whether another process has the image.
fn is_locked(image: &Path) -> Result<bool> {
    if !image.exists() {
        return Ok(false);
    }
    let place = || image.display().to_string();
    let image = FileDevice::open(image, OpenMode::Existing, Engine::Auto, Direct::Off)
        .with_context(place)?;
    Ok(!image.try_lock_shared().with_context(place)?)
}
