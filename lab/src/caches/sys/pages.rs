//! Mapped pages that nobody else uses: touched one at a time or many at once, gathered in huge
//! pages.
//!
//! A range begins at the border of a huge page, both in the address space and in its file;
//! otherwise nothing could be gathered.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// Size of a page, bytes.
pub const PAGE_BYTES: usize = 4096;
/// Size of a huge page, bytes.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Linux's number, equal on all supported architectures; the musl headers do not name it.
const MADV_COLLAPSE: libc::c_int = 25;

/// The object that pages belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Pages without a file.
    Anonymous,
    /// Shared pages of a file in memory, like those of a region.
    MemoryFile,
}

/// A mapped, writable range; unmapped on drop.
#[derive(Debug)]
pub struct Pages {
    begin: NonNull<u8>,
    len_bytes: usize,
    reserved: NonNull<u8>,
    reserved_bytes: usize,
    _file: Option<OwnedFd>,
}

// SAFETY: this value alone owns the range, and its bytes are only reached as atomics.
unsafe impl Send for Pages {}
// SAFETY: this value alone owns the range, its bytes are only reached as atomics, and the advice
// given to the kernel changes no contents.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps fresh pages; none is present before it is touched.
    ///
    /// # Errors
    /// The kernel refuses the addresses or the file.
    pub fn map(backing: Backing, len_bytes: usize) -> Result<Self, Errno> {
        let reserved_bytes = len_bytes.checked_add(HUGE_PAGE_BYTES).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses fresh, inaccessible addresses; nothing else refers to them.
        let reserved = unsafe {
            mmap_anonymous(std::ptr::null_mut(), reserved_bytes, ProtFlags::empty(), flags)?
        };
        let reserved = NonNull::new(reserved.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let before =
            reserved.addr().get().next_multiple_of(HUGE_PAGE_BYTES) - reserved.addr().get();
        let at = reserved.as_ptr().wrapping_byte_add(before);
        let mut pages = Self {
            begin: NonNull::new(at).ok_or(Errno::NOMEM)?,
            len_bytes,
            reserved,
            reserved_bytes,
            _file: None,
        };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        match backing {
            // SAFETY: replaces addresses inside the range just reserved, to which nothing refers.
            Backing::Anonymous => unsafe {
                mmap_anonymous(at.cast(), len_bytes, protection, flags | MapFlags::FIXED)?;
            },
            Backing::MemoryFile => {
                let name = "perdura-bench-pages";
                let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?;
                rustix::fs::ftruncate(&file, len_bytes as u64)?;
                let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
                // SAFETY: replaces addresses inside the range just reserved; the file has the whole
                // length and is never shrunk, so no access faults.
                unsafe { mmap(at.cast(), len_bytes, protection, flags, &file, 0)? };
                pages._file = Some(file);
            }
        }
        Ok(pages)
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.begin.addr().get() as u64
    }

    /// Writes one byte of a page, so that the page is present.
    pub fn touch(&self, page: usize) {
        assert!(page < self.len_bytes / PAGE_BYTES, "page {page} of {} bytes", self.len_bytes);
        // SAFETY: inside the range (checked above), which is writable as long as `self` lives and
        // only reached as atomics.
        let byte = unsafe { AtomicU8::from_ptr(self.begin.as_ptr().add(page * PAGE_BYTES)) };
        byte.store(1, Ordering::Relaxed);
    }

    /// Makes all pages of a range present at once, each by itself.
    ///
    /// # Errors
    /// The kernel has no memory, or does not know this request (before Linux 5.14).
    pub fn populate(&self, at_bytes: usize, len_bytes: usize) -> Result<(), Errno> {
        populate(self.inside(at_bytes, len_bytes)?, len_bytes)
    }

    /// Gathers the whole huge pages that begin in a range; one page of each must be present.
    ///
    /// # Errors
    /// No huge page can be had, or the kernel does not know this request (before Linux 6.1).
    pub fn gather(&self, at_bytes: usize, len_bytes: usize) -> Result<(), Errno> {
        self.advise(at_bytes, len_bytes, MADV_COLLAPSE)
    }

    fn advise(&self, at_bytes: usize, len_bytes: usize, advice: i32) -> Result<(), Errno> {
        let at = self.inside(at_bytes, len_bytes)? as *mut libc::c_void;
        // SAFETY: a range of this mapping (checked by `inside`); its contents stay as they are.
        if unsafe { libc::madvise(at, len_bytes, advice) } != 0 {
            let code = std::io::Error::last_os_error().raw_os_error();
            return Err(code.map_or(Errno::IO, Errno::from_raw_os_error));
        }
        Ok(())
    }

    fn inside(&self, at_bytes: usize, len_bytes: usize) -> Result<u64, Errno> {
        let end = at_bytes.checked_add(len_bytes).ok_or(Errno::INVAL)?;
        if end > self.len_bytes {
            return Err(Errno::INVAL);
        }
        Ok(self.address() + at_bytes as u64)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range reserved by `map`, to which only this value refers. Unmapping what is
        // mapped does not fail, and a failure would only leave the addresses taken.
        let _ = unsafe { munmap(self.reserved.as_ptr().cast(), self.reserved_bytes) };
    }
}

/// Makes the pages at an address of this process present and writable, with their contents as they
/// are.
///
/// # Errors
/// Nothing is mapped there, or there is no memory.
pub fn populate(address: u64, len_bytes: usize) -> Result<(), Errno> {
    // SAFETY: this advice changes no contents and removes no mapping; an address without a mapping
    // is an error.
    unsafe { madvise(address as *mut _, len_bytes, Advice::LinuxPopulateWrite) }
}
