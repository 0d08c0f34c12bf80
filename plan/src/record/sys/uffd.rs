//! The userfaultfd of another process's memory, for protection that the kernel itself takes away at a store.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

use super::last_errno;

const API: u64 = 0xAA;
const FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
const FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const FEATURE_WP_ASYNC: u64 = 1 << 15;
const REGISTER_MODE_WP: u64 = 1 << 1;

#[repr(C)]
struct ApiArgs {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct RegisterArgs {
    start: u64,
    len: u64,
    mode: u64,
    ioctls: u64,
}

const IOCTL_API: u64 = 3 << 30 | (size_of::<ApiArgs>() as u64) << 16 | API << 8 | 0x3F;
const IOCTL_REGISTER: u64 = 3 << 30 | (size_of::<RegisterArgs>() as u64) << 16 | API << 8;
const _: () = assert!(size_of::<ApiArgs>() == 24 && IOCTL_API == 0xc018_aa3f);
const _: () = assert!(size_of::<RegisterArgs>() == 32 && IOCTL_REGISTER == 0xc020_aa00);

/// A userfaultfd that another process made. Its calls act on that process's memory. When it is closed, by our end too,
/// the kernel takes all protection away.
#[derive(Debug)]
pub struct ForeignUffd {
    fd: OwnedFd,
}

impl ForeignUffd {
    /// Takes over descriptor `number` of a process. It stays open there.
    pub fn take(pid: i32, number: i32) -> Result<Self, Errno> {
        // SAFETY: the call takes numbers and gives a descriptor or -1.
        let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let process = owned(process)?;
        // SAFETY: as above.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
        Ok(Self { fd: owned(fd)? })
    }

    /// Agrees with the kernel that stores open pages without anybody waiting. `INVAL`: it cannot.
    pub fn agree(&self) -> Result<(), Errno> {
        let features = FEATURE_PAGEFAULT_FLAG_WP
            | FEATURE_WP_HUGETLBFS_SHMEM
            | FEATURE_WP_UNPOPULATED
            | FEATURE_WP_ASYNC;
        let mut args = ApiArgs { api: API, features, ioctls: 0 };
        // SAFETY: the structure is what IOCTL_API takes (asserted above) and outlives the call.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), IOCTL_API as _, &raw mut args) };
        if done < 0 { Err(last_errno()) } else { Ok(()) }
    }

    /// Makes a range protectable; nothing is protected yet. What is registered already stays as it is.
    pub fn register(&self, start: u64, end: u64) -> Result<(), Errno> {
        let mut args = RegisterArgs { start, len: end - start, mode: REGISTER_MODE_WP, ioctls: 0 };
        // SAFETY: as in `agree`; no byte of the other process changes.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), IOCTL_REGISTER as _, &raw mut args) };
        if done < 0 { Err(last_errno()) } else { Ok(()) }
    }
}

fn owned(number: libc::c_long) -> Result<OwnedFd, Errno> {
    if number < 0 {
        return Err(last_errno());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(number as i32) })
}
