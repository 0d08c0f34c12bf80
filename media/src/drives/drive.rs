//! One whole drive: its bus, its files, the requests that the kernel has counted.

use std::io;
use std::path::{Path, PathBuf};

use super::error::DriveError;
use super::find::device_number;
use super::roots::{Roots, names, text};

/// How a drive is connected, as far as its power has an interface there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bus {
    /// NVMe over PCI: the name of the one controller, such as `nvme0`.
    Nvme(String),
    /// A drive that speaks ATA, behind the kernel's SCSI layer.
    Ata,
    /// A SCSI drive that speaks no ATA, such as SAS, or a bridge that does not say so.
    Scsi,
    /// A drive of a virtual machine's host.
    Virtio,
    /// Something else; the words say what.
    Other(String),
}

impl std::fmt::Display for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nvme(_) => "nvme",
            Self::Ata => "ata",
            Self::Scsi => "scsi",
            Self::Virtio => "virtio",
            Self::Other(what) => what,
        })
    }
}

/// The requests to a drive, as the kernel has counted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// Reads, writes, discards and flushes that are done.
    pub done: u64,
    /// Requests under way.
    pub under_way: u64,
}

/// A whole drive of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    name: String,
    bus: Bus,
    /// The directory of sysfs of the block device.
    dir: PathBuf,
    /// The directory of the device that power commands go to: the NVMe controller, the SCSI device.
    device: PathBuf,
    dev: PathBuf,
}

impl Drive {
    /// The drive with this directory of sysfs.
    pub(super) fn new(roots: &Roots, dir: &Path) -> io::Result<Self> {
        let name = dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let name = name.ok_or_else(|| io::Error::other("no name"))?;
        let (bus, device) = bus(dir)?;
        Ok(Self { name, bus, dir: dir.to_owned(), device, dev: roots.dev.clone() })
    }

    /// The kernel's name of the drive, such as `nvme0n1` or `sda`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is connected.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// The requests that the kernel has counted, whoever asked for them. Commands about power are
    /// not among them.
    ///
    /// # Errors
    /// The kernel's file cannot be read, as when the drive was pulled out.
    pub fn requests(&self) -> io::Result<Requests> {
        let path = self.dir.join("stat");
        let text = text(&path)?;
        let fields = text.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>();
        let fields = fields.ok().filter(|fields| fields.len() >= 11).ok_or_else(|| {
            let why = format!("{}: expected 11 numbers or more, found {text:?}", path.display());
            io::Error::new(io::ErrorKind::InvalidData, why)
        })?;
        // Reads, writes; discards since Linux 4.18, flushes since 5.5.
        let count = |index: usize| fields.get(index).copied().unwrap_or(0);
        let done = [0, 4, 11, 15].map(count).iter().fold(0, |sum: u64, n| sum.wrapping_add(*n));
        Ok(Requests { done, under_way: fields[8] })
    }

    /// The kernel's own power management of the drive: `active`, `suspended` or `unsupported`, and
    /// whether it may suspend the drive (`auto`) or not (`on`). `None` where there is no such file.
    pub fn runtime(&self) -> Option<(String, String)> {
        let power = self.device_dir().join("power");
        let read = |name: &str| text(&power.join(name)).ok();
        Some((read("runtime_status")?, read("control")?))
    }

    /// Whether the kernel has suspended the drive.
    pub fn is_suspended(&self) -> bool {
        self.runtime().is_some_and(|(status, _)| status == "suspended" || status == "suspending")
    }

    /// The directory of the device whose power the kernel manages: for NVMe that of the PCI device,
    /// not that of the controller.
    fn device_dir(&self) -> PathBuf {
        match self.bus {
            Bus::Nvme(_) => self.device.join("device"),
            _ => self.device.clone(),
        }
    }

    /// Whether a directory of sysfs is that of the drive's device, or of a part of it.
    pub fn owns(&self, device: &Path) -> bool {
        !self.device.as_os_str().is_empty() && device.starts_with(&self.device)
    }

