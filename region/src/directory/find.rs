//! Finding a region's newest contents: memory that a holder or a guard kept, or the image.

use std::path::Path;
use std::time::Duration;

use perdura_image::ImageError;
use perdura_media::file::OpenMode;
use perdura_media::{BLOCK_BYTES, Clock, Device, DeviceError, FileDevice};

use super::error::DirectoryError;
use super::made::Made;
use super::settings::Settings;
use crate::holder::wire::ImageFile;
use crate::holder::{Held, HeldBy, LinkError, SOCKET_NAME, TakeOver, take_over};

/// Name of the image in its directory.
pub const IMAGE_NAME: &str = "image.perdura";
/// Time within which a lock without a holder that answers must be released, nanoseconds: the holder
/// is starting or ending. A holder that flushes has its grace in addition.
const HOLDER_CHANGES_WITHIN_NS: u64 = 3_000_000_000;
const HOLDER_LOOK_AGAIN_NS: u64 = 20_000_000;

/// The end of the name of an image that a restore is making.
const UNFINISHED_EXTENSION: &str = "perdura.unfinished";

/// Who kept the memory that an earlier server left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeper {
    /// A holder in the directory.
    Holder,
    /// The guard that the settings name.
    Guard,
}

/// Where the region's newest contents are.
pub(super) enum Found {
    /// The memory that an earlier server left was handed over.
    Held(Held, Keeper),
    /// There is no holder; this process has locked the image.
    Image(FileDevice),
}

/// Asks for a holder, then the guard, then for the image's lock. A lock without one who answers may
/// belong to a holder that is starting or ending, so all are tried again for a bounded time.
pub(super) fn find(
    settings: &Settings,
    path: &Path,
    clock: &dyn Clock,
    made: &mut Made,
) -> Result<Found, DirectoryError> {
    let dir = &settings.dir;
    let began_ns = clock.now_ns();
    let mut until_ns = began_ns + HOLDER_CHANGES_WITHIN_NS;
    let mut flushing_bytes = None;
    loop {
        match ask_keepers(settings, path) {
            Ok((TakeOver::Held(held), keeper)) => return Ok(Found::Held(held, keeper)),
            Ok((TakeOver::Nobody | TakeOver::NotHeld | TakeOver::Unanswered, _)) => {}
            Ok((TakeOver::Flushing { grace, used_bytes }, _)) => {
                if flushing_bytes.replace(used_bytes).is_none() {
                    let within_ns = u64::try_from(grace.as_nanos()).unwrap_or(u64::MAX);
                    until_ns = until_ns.saturating_add(within_ns);
                    tracing::warn!(
                        used_bytes,
                        ?grace,
                        "the memory of an earlier run is being flushed; waiting, for its grace at \
                         most"
                    );
                }
                if clock.now_ns() <= until_ns {
                    clock.sleep_ns(HOLDER_LOOK_AGAIN_NS);
                    continue;
                }
            }
            Err(LinkError::Busy { pid }) => {
                return Err(DirectoryError::InUse { dir: dir.clone(), pid: Some(pid) });
            }
            Err(error) => return Err(error.into()),
        }
        if let Some(image) = open_image(path, settings, made)? {
            return Ok(Found::Image(image));
        }
        let now_ns = clock.now_ns();
        if now_ns > until_ns {
            let dir = dir.clone();
            let waited = Duration::from_nanos(now_ns - began_ns);
            return Err(match flushing_bytes {
                Some(used_bytes) => DirectoryError::StillFlushing { dir, waited, used_bytes },
                None => DirectoryError::InUse { dir, pid: None },
            });
        }
        clock.sleep_ns(HOLDER_LOOK_AGAIN_NS);
    }
}

/// Asks a holder in the directory for the memory, and if it has none, the guard.
fn ask_keepers(settings: &Settings, path: &Path) -> Result<(TakeOver, Keeper), LinkError> {
    let io = |source| LinkError::Io { what: path.display().to_string(), source };
    // A holder whose image was removed lets its memory go when it is asked for another one.
    let image = ImageFile::at(path).map_err(io)?.unwrap_or(ImageFile { dev: 0, ino: 0 });
    let by_holder = take_over(&settings.dir.join(SOCKET_NAME), settings.times(), image)?;
    match (&by_holder, &settings.holder) {
        (TakeOver::Nobody | TakeOver::NotHeld, Some(HeldBy::Guard(socket))) => {
            Ok((take_over(socket, settings.times(), image)?, Keeper::Guard))
        }
        _ => Ok((by_holder, Keeper::Holder)),
    }
}

