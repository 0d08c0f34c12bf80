//! Memory and ledger as files, which outlive every process, and the kernel, where their memory
//! does.
//!
//! ```text
//! MEMORY-DIR/perdura-IMAGE/region   link to the region's directory
//! MEMORY-DIR/perdura-IMAGE/boot     the boot of the kernel in which they were used last
//! MEMORY-DIR/perdura-IMAGE/memory   the region's memory
//! MEMORY-DIR/perdura-IMAGE/ledger   its ledger
//! DIR/memory                        link to MEMORY-DIR/perdura-IMAGE
//! ```
//!
//! - The link in the directory is made last, when the region is open, and removed last, when
//!   everything is on the SSD. Without it the image is complete, and files of a directory that were
//!   left are removed.
//! - Memory is used again only if it is of the newest run of its image, and if the kernel that used
//!   it last still runs or the memory is durable with all that processors cache (the *persistence
//!   domain* of the kernel's `libnvdimm`). Other memory may lack stores that its ledger has.

use std::fs::DirBuilder;
use std::io::ErrorKind::{self, NotFound};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Acquire;

use perdura_dirty::sys::SharedMemory;
use perdura_image::slots::read_slots;
use perdura_image::superblock::read_superblock;
use perdura_media::file::{Direct, Engine, Kernel, OpenMode, replace, sync_parent};
use perdura_media::{Device, FileDevice};
use rustix::fs::{Mode, OFlags, fstat, major, minor, open};

use super::error::DirectoryError;
use super::find::IMAGE_NAME;
use super::made::Made;
use super::rate::{RATE_NAME, read_record};
use crate::attachment::Attachment;
use crate::region::Region;

/// Name of the link in the directory.
const LINK_NAME: &str = "memory";
/// The beginning of the name of a place; the identity of the image follows.
const PLACE_PREFIX: &str = "perdura-";
/// The names in a place, in the order in which they are removed: memory is not used without its
/// ledger.
const NAMES: [&str; 5] = ["ledger", "memory", "boot", "boot.new", "region"];
/// The state in which memory is durable with everything that processors have cached.
const DURABLE_WITH_CACHES: &str = "cpu_cache";

/// The files of a region that an earlier run left.
pub(super) struct Kept {
    pub(super) memory: OwnedFd,
    pub(super) ledger: OwnedFd,
    /// Dirty bytes on the ledger's account.
    pub(super) used_bytes: u64,
}

/// The files that the directory's last run left, if they can be used. Others are removed, and the
/// log says why. The caller has the image's lock.
pub(super) fn find(dir: &Path, image: &dyn Device) -> Result<Option<Kept>, DirectoryError> {
    let Some(place) = place_of(dir)? else { return Ok(None) };
    match examine(&place, image) {
        Ok(kept) => {
            tracing::info!(
                place = %place.display(),
                dirty_bytes = kept.used_bytes,
                "going on with the memory that the last run left"
            );
            note_boot(&place)?;
            Ok(Some(kept))
        }
        Err(why) => {
            tracing::error!(
                place = %place.display(),
                "the memory that the last run left cannot be used, so the image is read, which may \
                 be older: {why}"
            );
            remove(dir)?;
            Ok(None)
        }
    }
}

/// Where the directory's memory and ledger are as files, if they are.
///
/// # Errors
/// The link to them cannot be read, or leads elsewhere.
pub fn place_of(dir: &Path) -> Result<Option<PathBuf>, DirectoryError> {
    let link = dir.join(LINK_NAME);
    match std::fs::read_link(&link) {
        Ok(place) => {
            let name = place.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(PLACE_PREFIX) {
                return Ok(Some(place));
            }
            let why = format!("{} is not what this program links to", place.display());
            Err(failed(&link, std::io::Error::new(ErrorKind::InvalidData, why)))
        }
        Err(error) if error.kind() == NotFound => Ok(None),
        Err(error) => Err(failed(&link, error)),
    }
}

