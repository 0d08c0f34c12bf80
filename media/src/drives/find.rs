//! The drives behind a directory: through partitions, device mapper, md, loop devices, btrfs.

use std::io;
use std::path::{Path, PathBuf};

use super::drive::Drive;
use super::mounts::{Mount, mount};
use super::roots::{Roots, names, text};
use crate::sys::device_of;

/// Layers of block devices that are followed: a file system in an image file on md over encrypted
/// partitions has four.
const LAYERS_MAX: u32 = 16;

/// What lies behind a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behind {
    /// These drives, each once, sorted by name.
    Drives(Vec<Drive>),
    /// No drive of this machine, for certain: memory, or another machine.
    NoDrive {
        /// The file system, such as `tmpfs`.
        file_system: String,
    },
    /// Nobody tells: a file system over others, or one that does not name its drives.
    Unknown {
        /// What stands in the way.
        why: String,
    },
}

impl Behind {
    /// The drives, if any are known.
    pub fn drives(&self) -> &[Drive] {
        match self {
            Self::Drives(drives) => drives,
            Self::NoDrive { .. } | Self::Unknown { .. } => &[],
        }
    }
}

impl std::fmt::Display for Behind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Drives(drives) => {
                let names: Vec<_> = drives.iter().map(Drive::name).collect();
                f.write_str(&names.join("+"))
            }
            Self::NoDrive { file_system } => write!(f, "none ({file_system})"),
            Self::Unknown { why } => write!(f, "unknown ({why})"),
        }
    }
}

/// The drives behind a file or directory.
pub fn drives_behind(roots: &Roots, path: &Path) -> Behind {
    find(roots, path, 0)
}

fn find(roots: &Roots, path: &Path, layer: u32) -> Behind {
    let unknown = |why: String| Behind::Unknown { why };
    let place = match device_of(path) {
        Ok(place) => place,
        Err(error) => return unknown(format!("{}: {error}", path.display())),
    };
    if place.major != 0 {
        return behind_device(roots, place.major, place.minor, layer);
    }
    // A number that no block device has: the mount says what the file system lies on.
    match mount(roots, place.mount) {
        Ok(Some(mount)) => behind_mount(roots, &mount, layer),
        Ok(None) => unknown(format!("no mount has the number {}", place.mount)),
        Err(error) => unknown(format!("{}: {error}", roots.mounts.display())),
    }
}

/// The drives behind a mount whose file system has no block device's number.
pub(super) fn behind_mount(roots: &Roots, mount: &Mount, layer: u32) -> Behind {
    if mount.is_elsewhere() {
        return Behind::NoDrive { file_system: mount.file_system.clone() };
    }
    if mount.file_system == "btrfs" {
        let found = mount.btrfs_devices(roots).and_then(|devices| {
            let numbers = devices.iter().map(|device| device_number(&device.join("dev")));
            numbers.collect::<io::Result<Vec<_>>>()
        });
        return match found {
            Ok(numbers) if !numbers.is_empty() => gather(
                numbers.into_iter().map(|(major, minor)| behind_device(roots, major, minor, layer)),
            ),
            Ok(_) => Behind::Unknown { why: format!("btrfs on {}", mount.source) },
            Err(error) => Behind::Unknown { why: format!("btrfs on {}: {error}", mount.source) },
        };
    }
    Behind::Unknown { why: mount.file_system.clone() }
}

/// The drives behind a block device with this number.
pub(super) fn behind_device(roots: &Roots, major: u32, minor: u32, layer: u32) -> Behind {
    let entry = roots.sys.join("dev/block").join(format!("{major}:{minor}"));
    match std::fs::canonicalize(&entry) {
        Ok(dir) => behind_block(roots, &dir, layer),
        Err(error) => Behind::Unknown { why: format!("{}: {error}", entry.display()) },
    }
}

/// The drives behind a block device with this directory of sysfs.
fn behind_block(roots: &Roots, dir: &Path, layer: u32) -> Behind {
    let unknown = |path: &Path, error: io::Error| Behind::Unknown {
        why: format!("{}: {error}", path.display()),
    };
    if layer > LAYERS_MAX {
        return Behind::Unknown { why: format!("more than {LAYERS_MAX} layers of devices") };
    }
    if dir.join("partition").exists() {
        let Some(disk) = dir.parent() else {
            return Behind::Unknown { why: format!("{} is a partition of nothing", dir.display()) };
        };
        return behind_block(roots, disk, layer + 1);
    }
    let slaves_dir = dir.join("slaves");
    let slaves = match names(&slaves_dir) {
        Ok(slaves) => slaves,
        Err(error) => return unknown(&slaves_dir, error),
    };
    if !slaves.is_empty() {
        return gather(slaves.iter().map(|slave| {
            let link = slaves_dir.join(slave);
            match std::fs::canonicalize(&link) {
                Ok(slave) => behind_block(roots, &slave, layer + 1),
                Err(error) => unknown(&link, error),
            }
        }));
    }
    let backing = dir.join("loop/backing_file");
    if backing.exists() {
        return match text(&backing) {
            Ok(file) => find(roots, Path::new(&file), layer + 1),
            Err(error) => unknown(&backing, error),
        };
    }
    match Drive::new(roots, dir) {
        Ok(drive) => Behind::Drives(vec![drive]),
        Err(error) => unknown(dir, error),
    }
}

/// All of several; unknown if one is, because one drive that is not known may be any.
fn gather(parts: impl Iterator<Item = Behind>) -> Behind {
    let mut drives = Vec::new();
    let mut nowhere = None;
    for part in parts {
        match part {
            Behind::Drives(some) => drives.extend(some),
            none @ Behind::NoDrive { .. } => nowhere = Some(none),
            unknown @ Behind::Unknown { .. } => return unknown,
        }
    }
    drives.sort_by(|a, b| a.name().cmp(b.name()));
    drives.dedup();
    match nowhere {
        Some(none) if drives.is_empty() => none,
        _ => Behind::Drives(drives),
    }
}

/// The number in a file such as `dev` of sysfs: `8:1`.
pub(super) fn device_number(path: &Path) -> io::Result<(u32, u32)> {
    let text = text(path)?;
    let numbers = text
        .split_once(':')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    numbers.ok_or_else(|| {
        let why = format!("{}: expected a device's number, found {text:?}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, why)
    })
}

/// The directory of sysfs of a block device by its name.
pub(super) fn block_dir(roots: &Roots, name: &str) -> PathBuf {
    roots.sys.join("class/block").join(name)
}
