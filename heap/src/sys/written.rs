//! Which pages of a range were written since it was last asked: userfaultfd's asynchronous write-protection and
//! `PAGEMAP_SCAN` (Linux 6.7), by hand. A write to a protected page costs one fault, which the kernel resolves itself.
//!
//! Soft-dirty bits would do the same on older kernels, but are reset for the whole process at once (`clear_refs`):
//! two users of them lose each other's writes, so they are not used.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

const API: u64 = 0xAA;
const FEATURES: u64 = 1 << 0 | 1 << 12 | 1 << 13 | 1 << 15;
const USER_MODE_ONLY: i32 = 1;
const REGISTER_MODE_WP: u64 = 1 << 1;
/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Ranges of one call.
const RANGES: usize = 128;
const SCAN_PROTECT: u64 = 1 << 0;
const IS_WRITTEN: u64 = 1 << 1;

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

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

#[repr(C)]
#[derive(Default)]
struct ScanArgs {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

const fn iowr<T>(kind: u64, number: u64) -> u64 {
    3 << 30 | (size_of::<T>() as u64) << 16 | kind << 8 | number
}

const IOCTL_API: u64 = iowr::<ApiArgs>(API, 0x3f);
const IOCTL_REGISTER: u64 = iowr::<RegisterArgs>(API, 0);
const IOCTL_SCAN: u64 = iowr::<ScanArgs>(b'f' as u64, 16);

/// A watched range of whole pages.
#[derive(Debug)]
pub struct Written {
    /// Dropping it ends the protection.
    _uffd: OwnedFd,
    pagemap: File,
    start: u64,
    end: u64,
}

impl Written {
    /// Watches a mapped range; at first all of it counts as written.
    pub fn watch(start: *mut u8, len: u64) -> Result<Self, Errno> {
        let pagemap = File::open("/proc/self/pagemap").map_err(|error| errno_of(&error))?;
        let flags = i64::from(libc::O_CLOEXEC | USER_MODE_ONLY);
        // SAFETY: makes a descriptor, which is owned from here on.
        let uffd = unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, flags);
            if fd < 0 {
                return Err(errno_of(&std::io::Error::last_os_error()));
            }
            OwnedFd::from_raw_fd(fd as i32)
        };
        let mut api = ApiArgs { api: API, features: FEATURES, ioctls: 0 };
        // SAFETY: the structure is what the call takes and outlives it.
        unsafe { ioctl(uffd.as_raw_fd(), IOCTL_API, (&raw mut api).cast())? };
        let start = start as u64;
        let mut args = RegisterArgs { start, len, mode: REGISTER_MODE_WP, ioctls: 0 };
        // SAFETY: as above; registering changes no byte of the range.
        unsafe { ioctl(uffd.as_raw_fd(), IOCTL_REGISTER, (&raw mut args).cast())? };
        Ok(Self { _uffd: uffd, pagemap, start, end: start + len })
    }

    /// Hands up to `max_pages` pages written since they were last handed out, from page `from` on, to `each`: their
    /// numbers. They are protected again before. Returns the page to go on from; `None`: that was the end.
    pub fn take(
        &self,
        from: u64,
        max_pages: u64,
        mut each: impl FnMut(std::ops::Range<u64>),
    ) -> Result<Option<u64>, Errno> {
        let mut ranges = [PageRegion::default(); RANGES];
        let mut args = ScanArgs {
            size: size_of::<ScanArgs>() as u64,
            flags: SCAN_PROTECT,
            start: self.start + from * PAGE_BYTES,
            end: self.end,
            vec: ranges.as_mut_ptr() as u64,
            vec_len: RANGES as u64,
            max_pages,
            category_mask: IS_WRITTEN,
            return_mask: IS_WRITTEN,
            ..ScanArgs::default()
        };
        // SAFETY: the structures are what the call takes and outlive it; protection changes no byte.
        let found = unsafe { ioctl(self.pagemap.as_raw_fd(), IOCTL_SCAN, (&raw mut args).cast())? };
        for range in ranges.iter().take(found as usize) {
            let page = |address: u64| (address - self.start) / PAGE_BYTES;
            each(page(range.start)..page(range.end));
        }
        Ok((args.walk_end < self.end).then_some((args.walk_end - self.start) / PAGE_BYTES))
    }
}

/// # Safety
/// `argument` is what the request takes.
unsafe fn ioctl(fd: i32, request: u64, argument: *mut libc::c_void) -> Result<i32, Errno> {
    // SAFETY: the caller's promise.
    let done = unsafe { libc::ioctl(fd, request as _, argument) };
    if done < 0 { Err(errno_of(&std::io::Error::last_os_error())) } else { Ok(done) }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Mapping;

    #[test]
    fn written_pages_are_handed_out_once() {
        let mapping = Mapping::anonymous(64 * PAGE_BYTES).unwrap();
        // Kernels before 6.7 do not have it; who uses it has another way then.
        let Ok(watched) = Written::watch(mapping.base(), 64 * PAGE_BYTES) else { return };
        let all = || {
            let (mut pages, mut from) = (Vec::new(), Some(0));
            while let Some(at) = from {
                from = watched.take(at, 10, |range| pages.extend(range)).unwrap();
            }
            pages
        };
        assert_eq!(all(), (0..64).collect::<Vec<_>>(), "all at first");
        assert_eq!(all(), []);
        for page in [3, 4, 40, 63] {
            // SAFETY: inside the mapping, which nobody else uses.
            unsafe { mapping.base().add(page * 4096 + 17).write_volatile(1) };
        }
        assert_eq!(all(), [3, 4, 40, 63]);
        assert_eq!(all(), []);
    }
}