/// Opens the files of a place if they can be used; otherwise says why not.
fn examine(place: &Path, image: &dyn Device) -> Result<Kept, String> {
    let file = |name: &str| {
        let path = place.join(name);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        open(&path, flags, Mode::empty()).map_err(|errno| format!("{}: {errno}", path.display()))
    };
    let (memory, ledger) = (file("memory")?, file("ledger")?);
    check_boot(place, &memory)?;
    let copy = |file: &OwnedFd| file.try_clone().map_err(|error| error.to_string());
    let found = Attachment::new(copy(&memory)?, copy(&ledger)?);
    let found = found.map_err(|error| error.to_string())?;
    let superblock = read_superblock(image).map_err(|error| error.to_string())?;
    let Some(head) = superblock else { return Err("the image is empty".into()) };
    let (geometry, image_id) = (head.geometry, head.image_id);
    let newest = read_slots(image, &geometry, image_id, None).map_err(|error| error.to_string())?;
    let run = (found.ledger.image_id().load(Acquire), found.ledger.incarnation().load(Acquire));
    if run != (image_id, u64::from(newest.header.incarnation.get())) {
        return Err("the image is another one, or was used since without this memory".into());
    }
    Ok(Kept { memory, ledger, used_bytes: found.used_bytes() })
}

/// Refuses memory that another kernel used last and that may lack what processors had cached then.
fn check_boot(place: &Path, memory: &OwnedFd) -> Result<(), String> {
    let used_in = std::fs::read_to_string(place.join("boot")).map_err(|error| error.to_string())?;
    let now = boot().map_err(|error| error.to_string())?;
    if used_in == now {
        return Ok(());
    }
    let copy = memory.try_clone().map_err(|error| error.to_string())?;
    let is_dax = SharedMemory::from_fd(copy).is_ok_and(|memory| memory.is_dax());
    let domain = persistence_domain(memory);
    match domain.as_deref() {
        Some(DURABLE_WITH_CACHES) if is_dax => Ok(()),
        domain => Err(format!(
            "the kernel was started anew since, and this memory may lack what processors had \
             cached (persistence domain: {}; mapped as it is: {is_dax})",
            domain.unwrap_or("none")
        )),
    }
}

/// Memory and ledger in files that no process uses, and their image, which this has locked.
#[derive(Debug)]
pub struct LeftInFiles {
    /// The region's memory.
    pub memory: OwnedFd,
    /// Its ledger.
    pub ledger: OwnedFd,
    /// Its image.
    pub image: OwnedFd,
    /// The user whose files they are.
    pub user: u32,
    /// The proven flush rate on record, bytes per second.
    pub rate_bytes_per_s: u64,
}

/// What runs left in files below `memory_dir`, as after a reboot. What a process uses is passed
/// over, and so is what cannot be used; the log says why.
///
/// # Errors
/// The directory cannot be read.
pub fn left_in_files(memory_dir: &Path) -> std::io::Result<Vec<LeftInFiles>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(memory_dir)? {
        let place = entry?.path();
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with(PLACE_PREFIX) {
            continue;
        }
        match take(&place) {
            Ok(left) => all.extend(left),
            Err(why) => tracing::warn!(place = %place.display(), "memory in files is left: {why}"),
        }
    }
    Ok(all)
}

/// Takes what lies in a place; `None`: a process uses it, or its start was cut off.
fn take(place: &Path) -> Result<Option<LeftInFiles>, String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let dir = std::fs::read_link(place.join("region")).map_err(|error| said(&error))?;
    let linked = place_of(&dir).map_err(|error| said(&error))?;
    let full = std::fs::canonicalize(place).map_err(|error| said(&error))?;
    if linked.as_deref() != Some(&*full) {
        return Ok(None);
    }
    let path = dir.join(IMAGE_NAME);
    let image = FileDevice::open(&path, OpenMode::Existing, Engine::Auto, Direct::Auto);
    let image = image.map_err(|error| said(&error))?;
    if !image.try_lock().map_err(|error| said(&error))? {
        return Ok(None);
    }
    let Kept { memory, ledger, .. } = examine(place, &image)?;
    let record = read_record(&dir.join(RATE_NAME)).map_err(|error| said(&error))?;
    let record = record.ok_or("no flush rate is on record")?;
    let user = fstat(&memory).map_err(|errno| said(&errno))?.st_uid;
    let image = image.as_fd().try_clone_to_owned().map_err(|error| said(&error))?;
    let rate_bytes_per_s = record.rate_bytes_per_s;
    Ok(Some(LeftInFiles { memory, ledger, image, user, rate_bytes_per_s }))
}

