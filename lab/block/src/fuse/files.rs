//! The two inodes of the mount, a directory and a file, and the operations on them. An operation
//! that would change a name or a size is refused.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use perdura_media::emulator::TimingError;
use perdura_media::{DeviceError, Due};

use super::FILE_NAME;
use crate::disk::Disk;

pub(super) struct Files {
    disk: Arc<dyn Disk>,
    cached: bool,
    timing_error: Arc<Mutex<TimingError>>,
    owner: (u32, u32),
}

const FILE: INodeNo = INodeNo(2);

/// How long the kernel may remember what it was told: names and sizes never change.
const FOREVER: Duration = Duration::from_secs(3600);

const BLOCK_BYTES: u32 = 4096;

/// Flag of `fallocate`, as the kernel numbers it.
const KEEP_SIZE: i32 = 0x01;
const PUNCH_HOLE: i32 = 0x02;
const ZERO_RANGE: i32 = 0x10;

thread_local! {
    /// Buffer of a worker for the bytes that it reads.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Files {
    pub fn new(disk: Arc<dyn Disk>, cached: bool, timing_error: Arc<Mutex<TimingError>>) -> Self {
        let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
        Self { disk, cached, timing_error, owner: (user.as_raw(), group.as_raw()) }
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let capacity_bytes = self.disk.capacity_bytes();
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o555, 0),
            FILE if self.disk.is_read_only() => (FileType::RegularFile, 0o400, capacity_bytes),
            FILE => (FileType::RegularFile, 0o600, capacity_bytes),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        })
    }

    /// Carries out an operation, and waits until the medium would be done.
    fn waited(
        &self,
        operation: impl FnOnce(&dyn Disk) -> Result<Due, DeviceError>,
    ) -> Result<(), Errno> {
        let disk = &*self.disk;
        let began = disk.now();
        let due = operation(disk).map_err(|error| {
            tracing::debug!("{error}");
            match error {
                DeviceError::OutOfRange { .. } | DeviceError::NoSpace { .. } => Errno::ENOSPC,
                _ => Errno::EIO,
            }
        })?;
        disk.wait(due);
        let modelled_ps = due.ps().saturating_sub(began.ps());
        let late_ps = disk.now().ps().saturating_sub(due.ps());
        self.timing_error.lock().count(modelled_ps, late_ps);
        Ok(())
    }

    fn writable(&self) -> Result<(), Errno> {
        if self.disk.is_read_only() { Err(Errno::EROFS) } else { Ok(()) }
    }

    fn allocate(&self, offset: u64, length: u64, mode: i32) -> Result<(), Errno> {
        self.writable()?;
        let end = offset.checked_add(length).filter(|end| *end <= self.disk.capacity_bytes());
        match mode & !KEEP_SIZE {
            // The range exists already: the file has its full size from the start.
            0 if end.is_some() => Ok(()),
            0 | ZERO_RANGE if end.is_none() => Err(Errno::ENOSPC),
            PUNCH_HOLE | ZERO_RANGE => {
                let end = end.unwrap_or_else(|| self.disk.capacity_bytes()).max(offset);
                self.waited(|disk| disk.discard(offset, end - offset))
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

fn finish(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Filesystem for Files {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Ask for larger requests and for several at a time. A kernel that lacks one of these works
        // without it.
        for wish in [InitFlags::FUSE_MAX_PAGES, InitFlags::FUSE_ASYNC_DIO] {
            if let Err(missing) = config.add_capabilities(wish) {
                tracing::debug!("the kernel lacks {missing:?}");
            }
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = (parent == INodeNo::ROOT && name == FILE_NAME).then(|| self.attributes(FILE));
        match found.flatten() {
            Some(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Setting times succeeds and has no effect, for times are not kept. Other attributes keep
    /// their values.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Some(attributes) = self.attributes(inode) else { return reply.error(Errno::ENOENT) };
        if size.is_some_and(|size| size != attributes.size) {
            return reply.error(Errno::EINVAL);
        }
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        reply.attr(&FOREVER, &attributes);
    }

    fn readdir(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, FILE_NAME),
        ];
        for (at, (inode, kind, name)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(inode, at, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if inode != FILE {
            return reply.error(Errno::EISDIR);
        }
        let flags = if self.cached {
            FopenFlags::FOPEN_KEEP_CACHE
        } else {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        };
        reply.opened(FileHandle(0), flags | FopenFlags::FOPEN_NOFLUSH);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let rest_bytes = self.disk.capacity_bytes().saturating_sub(offset);
        let len = u64::from(size).min(rest_bytes) as usize;
        if len == 0 {
            return reply.data(&[]);
        }
        READ.with_borrow_mut(|room| {
            if room.len() < len {
                room.resize(len, 0);
            }
            let place = &mut room[..len];
            match self.waited(|disk| disk.read(offset, place)) {
                Ok(()) => reply.data(&room[..len]),
                Err(error) => reply.error(error),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.writable().and_then(|()| self.waited(|disk| disk.write(offset, data)));
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        finish(reply, self.waited(|disk| disk.flush()));
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        finish(reply, self.allocate(offset, length, mode));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = self.disk.capacity_bytes() / u64::from(BLOCK_BYTES);
        reply.statfs(blocks, 0, 0, 2, 0, BLOCK_BYTES, 255, BLOCK_BYTES);
    }

    // Without these, the library's default answers would write a line to the log at each call.

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        reply.error(Errno::ENOSYS);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
}