    /// The file of the device that power commands go to, and the device's number.
    ///
    /// # Errors
    /// The file is that of another device, as it may be in a container.
    pub(super) fn command_file(&self, what: &'static str) -> Result<PathBuf, DriveError> {
        let (path, number) = match &self.bus {
            Bus::Nvme(controller) => (self.dev.join(controller), self.device.join("dev")),
            _ => (self.dev.join(&self.name), self.dir.join("dev")),
        };
        let system =
            |path: &Path, source| DriveError::System { what, path: path.to_owned(), source };
        let (major, minor) = device_number(&number).map_err(|error| system(&number, error))?;
        let found = rustix::fs::stat(&path).map_err(|error| system(&path, error.into()))?;
        let of = |device| (rustix::fs::major(device), rustix::fs::minor(device));
        if of(found.st_rdev) != (major, minor) {
            let (found_major, found_minor) = of(found.st_rdev);
            let found = format!("{found_major}:{found_minor}");
            let expected = format!("{major}:{minor}");
            return Err(DriveError::OtherDevice { path, found, expected });
        }
        Ok(path)
    }
}

/// The bus of a drive for which the kernel names no device: it is made of something else.
pub const VIRTUAL: &str = "virtual";

/// How the drive with this directory is connected, and the directory of its device.
fn bus(dir: &Path) -> io::Result<(Bus, PathBuf)> {
    let device = match std::fs::canonicalize(dir.join("device")) {
        Ok(device) => device,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((Bus::Other(VIRTUAL.into()), PathBuf::new()));
        }
        Err(error) => return Err(error),
    };
    let name = name_of(&device);
    if name.starts_with("nvme-subsys") || is_controller(&name) {
        // A power state is the controller's: that of all its disks, of which another may be busy,
        // or one that must not sleep.
        let disks = names(&device)?.iter().filter(|name| is_nvme_disk(name)).count();
        if disks > 1 {
            return Ok((Bus::Other(format!("nvme with {disks} namespaces")), device));
        }
    }
    if name.starts_with("nvme-subsys") {
        // With native multipath, the disk belongs to the subsystem and not to a controller.
        let controllers = names(&device)?.into_iter().filter(|name| is_controller(name));
        return match controllers.collect::<Vec<_>>().as_slice() {
            [one] => nvme(std::fs::canonicalize(device.join(one))?, one),
            several => Ok((Bus::Other(format!("nvme by {} controllers", several.len())), device)),
        };
    }
    if is_controller(&name) {
        return nvme(device, &name);
    }
    let subsystem = match std::fs::canonicalize(device.join("subsystem")) {
        Ok(path) => name_of(&path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => "unknown".into(),
        Err(error) => return Err(error),
    };
    let bus = match subsystem.as_str() {
        // What libata gives as the vendor of every drive behind it.
        "scsi" if text(&device.join("vendor"))? == "ATA" => Bus::Ata,
        "scsi" => Bus::Scsi,
        "virtio" => Bus::Virtio,
        other => Bus::Other(other.to_owned()),
    };
    Ok((bus, device))
}

fn nvme(controller: PathBuf, name: &str) -> io::Result<(Bus, PathBuf)> {
    let bus = match text(&controller.join("transport"))?.as_str() {
        "pcie" => Bus::Nvme(name.to_owned()),
        other => Bus::Other(format!("nvme over {other}")),
    };
    Ok((bus, controller))
}

fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Whether a name is that of an NVMe controller: `nvme0`, and not `nvme0n1` or `nvme0c0n1`.
fn is_controller(name: &str) -> bool {
    name.strip_prefix("nvme").is_some_and(is_number)
}

/// Whether a name is that of a whole NVMe disk: `nvme0n1`, and not `nvme0` or `nvme0c0n1`.
fn is_nvme_disk(name: &str) -> bool {
    name.strip_prefix("nvme")
        .and_then(|numbers| numbers.split_once('n'))
        .is_some_and(|(first, second)| is_number(first) && is_number(second))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
