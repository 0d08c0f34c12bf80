//! Simulated files whose power can be cut at every step: the real code of [`crate::file`] runs over
//! them unchanged.
//!
//! - Bytes of a file are pending until `fdatasync`, `fsync` or a write with `RWF_DSYNC` covers
//!   them. A power cut loses, keeps or tears pending bytes as in a [`crate::SimDevice`]; an
//!   unsynced size may be undone.
//! - A created, renamed or removed name, a folder's too, is pending until the folder that it lies
//!   in is synced. Syncing the file itself does not keep its name.
//! - Each completed write, sync, reservation and change of a name is one *durable operation*, at
//!   which [`SimFiles::cut_after`] can cut and [`SimFiles::fail_at`] can fail.
//! - Calls are interrupted and reads and writes cut short now and then, as the seed decides.

mod disk;
mod ring;
#[cfg(test)]
mod tests;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::sys::{FileKind, FileSystem, OpenFile, Source};
use disk::Disk;
use ring::SimRing;
use tree::Node;

/// Simulated files in folders. Clones are handles to the same files. At first there is only the
/// folder `/`.
#[derive(Clone)]
pub struct SimFiles {
    disk: Arc<Mutex<Disk>>,
}

/// An open simulated file or folder.
pub struct SimFile {
    disk: Arc<Mutex<Disk>>,
    node: Node,
    path: PathBuf,
    flags: AtomicU32,
}

impl SimFiles {
    /// An empty file system. `seed` decides which calls are cut short, the order in which queued
    /// writes complete, and whether space can be reserved.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { disk: Arc::new(Mutex::new(Disk::new(seed))) }
    }

    /// Durable operations done so far.
    #[must_use]
    pub fn ops(&self) -> u64 {
        self.disk.lock().ops
    }

    /// Lets `ops` durable operations (counted from the start) happen, and cuts the power at the
    /// next one: it and every later call fail. A write at which the power is cut may survive.
    pub fn cut_after(&self, ops: u64) {
        self.disk.lock().cut_after = Some(ops);
    }

    /// Makes the durable operation number `op` (counted from the start) fail with EIO, once. It has
    /// no effect, but a write may survive.
    pub fn fail_at(&self, op: u64) {
        self.disk.lock().fail_at = Some(op);
    }

    /// Cuts the power and returns the files as they come up again: what was synced, and of the
    /// rest what `seed` decides. This handle stays off; another seed shows another outcome of the
    /// same cut.
    #[must_use]
    pub fn power_cycle(&self, seed: u64) -> SimFiles {
        let mut disk = self.disk.lock();
        disk.off = true;
        Self { disk: Arc::new(Mutex::new(disk.survivors(seed))) }
    }
}

impl FileSystem for SimFiles {
    type File = SimFile;

    fn open(&self, path: &Path, flags: OFlags, _mode: Mode) -> Result<SimFile, Errno> {
        let mut disk = self.disk.lock();
        let node = match disk.find(path)? {
            Some(_) if flags.contains(OFlags::CREATE | OFlags::EXCL) => return Err(Errno::EXIST),
            Some(Node::File(_)) if flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
            Some(node) => node,
            None if flags.contains(OFlags::CREATE) => disk.create(path)?,
            None => return Err(Errno::NOENT),
        };
        let (disk, path) = (Arc::clone(&self.disk), path.to_owned());
        Ok(SimFile { disk, node, path, flags: AtomicU32::new(flags.bits()) })
    }

    fn mkdir(&self, path: &Path, _mode: Mode) -> Result<(), Errno> {
        self.disk.lock().mkdir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Errno> {
        self.disk.lock().rename(from, to)
    }

    fn unlink(&self, path: &Path) -> Result<(), Errno> {
        self.disk.lock().unlink(path)
    }
}

impl SimFile {
    fn number(&self) -> Result<usize, Errno> {
        match self.node {
            Node::File(number) => Ok(number),
            Node::Folder => Err(Errno::ISDIR),
        }
    }
}

impl OpenFile for SimFile {
    type Ring = SimRing;

    fn kind(&self) -> Result<FileKind, Errno> {
        Ok(match self.node {
            Node::File(_) => FileKind::Regular,
            Node::Folder => FileKind::Other,
        })
    }

    fn end_bytes(&self) -> Result<u64, Errno> {
        self.disk.lock().len_bytes(self.number()?)
    }

    fn flags(&self) -> Result<OFlags, Errno> {
        Ok(OFlags::from_bits_retain(self.flags.load(Relaxed)))
    }

    fn set_flags(&self, flags: OFlags) -> Result<(), Errno> {
        self.flags.store(flags.bits(), Relaxed);
        Ok(())
    }

    fn fallocate(&self, len_bytes: u64) -> Result<(), Errno> {
        self.disk.lock().fallocate(self.number()?, len_bytes)
    }

    fn pread(&self, buf: &mut [u8], offset_bytes: u64) -> Result<usize, Errno> {
        self.disk.lock().read(self.number()?, buf, offset_bytes)
    }

    fn pwritev2(&self, source: Source<'_>, offset_bytes: u64, flags: i32) -> Result<usize, Errno> {
        self.disk.lock().write(self.number()?, source, offset_bytes, flags)
    }

    fn fdatasync(&self) -> Result<(), Errno> {
        self.fsync()
    }

    fn fsync(&self) -> Result<(), Errno> {
        let mut disk = self.disk.lock();
        match self.node {
            Node::File(number) => disk.sync_file(number),
            Node::Folder => disk.sync_folder(&self.path),
        }
    }
}

impl std::fmt::Debug for SimFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimFiles").field("ops", &self.ops()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SimFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimFile").field("path", &self.path).finish_non_exhaustive()
    }
}
