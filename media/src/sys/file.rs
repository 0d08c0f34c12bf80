//! The kernel's calls on files. Positional only: the offset of an open file description is shared
//! by every process that holds it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::{Errno, retry_on_intr};

use super::Source;
use super::calls::{FileKind, FileSystem, OpenFile};
use super::uring::Ring;

/// The files that the kernel knows.
#[derive(Clone, Copy, Debug)]
pub struct Kernel;

impl FileSystem for Kernel {
    type File = OwnedFd;

    fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        fs::open(path, flags, mode)
    }

    fn mkdir(&self, path: &Path, mode: Mode) -> Result<(), Errno> {
        fs::mkdir(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Errno> {
        fs::rename(from, to)
    }

    fn unlink(&self, path: &Path) -> Result<(), Errno> {
        fs::unlink(path)
    }
}

impl OpenFile for OwnedFd {
    type Ring = Ring;

    fn kind(&self) -> Result<FileKind, Errno> {
        let stat = fs::fstat(self)?;
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::Regular,
            FileType::BlockDevice => FileKind::BlockDevice,
            _ => FileKind::Other,
        })
    }

    /// Moves the shared file offset, which no code here uses: `st_size` of a block device is 0.
    fn end_bytes(&self) -> Result<u64, Errno> {
        fs::seek(self, SeekFrom::End(0))
    }

    fn flags(&self) -> Result<OFlags, Errno> {
        fs::fcntl_getfl(self)
    }

    fn set_flags(&self, flags: OFlags) -> Result<(), Errno> {
        fs::fcntl_setfl(self, flags)
    }

    fn fallocate(&self, len_bytes: u64) -> Result<(), Errno> {
        let before_bytes = self.end_bytes()?;
        let outcome = fs::fallocate(self, FallocateFlags::empty(), 0, len_bytes);
        if outcome.is_err() {
            // Some file systems keep what they found until there was no more, and others on the
            // disk would miss it. The first error is the one to tell.
            let _ = fs::ftruncate(self, before_bytes);
        }
        outcome
    }

    fn pread(&self, buf: &mut [u8], offset_bytes: u64) -> Result<usize, Errno> {
        rustix::io::pread(self, buf, offset_bytes)
    }

    fn pread_many(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<usize, Errno>> {
        super::reads::pread_many(self.as_fd(), reads)
    }

    fn pwritev2(&self, source: Source<'_>, offset_bytes: u64, flags: i32) -> Result<usize, Errno> {
        let offset = libc::off_t::try_from(offset_bytes).map_err(|_| Errno::FBIG)?;
        let part =
            libc::iovec { iov_base: source.ptr().cast_mut().cast(), iov_len: source.len_bytes() };
        // SAFETY: the kernel only reads `source`, valid and unchanged by its promise, and only
        // during the call; the borrow keeps the descriptor open.
        let written = unsafe { libc::pwritev2(self.as_raw_fd(), &part, 1, offset, flags) };
        usize::try_from(written).map_err(|_| last_errno())
    }

    fn fdatasync(&self) -> Result<(), Errno> {
        fs::fdatasync(self)
    }

    fn fsync(&self) -> Result<(), Errno> {
        fs::fsync(self)
    }
}

/// Takes a lock without waiting; `false` if another open file description holds it.
pub(crate) fn try_lock(fd: BorrowedFd<'_>, how: FlockOperation) -> Result<bool, Errno> {
    match retry_on_intr(|| fs::flock(fd, how)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
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