/// Whether the directory holds an image.
pub fn has_image(dir: &Path) -> bool {
    dir.join(IMAGE_NAME).exists()
}

/// Opens the image, or creates an empty one. `None` means that another process has the lock, or
/// that the file was removed meanwhile.
fn open_image(
    path: &Path,
    settings: &Settings,
    made: &mut Made,
) -> Result<Option<FileDevice>, DirectoryError> {
    let file = |source| DirectoryError::File { path: path.to_owned(), source };
    let exists = path.try_exists().map_err(file)?;
    let unfinished = path.with_extension(UNFINISHED_EXTENSION);
    if !exists && unfinished.try_exists().map_err(file)? {
        return Err(DirectoryError::Unfinished { path: unfinished });
    }
    let mode = match exists {
        true => OpenMode::Existing,
        false => OpenMode::Create { capacity_bytes: 0 },
    };
    let image = FileDevice::open(path, mode, settings.engine, settings.direct)
        .map_err(|source| DirectoryError::Image { path: path.to_owned(), source: source.into() })?;
    if !own_image(path, &image)? {
        return Ok(None);
    }
    if !exists {
        made.files.push(path.to_owned());
        made.image = Some(image.clone());
    }
    Ok(Some(image))
}

/// Locks an opened image. False means that another process has the lock, or had it between opening
/// and locking.
fn own_image(path: &Path, image: &FileDevice) -> Result<bool, DirectoryError> {
    let wrong = |source: DeviceError| DirectoryError::Image {
        path: path.to_owned(),
        source: source.into(),
    };
    let file = |source| DirectoryError::File { path: path.to_owned(), source };
    if !image.try_lock().map_err(wrong)? {
        return Ok(false);
    }
    // A process whose creation failed removes its file before it unlocks: this may be that file.
    let ours = rustix::fs::fstat(image).map_err(|errno| file(errno.into()))?;
    let named = match rustix::fs::stat(path) {
        Ok(named) => named,
        Err(rustix::io::Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(file(errno.into())),
    };
    // A file that is shorter than a block is no image that was just begun, which is empty.
    let found_bytes = ours.st_size as u64;
    if (1..BLOCK_BYTES).contains(&found_bytes) {
        let source = ImageError::Truncated { expected_bytes: 2 * BLOCK_BYTES, found_bytes }.into();
        return Err(DirectoryError::Image { path: path.to_owned(), source });
    }
    // A file that was empty when it was opened may hold an image by now. It must not be taken for a
    // new file. (The size of a block device does not show its contents.)
    let capacity_bytes = ours.st_size as u64 / BLOCK_BYTES * BLOCK_BYTES;
    Ok((ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino)
        && (capacity_bytes == 0 || capacity_bytes == image.capacity_bytes()))
}

#[cfg(test)]
mod tests {
    use perdura_media::file::{Direct, Engine};

    use super::*;

    #[test]
    fn a_file_that_is_too_short_for_an_image_is_refused_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(IMAGE_NAME);
        std::fs::write(&path, "notes").unwrap();
        let file = FileDevice::open(&path, OpenMode::Existing, Engine::Auto, Direct::Auto).unwrap();
        let refused = own_image(&path, &file).unwrap_err().to_string();
        assert!(refused.contains("truncated: 5 bytes"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"notes");
    }

    #[test]
    fn an_image_that_somebody_made_between_opening_and_locking_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(IMAGE_NAME);
        let open = |mode| FileDevice::open(&path, mode, Engine::Auto, Direct::Auto).unwrap();
        let ours = open(OpenMode::Create { capacity_bytes: 0 });
        let theirs = open(OpenMode::Existing);
        assert!(own_image(&path, &theirs).unwrap());
        assert!(!own_image(&path, &ours).unwrap());
        theirs.grow(1 << 20).unwrap();
        drop(theirs);
        assert!(!own_image(&path, &ours).unwrap());
        drop(ours);
        assert!(own_image(&path, &open(OpenMode::Existing)).unwrap());
    }
}
