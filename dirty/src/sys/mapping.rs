//! Shared mappings of memory files.
//!
//! Invariants: a [`Mapping`] stays valid and at one address until it is dropped; every access is
//! checked against its length. Bytes may be changed by other threads (under a lane) and are
//! therefore reached through atomics, through copies, or through slices whose exclusion the caller
//! argues.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fcntl_add_seals,
    fcntl_get_seals, ftruncate, linkat, memfd_create, openat,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MlockFlags, ProtFlags, mlock_with, mmap, mmap_anonymous, munmap};

/// Bytes of a huge page on the machines that we know. Where huge pages have another size, gathering
/// is refused and small pages serve.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Linux's number of the advice, which is the same on all architectures that we support; the musl
/// headers lack it.
const MADV_COLLAPSE: libc::c_int = 25;
#[cfg(target_env = "gnu")]
const _: () = assert!(MADV_COLLAPSE == libc::MADV_COLLAPSE);

/// A memory file, which exists as long as any process holds a descriptor of it, or as it has a name
/// in a file system ([`SharedMemory::create_in`]).
///
/// Without a file system its size is sealed, so that no process can take pages away under a
/// mapping. It is not sealed against writing (`F_SEAL_FUTURE_WRITE`): seals belong to the file and
/// not to a descriptor, they can never be removed, and a restarted server must map the file for
/// writing again. So a process that is given the descriptor could map it for writing or call
/// `pwrite`; the library hands no such mapping out.
#[derive(Debug)]
pub struct SharedMemory {
    fd: OwnedFd,
    len_bytes: u64,
    /// Whether the file is in no file system, and so has a sealed length.
    is_anonymous: bool,
    /// Whether the file lies in persistent memory that is mapped as it is (DAX). A page of it is
    /// durable as soon as it can be stored to.
    is_dax: bool,
}

