//! Making an image from a restore point.
//!
//! The image is built under another name, and gets its own when it is whole: whatever happens on
//! the way, nobody takes half an image for one.

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use perdura_image::Key;
use perdura_image::copying::{Copy, check_sizes};
use perdura_image::inspect::{Believe, image_memory};
use perdura_media::file::{Direct, Engine, OpenMode, parent};
use perdura_media::{Device, FileDevice};
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use crate::error::BackupError;
use crate::fetch::{Sink, fetch};
use crate::object::Seal;
use crate::point::{self, Point};
use crate::points::PointName;
use crate::vault::Vault;

/// The end of the name of an image that is not whole.
pub const UNFINISHED_SUFFIX: &str = ".unfinished";

/// Restores the image of a point to a path where none is, and checks it. `key` is that of an
/// encrypted image when the point was made; `progress` is called with the bytes done and the bytes
/// in all.
///
/// # Errors
/// There is an image, or the vault, the point or the file fails.
pub fn restore(
    vault: &dyn Vault,
    seal: &Seal,
    name: &PointName,
    path: &Path,
    key: Option<&Key>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), BackupError> {
    let file = |path: &Path| {
        let path = path.to_owned();
        move |source| BackupError::File { path, source }
    };
    if path.exists() {
        return Err(BackupError::Refused(format!(
            "{} is there already: give another --dir, or move it away",
            path.display()
        )));
    }
    let point = point::get(vault, seal, name.as_str())?;
    let folder = parent(path);
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(file(folder))?;
    let unfinished = unfinished(path);
    remove_left(&unfinished)?;
    let device = create(&unfinished)?;
    let outcome =
        build(vault, seal, &point, (&device, key), progress).and_then(|()| check(&device, key));
    if let Err(error) = outcome {
        let _left = fs::remove_file(&unfinished);
        return Err(error);
    }
    if let Err(error) = publish(&unfinished, path) {
        let _left = fs::remove_file(&unfinished);
        return Err(error);
    }
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(file(folder))
}

/// The path of an image that is not whole.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(UNFINISHED_SUFFIX);
    name.into()
}

/// Restores the image of a point to an empty device, and checks it.
///
/// # Errors
/// The vault, the point or the device fails.
pub fn restore_to(
    vault: &dyn Vault,
    seal: &Seal,
    name: &PointName,
    device: &dyn Device,
    key: Option<&Key>,
) -> Result<(), BackupError> {
    let point = point::get(vault, seal, name.as_str())?;
    build(vault, seal, &point, (device, key), &mut |_, _| {})?;
    check(device, key)
}

/// Removes what an earlier restore left, which was killed. One that is at work has the file's lock,
/// and would give the name of the whole image to a file that another restore is still filling.
fn remove_left(path: &Path) -> Result<(), BackupError> {
    let failed = |source| BackupError::File { path: path.to_owned(), source };
    let left = match File::options().read(true).write(true).open(path) {
        Ok(left) => left,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    match flock(&left, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => fs::remove_file(path).map_err(failed),
        Err(Errno::WOULDBLOCK) => Err(BackupError::Refused(format!(
            "{} is in use: another restore is making it",
            path.display()
        ))),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// Gives a whole image its name, if nothing has it. A server may have been started meanwhile: its
/// image is never replaced.
fn publish(unfinished: &Path, path: &Path) -> Result<(), BackupError> {
    match renameat_with(CWD, unfinished, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => Err(BackupError::Refused(format!(
            "{} was made by somebody else during the restore, and stays: give another --dir",
            path.display()
        ))),
        Err(errno) => Err(BackupError::File { path: path.to_owned(), source: errno.into() }),
    }
}

fn create(path: &Path) -> Result<FileDevice, BackupError> {
    let mode = OpenMode::Create { capacity_bytes: 0 };
    let device = FileDevice::open(path, mode, Engine::Pwrite, Direct::Auto);
    let device = device.map_err(perdura_image::OpenError::from)?;
    if !device.try_lock().map_err(perdura_image::OpenError::from)? {
        return Err(BackupError::Refused(format!("{} is in use", path.display())));
    }
    Ok(device)
}

fn build(
    vault: &dyn Vault,
    seal: &Seal,
    point: &Point,
    (device, key): (&dyn Device, Option<&Key>),
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), BackupError> {
    check_sizes(&point.geometry).map_err(perdura_image::OpenError::from)?;
    let key = point.image_key(key)?;
    let mut copy = Copy::begin(device, &point.head(), key, point.commit.segments)?;
    let mut sink = ToImage { copy: &mut copy, progress };
    fetch(vault, seal, point, |_, _| true, &mut sink)?;
    Ok(copy.finish(&point.commit)?)
}

/// Reads everything in an image that was made, as the next start would.
pub(crate) fn check(device: &dyn Device, key: Option<&Key>) -> Result<(), BackupError> {
    image_memory(device, Believe::Committed, key)?;
    Ok(())
}

/// Puts frames in their places in an image.
pub(crate) struct ToImage<'a, 'd> {
    pub(crate) copy: &'a mut Copy<'d>,
    pub(crate) progress: &'a mut dyn FnMut(u64, u64),
}

impl Sink for ToImage<'_, '_> {
    fn frame(&mut self, segment: u32, at: u32, bytes: &[u8]) -> Result<(), BackupError> {
        Ok(self.copy.write(segment, at, bytes)?)
    }

    fn progress(&mut self, done: u64, of: u64) {
        (self.progress)(done, of);
    }
}

/// Fetches everything that a point names, and checks it.
///
/// # Errors
/// The vault fails, or the point or one of its packs is not whole.
pub fn verify(
    vault: &dyn Vault,
    seal: &Seal,
    name: &PointName,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), BackupError> {
    let point = point::get(vault, seal, name.as_str())?;
    fetch(vault, seal, &point, |_, _| true, &mut Checked { progress })
}

/// Drops frames, which were checked.
struct Checked<'a> {
    progress: &'a mut dyn FnMut(u64, u64),
}

impl Sink for Checked<'_> {
    fn frame(&mut self, _: u32, _: u32, _: &[u8]) -> Result<(), BackupError> {
        Ok(())
    }

    fn progress(&mut self, done: u64, of: u64) {
        (self.progress)(done, of);
    }
}