/// The number of the kernel's start.
fn boot() -> std::io::Result<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
}

/// What the kernel says of the device of a file: up to where stores are durable.
fn persistence_domain(file: &OwnedFd) -> Option<String> {
    let device = fstat(file).ok()?.st_dev;
    let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let device = std::fs::canonicalize(link).ok()?;
    let domain = |dir: &Path| std::fs::read_to_string(dir.join("persistence_domain")).ok();
    device.ancestors().find_map(domain).map(|domain| domain.trim().to_owned())
}

/// Notes that this kernel uses the files.
fn note_boot(place: &Path) -> Result<(), DirectoryError> {
    let path = place.join("boot");
    let boot = boot().map_err(|error| failed(&path, error))?;
    replace(&Kernel, &path, boot.as_bytes()).map_err(|errno| failed(&path, errno.into()))
}

/// Gives the files of an opened region their names, so that they outlive this process.
pub(super) fn publish(
    memory_dir: &Path,
    dir: &Path,
    region: &Region,
    made: &mut Made,
) -> Result<(), DirectoryError> {
    let backed = &region.running().backed;
    let image_id = backed.memory.ledger.image_id().load(Acquire);
    let full = |path: &Path| std::fs::canonicalize(path).map_err(|error| failed(path, error));
    let dir = full(dir)?;
    let place = full(memory_dir)?.join(format!("{PLACE_PREFIX}{image_id:016x}"));
    clear(&place, &dir)?;
    let link = dir.join(LINK_NAME);
    made.files.push(link.clone());
    made.files.extend(NAMES.map(|name| place.join(name)));
    made.dirs.push(place.clone());
    let begun = DirBuilder::new().mode(0o700).create(&place);
    let begun = begun.and_then(|()| symlink(&dir, place.join("region")));
    begun.map_err(|error| failed(&place, error))?;
    note_boot(&place)?;
    for (name, file) in [("memory", &backed.memory.file), ("ledger", backed.memory.ledger.memory())]
    {
        let path = place.join(name);
        file.link(&path).map_err(|errno| failed(&path, errno.into()))?;
        rustix::fs::fsync(file.fd()).map_err(|errno| failed(&path, errno.into()))?;
    }
    for path in [place.join("ledger"), place.clone()] {
        sync_parent(&Kernel, &path).map_err(|errno| failed(&path, errno.into()))?;
    }
    symlink(&place, &link).map_err(|error| failed(&link, error))?;
    sync_parent(&Kernel, &link).map_err(|errno| failed(&link, errno.into()))
}

/// Removes files that a start of this directory left half-made. Those of another directory are an
/// error.
fn clear(place: &Path, dir: &Path) -> Result<(), DirectoryError> {
    match std::fs::read_link(place.join("region")) {
        Ok(owner) if owner != dir => {
            let why = format!(
                "memory of {}, whose image is a copy of this one, or was moved here; delete {} if \
                 nobody needs it",
                owner.display(),
                place.display()
            );
            Err(failed(place, std::io::Error::new(ErrorKind::AlreadyExists, why)))
        }
        Err(error) if error.kind() != NotFound => Err(failed(place, error)),
        _ => remove_place(place),
    }
}

/// Removes the files of a directory, whose image is complete, and the link to them.
pub(super) fn remove(dir: &Path) -> Result<(), DirectoryError> {
    let Some(place) = place_of(dir)? else { return Ok(()) };
    remove_place(&place)?;
    let link = dir.join(LINK_NAME);
    std::fs::remove_file(&link).map_err(|error| failed(&link, error))
}

/// Removes what this module makes in a place, and nothing else.
fn remove_place(place: &Path) -> Result<(), DirectoryError> {
    let there = |outcome: std::io::Result<()>, path: PathBuf| match outcome {
        Err(error) if error.kind() != NotFound => Err(failed(&path, error)),
        _ => Ok(()),
    };
    for name in NAMES {
        let path = place.join(name);
        there(std::fs::remove_file(&path), path)?;
    }
    there(std::fs::remove_dir(place), place.to_owned())
}

fn failed(path: &Path, source: std::io::Error) -> DirectoryError {
    DirectoryError::File { path: path.to_owned(), source }
}