impl SharedMemory {
    /// Makes a sparse memory file of zeros.
    pub fn create(name: &str, len_bytes: u64) -> Result<Self, Errno> {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, len_bytes)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Self { fd, len_bytes, is_anonymous: true, is_dax: false })
    }

    /// Makes a sparse file of zeros in the file system of `dir`. It has no name until
    /// [`SharedMemory::link`] gives it one, and is gone with the last descriptor until then.
    pub fn create_in(dir: impl AsFd, len_bytes: u64) -> Result<Self, Errno> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = openat(dir, c".", flags, Mode::RUSR | Mode::WUSR)?;
        ftruncate(&fd, len_bytes)?;
        Self::from_fd(fd)
    }

    /// Gives a file of a file system its name.
    pub fn link(&self, path: &Path) -> Result<(), Errno> {
        let own = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        linkat(CWD, own, CWD, path, AtFlags::SYMLINK_FOLLOW)
    }

    /// Gives the first bytes of a file in a file system their space, because a store for which
    /// there is none ends the process.
    pub fn reserve(&self, len_bytes: u64) -> Result<(), Errno> {
        if self.is_anonymous {
            return Ok(());
        }
        loop {
            match fallocate(&self.fd, FallocateFlags::empty(), 0, len_bytes) {
                Err(Errno::INTR) => {}
                outcome => return outcome,
            }
        }
    }

    /// Adopts a descriptor handed over by another process.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Errno> {
        let len_bytes = rustix::fs::fstat(&fd)?.st_size as u64;
        let is_anonymous = fcntl_get_seals(&fd).is_ok_and(|it| it.contains(SealFlags::SHRINK));
        let is_dax = !is_anonymous && maps_persistent_memory(&fd);
        Ok(Self { fd, len_bytes, is_anonymous, is_dax })
    }

    /// Whether the file lies in persistent memory that is mapped as it is (DAX).
    pub fn is_dax(&self) -> bool {
        self.is_dax
    }

    /// Size of the file, bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The descriptor, to be handed to a holder.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reads from the file without touching a mapping. Pages that were never written read as zeros
    /// and get no memory.
    pub fn read_at(&self, offset: u64, mut bytes: &mut [u8]) -> Result<(), Errno> {
        let mut at = offset;
        while !bytes.is_empty() {
            match rustix::io::pread(&self.fd, &mut *bytes, at) {
                Ok(0) => return Err(Errno::INVAL),
                Ok(len) => {
                    at += len as u64;
                    bytes = &mut bytes[len..];
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Takes away the memory of a range of whole pages, which reads as zeros in every mapping from
    /// now on.
    pub fn punch(&self, offset: u64, len_bytes: u64) -> Result<(), Errno> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        loop {
            match fallocate(&self.fd, flags, offset, len_bytes) {
                Err(Errno::INTR) => {}
                outcome => return outcome,
            }
        }
    }

    /// Maps the whole file, shared, at an address that is a multiple of a huge page, so that its
    /// huge pages can be mapped as such.
    pub fn map(&self) -> Result<Mapping, Errno> {
        let len = self.len_bytes as usize;
        let room = len.checked_add(HUGE_PAGE_BYTES).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: fresh, inaccessible addresses which the kernel chooses; nothing else refers to
        // them.
        let free =
            unsafe { mmap_anonymous(std::ptr::null_mut(), room, ProtFlags::empty(), flags)? };
        let before = free.addr().next_multiple_of(HUGE_PAGE_BYTES) - free.addr();
        let (at, len_up) = (free.wrapping_byte_add(before), len.next_multiple_of(4096));
        let sharing = if self.is_dax { SYNC } else { MapFlags::SHARED };
        // SAFETY: the addresses replaced or given back are those just taken. The file is never
        // shrunk, so no access inside `len` can fault for being beyond its end.
        let mapped = unsafe {
            let mapped = mmap(
                at,
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                sharing | MapFlags::NORESERVE | MapFlags::FIXED,
                &self.fd,
                0,
            );
            if before > 0 {
                munmap(free, before)?;
            }
            let after = at.wrapping_byte_add(len_up);
            munmap(after, free.addr() + room - after.addr())?;
            mapped
        };
        match mapped {
            Ok(ptr) => Ok(Mapping { ptr: ptr.cast(), len }),
            Err(errno) => {
                // SAFETY: the addresses that were to be replaced are still ours alone.
                unsafe { munmap(at, len_up)? };
                Err(errno)
            }
        }
    }
}

/// Shared, of a file in persistent memory: what the file system must know of a page is durable
/// before the page can be stored to.
const SYNC: MapFlags = MapFlags::SHARED_VALIDATE.union(MapFlags::SYNC);

/// Whether the kernel maps this file's persistent memory as it is. It is tried, because no file
/// system says so.
fn maps_persistent_memory(fd: &OwnedFd) -> bool {
    let (none, page) = (std::ptr::null_mut(), 4096);
    // SAFETY: fresh addresses that the kernel chooses, which nobody is told of.
    unsafe {
        mmap(none, page, ProtFlags::READ, SYNC, fd, 0).is_ok_and(|at| munmap(at, page).is_ok())
    }
}

/// A mapped range of bytes.
#[derive(Debug)]
pub struct Mapping {
    ptr: *mut u8,
    len: usize,
}

// SAFETY: the mapping is plain memory owned by this value; it is reached through atomics or through
// ranges whose exclusion the callers argue, so moving or sharing the handle adds no new access.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps private zeroed memory that is allocated on first touch: for large tables that are
    /// mostly unused.
    pub fn anonymous(len_bytes: u64) -> Result<Self, Errno> {
        let len = (len_bytes as usize).max(4096);
        // SAFETY: as in `SharedMemory::map`.
        let ptr = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        Ok(Self { ptr: ptr.cast(), len })
    }

    /// Keeps pages of the mapping in DRAM from their first touch on, because dirty data must not be
    /// on a swap device. Without `CAP_IPC_LOCK` the system refuses more than `RLIMIT_MEMLOCK`.
    pub fn lock_in_memory(&self) -> Result<(), Errno> {
        // SAFETY: the range is this mapping; locking changes where its pages may be, not what they
        // hold.
        unsafe { mlock_with(self.ptr.cast(), self.len, MlockFlags::ONFAULT) }
    }

    /// Gives a range its memory now, in huge pages. A device is handed physically contiguous
    /// pieces: with 4 KiB pages a write of 1 MiB is 256 pieces, which halved the rate of the
    /// devices measured. `MADV_COLLAPSE` (Linux 6.1) works for memory files also where huge pages
    /// are not the system's default. It needs one small page of each huge page to be there, and
    /// clears the others in place, eight times cheaper than page by page.
    pub(crate) fn gather(&self, offset: u64, len: usize) -> Result<(), Errno> {
        assert!(offset.is_multiple_of(HUGE_PAGE_BYTES as u64), "gathering from {offset}");
        let ptr = self.check(offset, len);
        for piece in (0..len - len % HUGE_PAGE_BYTES).step_by(HUGE_PAGE_BYTES) {
            let at = ptr.wrapping_add(piece).cast();
            // SAFETY: the range is inside this mapping; its bytes stay as they are.
            unsafe {
                rustix::mm::madvise(at, 4096, rustix::mm::Advice::LinuxPopulateWrite)?;
                if libc::madvise(at.cast(), HUGE_PAGE_BYTES, MADV_COLLAPSE) != 0 {
                    let error = std::io::Error::last_os_error();
                    return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
                }
            }
        }
        Ok(())
    }

    /// Asks for huge pages from the first touch on, for private memory. Shared memory is gathered
    /// instead.
    pub fn prefer_huge_pages(&self) {
        // SAFETY: the range is this mapping; the advice changes which pages back it, not what they
        // hold. Where it is refused small pages serve.
        let _ = unsafe {
            rustix::mm::madvise(self.ptr.cast(), self.len, rustix::mm::Advice::LinuxHugepage)
        };
    }

    /// First byte of the mapping.
    pub fn base(&self) -> *mut u8 {
        self.ptr
    }

    /// Mapped length, bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len as u64
    }

    #[inline]
    fn check(&self, offset: u64, len: usize) -> *mut u8 {
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > self.len as u64) {
            self.leave(offset, len);
        }
        // SAFETY: the offset was just checked to lie inside the mapping.
        unsafe { self.ptr.add(offset as usize) }
    }

    #[cold]
    #[inline(never)]
    fn leave(&self, offset: u64, len: usize) -> ! {
        panic!("access of {len} bytes at {offset} leaves a mapping of {} bytes", self.len);
    }

    #[cold]
    #[inline(never)]
    fn misaligned(&self, offset: u64) -> ! {
        panic!("a word at {offset}, which is not a multiple of 8");
    }

    /// `count` 64-bit words at `offset`, a multiple of 8.
    #[inline]
    pub fn words(&self, offset: u64, count: usize) -> &[AtomicU64] {
        if !offset.is_multiple_of(8) {
            self.misaligned(offset);
        }
        // SAFETY: in bounds and aligned; atomics accept any bit pattern and shared mutation.
        unsafe { std::slice::from_raw_parts(self.check(offset, count * 8).cast(), count) }
    }

    /// `count` 32-bit words at `offset`, a multiple of 4.
    #[inline]
    pub fn half_words(&self, offset: u64, count: usize) -> &[AtomicU32] {
        assert_eq!(offset % 4, 0);
        // SAFETY: as in `words`.
        unsafe { std::slice::from_raw_parts(self.check(offset, count * 4).cast(), count) }
    }

    /// `count` 16-bit words at `offset`, a multiple of 2.
    pub(crate) fn quarter_words(&self, offset: u64, count: usize) -> &[AtomicU16] {
        assert_eq!(offset % 2, 0);
        // SAFETY: as in `words`.
        unsafe { std::slice::from_raw_parts(self.check(offset, count * 2).cast(), count) }
    }

    /// `count` single bytes at `offset`.
    pub fn octets(&self, offset: u64, count: usize) -> &[AtomicU8] {
        // SAFETY: as in `words`; bytes need no alignment.
        unsafe { std::slice::from_raw_parts(self.check(offset, count).cast(), count) }
    }

    /// `len` bytes at `offset`.
    ///
    /// # Safety
    /// No thread may change them while the slice lives.
    #[inline]
    pub unsafe fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        // SAFETY: in bounds; stability is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.check(offset, len), len) }
    }

    /// `len` bytes at `offset`, to be changed.
    ///
    /// # Safety
    /// No other reference to them, in any thread, may be used while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes_mut(&self, offset: u64, len: usize) -> &mut [u8] {
        // SAFETY: in bounds; exclusivity is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.check(offset, len), len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this value and is not used after drop. A failure leaves
        // the range mapped, which harms nobody.
        let _ = unsafe { munmap(self.ptr.cast(), self.len) };
    }
}
