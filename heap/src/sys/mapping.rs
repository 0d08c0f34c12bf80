//! The range of memory that a heap lies in.
//!
//! Invariant: a [`Mapping`] stays valid and at one address until it is dropped. Its bytes are
//! shared with other threads and with all processes that map the same file, so they are reached
//! through atomics or raw copies.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::io::Errno;
use rustix::mm::{Advice as Madvice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Bytes of a huge page.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Linux's number, the same on all architectures served; the musl headers do not name it.
const MADV_COLLAPSE: libc::c_int = 25;

/// The backing of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backed {
    /// A file on a DAX file system backs the mapping, so that a flushed line needs no system call
    /// (`MAP_SYNC`).
    Dax,
    /// Any other file backs the mapping.
    File,
    /// Nothing backs the mapping, which is private memory and gone with the process.
    Nothing,
    /// A file backs the mapping and is only read: changes are private, and gone with the process.
    Copy,
}

/// A request for the pages of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// The pages get their memory now, one after the other.
    Populate,
    /// The pages get their memory in huge pages now.
    Collapse,
    /// The pages give their memory back, and read as zeros afterwards.
    Empty,
}

/// A mapped range of bytes.
#[derive(Debug)]
pub struct Mapping {
    ptr: *mut u8,
    len: usize,
    backed: Backed,
    /// Whether private memory was put in the place of the backing.
    is_private: AtomicBool,
}

// SAFETY: plain memory owned by this value; it is reached through atomics or raw copies whose
// exclusion the callers argue, so moving or sharing the handle adds no access.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps private zeroed memory, whose pages come when they are touched.
    pub fn anonymous(len_bytes: u64) -> Result<Self, Errno> {
        let len = (len_bytes as usize).max(4096);
        let (at, free) = reserve(len)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the addresses replaced were just reserved and nothing refers to them.
        let mapped = unsafe { mmap_anonymous(at, len, ProtFlags::READ | ProtFlags::WRITE, flags) };
        Self::keep(mapped, len, free, Backed::Nothing)
    }

    /// Maps the first `len_bytes` of a file, which must be that long and must not shrink while it
    /// is mapped.
    pub fn file(file: &File, len_bytes: u64) -> Result<Self, Errno> {
        let len = len_bytes as usize;
        let (how, backed) = match is_dax(file) {
            true => (MapFlags::SHARED_VALIDATE | MapFlags::SYNC, Backed::Dax),
            false => (MapFlags::SHARED, Backed::File),
        };
        let (at, free) = reserve(len)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `anonymous`; that the file is long enough is the caller's promise.
        let mapped = unsafe { mmap(at, len, protection, how | MapFlags::FIXED, file.as_fd(), 0) };
        Self::keep(mapped, len, free, backed)
    }

    /// Maps a private copy of the first `len_bytes` of a file: changes stay in this process. The
    /// file must be that long and must not shrink.
    pub fn copy(file: &File, len_bytes: u64) -> Result<Self, Errno> {
        if len_bytes == 0 {
            // An empty file cannot be mapped, so it reads as one page of zeros, which is no heap.
            return Self::anonymous(0);
        }
        let len = len_bytes as usize;
        let (at, free) = reserve(len)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `anonymous`; that the file is long enough is the caller's promise.
        let mapped = unsafe { mmap(at, len, protection, flags, file.as_fd(), 0) };
        Self::keep(mapped, len, free, Backed::Copy)
    }

    fn keep(
        mapped: Result<*mut libc::c_void, Errno>,
        len: usize,
        free: Reserved,
        backed: Backed,
    ) -> Result<Self, Errno> {
        let ptr = mapped?.cast();
        free.trim(ptr, len);
        Ok(Self { ptr, len, backed, is_private: false.into() })
    }

    /// The address of the first byte.
    pub fn base(&self) -> *mut u8 {
        self.ptr
    }

    /// The number of bytes mapped.
    pub fn len_bytes(&self) -> u64 {
        self.len as u64
    }

    /// The backing of the mapping.
    pub fn backed(&self) -> Backed {
        if self.is_private.load(Relaxed) { Backed::Nothing } else { self.backed }
    }

    pub(super) fn become_private(&self) {
        self.is_private.store(true, Relaxed);
    }

    /// Asks the kernel for something about the pages of a range inside the mapping.
    ///
    /// # Safety
    /// For [`Advice::Empty`] no thread relies on the bytes of the range.
    pub unsafe fn advise(&self, offset: u64, len: usize, advice: Advice) -> Result<(), Errno> {
        assert!(offset + len as u64 <= self.len as u64, "advice about {len} bytes at {offset}");
        if self.backed() == Backed::Copy {
            // A private copy has no pages to give up, and each page touched would be a page copied.
            return Ok(());
        }
        let at = self.ptr.wrapping_add(offset as usize).cast::<libc::c_void>();
        // SAFETY: inside this mapping; only `Empty` changes bytes, and the caller answers for it.
        unsafe {
            match advice {
                Advice::Populate => madvise(at, len, Madvice::LinuxPopulateWrite),
                Advice::Empty if self.backed() == Backed::Nothing => {
                    madvise(at, len, Madvice::LinuxDontNeed)
                }
                Advice::Empty => madvise(at, len, Madvice::LinuxRemove),
                Advice::Collapse => collapse(at, len),
            }
        }
    }
}

