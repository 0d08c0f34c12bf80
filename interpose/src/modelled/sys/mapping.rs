//! A shared mapping that reaches beyond the file's end: bytes that the file gains are mapped
//! already.

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;

use rustix::fs::{StatFs, fstatfs};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Maps a file for `len_bytes`, whatever its length is.
pub fn map(file: BorrowedFd<'_>, len_bytes: u64, is_written: bool) -> Result<*mut u8, Errno> {
    let len = usize::try_from(len_bytes).map_err(|_| Errno::NOMEM)?;
    let protection = match is_written {
        true => ProtFlags::READ | ProtFlags::WRITE,
        false => ProtFlags::READ,
    };
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    // SAFETY: fresh addresses that the kernel chooses.
    unsafe { mmap(ptr::null_mut(), len, protection, flags, file, 0) }.map(<*mut _>::cast)
}

/// Enters pages of a file in memory without holes into the page table, so that copies do not fault.
/// It is only faster: an error is ignored.
pub fn populate(file: BorrowedFd<'_>, start: *mut u8, size_bytes: u64) {
    let is_whole =
        rustix::fs::fstat(file.as_fd()).is_ok_and(|stat| stat.st_blocks as u64 * 512 >= size_bytes);
    let is_memory = fstatfs(file).is_ok_and(|StatFs { f_type, .. }| f_type == TMPFS_MAGIC);
    if is_whole && is_memory && size_bytes > 0 {
        // SAFETY: the mapping just made, which is at least as long; its contents stay as they are.
        let _ = unsafe { madvise(start.cast(), size_bytes as usize, Advice::LinuxPopulateRead) };
    }
}

/// Undoes [`map`].
///
/// # Safety
/// `start` and `len_bytes` are those of a mapping by [`map`], which is not used any more.
pub unsafe fn unmap(start: *mut u8, len_bytes: u64) {
    // SAFETY: the caller's promise.
    let outcome = unsafe { munmap(start.cast(), len_bytes as usize) };
    debug_assert!(outcome.is_ok(), "a mapping of our own");
}
