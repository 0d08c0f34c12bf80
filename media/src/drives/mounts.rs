//! Mounts of file systems that have no block device's number.

use std::io;
use std::path::PathBuf;

use super::find::block_dir;
use super::roots::{Roots, names, text};

/// File systems in memory, and of other machines.
const ELSEWHERE: &[&str] = &[
    "tmpfs",
    "ramfs",
    "devtmpfs",
    "hugetlbfs",
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "ceph",
    "9p",
    "virtiofs",
    "afs",
    "lustre",
    "gfs2",
    "proc",
    "sysfs",
];

/// A mount, as `/proc/self/mountinfo` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub file_system: String,
    pub source: String,
}

impl Mount {
    /// Whether no drive of this machine is behind it, for certain.
    pub fn is_elsewhere(&self) -> bool {
        ELSEWHERE.contains(&self.file_system.as_str())
    }

    /// The directories of sysfs of the block devices of a btrfs.
    pub fn btrfs_devices(&self, roots: &Roots) -> io::Result<Vec<PathBuf>> {
        let name = self.source_name(roots)?;
        let all = roots.sys.join("fs/btrfs");
        for uuid in names(&all)? {
            let devices = all.join(&uuid).join("devices");
            let found = match names(&devices) {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => continue,
                Err(error) => return Err(error),
            };
            if found.contains(&name) {
                return Ok(found.iter().map(|device| block_dir(roots, device)).collect());
            }
        }
        Ok(Vec::new())
    }

    /// The kernel's name of the device that was mounted: `/dev/mapper/data` is a link to `dm-0`.
    fn source_name(&self, roots: &Roots) -> io::Result<String> {
        let device = match self.source.strip_prefix("/dev/") {
            Some(rest) => roots.dev.join(rest),
            None => PathBuf::from(&self.source),
        };
        let device = std::fs::canonicalize(device)?;
        let name = device.file_name().map(|name| name.to_string_lossy().into_owned());
        name.ok_or_else(|| io::Error::other(format!("{} has no name", self.source)))
    }
}

/// The mount with this number.
pub(super) fn mount(roots: &Roots, number: u64) -> io::Result<Option<Mount>> {
    Ok(parse(&text(&roots.mounts)?, number))
}

/// The mount with this number in a text of the form of `/proc/self/mountinfo`: number, parent,
/// device, root, place, options, any more fields, `-`, type, source, options.
fn parse(text: &str, number: u64) -> Option<Mount> {
    let number = number.to_string();
    let line = text.lines().find(|line| line.split(' ').next() == Some(&number))?;
    let mut fields = line.split(' ').skip_while(|field| *field != "-").skip(1);
    let (file_system, source) = (fields.next()?, fields.next()?);
    Some(Mount { file_system: file_system.to_owned(), source: source.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
221 22 0:45 / /run/a\\040b rw - tmpfs tmpfs rw,size=1k\n\
23 22 0:46 /sub /srv rw shared:2 master:3 - btrfs /dev/mapper/data rw\n";

    #[test]
    fn a_mount_is_found_by_its_whole_number() {
        let found = |number| {
            parse(MOUNTS, number).map(|mount| (mount.file_system.clone(), mount.source.clone()))
        };
        let of = |kind: &str, source: &str| Some((kind.to_owned(), source.to_owned()));
        assert_eq!(found(22), of("ext4", "/dev/sda1"));
        assert_eq!(found(221), of("tmpfs", "tmpfs"));
        assert_eq!(found(23), of("btrfs", "/dev/mapper/data"));
        assert_eq!(found(2), None);
    }
}
