//! System calls on the file behind a device. Positional only: the offset of an open file
//! description is shared by every process that holds it.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use super::Source;

/// The kind of file behind a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Regular,
    BlockDevice,
    Other,
}

/// The use for which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
    /// Reading and writing of a new file, which must not exist yet.
    New,
}

/// Opens a file. A file that is created is private to its owner (0600).
pub(crate) fn open(path: &Path, access: Access) -> Result<OwnedFd, Errno> {
    let flags = match access {
        Access::Read => OFlags::RDONLY,
        Access::Write => OFlags::RDWR,
        Access::New => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
    };
    retry_on_intr(|| fs::open(path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR))
}

/// Makes the directory entry of a new file durable.
pub(crate) fn sync_parent(path: &Path) -> Result<(), Errno> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = retry_on_intr(|| fs::open(parent, flags, Mode::empty()))?;
    retry_on_intr(|| fs::fsync(&dir))
}

pub(crate) fn kind(fd: BorrowedFd<'_>) -> Result<FileKind, Errno> {
    let stat = fs::fstat(fd)?;
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::Regular,
        FileType::BlockDevice => FileKind::BlockDevice,
        _ => FileKind::Other,
    })
}

/// Size of a file or of a block device (whose `st_size` is 0). Moves the shared file offset, which
/// no code here uses.
pub(crate) fn end_bytes(fd: BorrowedFd<'_>) -> Result<u64, Errno> {
    fs::seek(fd, SeekFrom::End(0))
}

pub(crate) fn is_direct(fd: BorrowedFd<'_>) -> Result<bool, Errno> {
    Ok(fs::fcntl_getfl(fd)?.contains(OFlags::DIRECT))
}

/// Switches `O_DIRECT` for the open file description, so for every process that shares it. It is
/// set after the open, because a refused `open(O_CREAT | O_DIRECT)` leaves the file behind.
pub(crate) fn set_direct(fd: BorrowedFd<'_>, direct: bool) -> Result<(), Errno> {
    let mut flags = fs::fcntl_getfl(fd)?;
    flags.set(OFlags::DIRECT, direct);
    fs::fcntl_setfl(fd, flags)
}

/// Reserves space for the first `capacity_bytes` and makes the file at least that long.
pub(crate) fn reserve(fd: BorrowedFd<'_>, capacity_bytes: u64) -> Result<(), Errno> {
    retry_on_intr(|| fs::fallocate(fd, FallocateFlags::empty(), 0, capacity_bytes))
}

/// Makes completed writes durable. EINTR means that the wait was cut short before a verdict, not
/// that write-back failed, so asking again cannot swallow an error.
pub(crate) fn sync_data(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    retry_on_intr(|| fs::fdatasync(fd))
}

/// Takes a lock without waiting; `false` if another open file description holds it.
pub(crate) fn try_lock(fd: BorrowedFd<'_>, how: FlockOperation) -> Result<bool, Errno> {
    match retry_on_intr(|| fs::flock(fd, how)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

pub(crate) fn read(fd: BorrowedFd<'_>, offset_bytes: u64, buf: &mut [u8]) -> Result<usize, Errno> {
    rustix::io::pread(fd, buf, offset_bytes)
}

/// The place that a write has reached when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The device, or the page cache.
    Device,
    /// The medium that keeps bytes without power.
    Medium,
}

pub(crate) fn write(
    fd: BorrowedFd<'_>,
    offset_bytes: u64,
    source: Source<'_>,
    reach: Reach,
) -> Result<usize, Errno> {
    let offset = libc::off_t::try_from(offset_bytes).map_err(|_| Errno::FBIG)?;
    let flags = match reach {
        Reach::Device => 0,
        Reach::Medium => libc::RWF_DSYNC,
    };
    let part =
        libc::iovec { iov_base: source.ptr().cast_mut().cast(), iov_len: source.len_bytes() };
    // SAFETY: the kernel only reads `source`, valid and unchanged by its promise, and only during
    // the call; the borrow keeps the descriptor open.
    let written = unsafe { libc::pwritev2(fd.as_raw_fd(), &part, 1, offset, flags) };
    usize::try_from(written).map_err(|_| last_errno())
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Name of an errno, as people search for it.
pub(crate) fn errno_name(errno: Errno) -> String {
    let name = match errno {
        Errno::INVAL => "EINVAL",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::NOSYS => "ENOSYS",
        Errno::PERM => "EPERM",
        Errno::ACCESS => "EACCES",
        Errno::NOMEM => "ENOMEM",
        Errno::MFILE => "EMFILE",
        Errno::NFILE => "ENFILE",
        other => return format!("errno {}", other.raw_os_error()),
    };
    name.to_owned()
}