/// Gives whole huge pages their memory. One small page of each must be there first: files ignore a
/// request for huge pages at the first touch, and so does memory in pieces.
unsafe fn collapse(at: *mut libc::c_void, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller's range; the bytes stay as they are.
    unsafe {
        for piece in (0..len - len % HUGE_PAGE_BYTES).step_by(HUGE_PAGE_BYTES) {
            let at = at.wrapping_byte_add(piece);
            madvise(at, 4096, Madvice::LinuxPopulateWrite)?;
            if libc::madvise(at, HUGE_PAGE_BYTES, MADV_COLLAPSE) != 0 {
                let error = std::io::Error::last_os_error();
                return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
            }
        }
    }
    Ok(())
}

/// Whether a file's lines need no system call to be durable. Tried on a page of its own: a mapping
/// at fixed addresses that a file system refuses late leaves a hole there, into which another
/// thread may map meanwhile.
fn is_dax(file: &File) -> bool {
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    // SAFETY: fresh addresses which the kernel chooses; they are not touched, and given back at
    // once.
    unsafe {
        let tried = mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, flags, file.as_fd(), 0);
        tried.is_ok_and(|page| munmap(page, 4096).is_ok())
    }
}

/// Inaccessible addresses, to be replaced by a mapping that begins at a multiple of a huge page.
struct Reserved {
    at: *mut libc::c_void,
    len: usize,
}

impl Reserved {
    /// Gives back the addresses around the mapping.
    fn trim(self, ptr: *mut u8, len: usize) {
        let before = ptr.addr() - self.at.addr();
        let end = len.next_multiple_of(4096) + before;
        // SAFETY: addresses of the reservation that the mapping does not use. A failure leaves them
        // reserved.
        unsafe {
            if before > 0 {
                let _ = munmap(self.at, before);
            }
            if end < self.len {
                let _ = munmap(self.at.wrapping_byte_add(end), self.len - end);
            }
        }
    }
}

/// Bytes of the largest alignment of a mapping.
pub const MAPPING_ALIGN_MAX: usize = 1 << 30;

/// Reserves addresses for a mapping, at a multiple of the largest alignment that objects in it may
/// ask for: a power of two that is not above the mapping's length.
fn reserve(len: usize) -> Result<(*mut libc::c_void, Reserved), Errno> {
    let align = (1 << len.max(1).ilog2()).clamp(HUGE_PAGE_BYTES, MAPPING_ALIGN_MAX);
    let room = len.checked_add(align).ok_or(Errno::NOMEM)?.next_multiple_of(4096);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: fresh addresses which the kernel chooses; nothing else refers to them.
    let at = unsafe { mmap_anonymous(std::ptr::null_mut(), room, ProtFlags::empty(), flags)? };
    let aligned = at.addr().next_multiple_of(align) - at.addr();
    Ok((at.wrapping_byte_add(aligned), Reserved { at, len: room }))
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by this value and not used after drop. A failure leaves it mapped, which
        // harms nobody.
        let _ = unsafe { munmap(self.ptr.cast(), self.len) };
    }
}
