//! A served file, its mappings and its length; and an open file description of it, with its offset.
//!
//! Both are never freed, only used again: a call that looked one up a moment ago may still look at
//! it, and then sees that it is not the one that it wanted ([`crate::table::enter`]).

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use rustix::fs::{Mode, OFlags};

use crate::sys::gate::{Gate, Quiet};
use crate::sys::mapping;

/// What is mapped of a file, so that it can grow; of a larger one twice its size.
const MAPPED_BYTES: u64 = 16 << 30;

/// Device and number, as the kernel tells files apart.
pub type Key = (u64, u64);

/// A file that is served. Whoever uses its mappings is inside its gate.
#[derive(Default)]
pub struct File {
    pub gate: Gate,
    /// At most what it has, unless another process shortens it.
    pub size_bytes: AtomicU64,
    mapped_bytes: AtomicU64,
    read: AtomicPtr<u8>,
    written: AtomicPtr<u8>,
    /// Where its addresses begin on the medium.
    pub base_bytes: AtomicU64,
    /// Descriptions of it. Changed by those whose turn it is.
    pub users: AtomicU32,
    pub key: [AtomicU64; 2],
}

/// An open file description: what `dup` shares.
pub struct Open {
    pub file: AtomicPtr<File>,
    pub offset: Offset,
    /// As of `open` and `F_SETFL`.
    pub flags: AtomicU32,
    /// Descriptors of it. Changed by those whose turn it is.
    pub descriptors: AtomicU32,
}

/// Where a description reads and writes next: kept here, or, once others may use the description,
/// by the kernel.
pub struct Offset(AtomicU64);

const IN_KERNEL: u64 = 1 << 63;
/// On its way there.
const LEAVING: u64 = 1 << 62;

impl Offset {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// `None`: the kernel keeps it.
    #[inline]
    pub fn get(&self) -> Option<u64> {
        loop {
            let word = self.0.load(Acquire);
            if word & (IN_KERNEL | LEAVING) == 0 {
                return Some(word);
            }
            if word & IN_KERNEL != 0 {
                return None;
            }
            rustix::thread::sched_yield();
        }
    }

    /// Moves it, if it is still where it was.
    #[inline]
    pub fn advance(&self, from: u64, to: u64) -> bool {
        self.0.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    /// Puts it somewhere, unless the kernel has taken it over.
    pub fn set(&self, to: u64) -> bool {
        loop {
            match self.get() {
                None => return false,
                Some(from) if self.advance(from, to) => return true,
                Some(_) => {}
            }
        }
    }

    pub fn reset(&self, to: u64) {
        self.0.store(to, Release);
    }

    /// Gives it to the kernel for good. Signals are blocked: a handler might wait for it.
    pub fn hand_over(&self, _: &Quiet, fd: c_int) {
        let word = self.0.fetch_or(LEAVING, AcqRel);
        if word & IN_KERNEL == 0 {
            // SAFETY: a descriptor of this description, which the caller keeps open.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            let moved = rustix::fs::seek(fd, rustix::fs::SeekFrom::Start(word & !LEAVING));
            debug_assert!(moved.is_ok(), "an offset that the kernel had accepted");
        }
        self.0.store(IN_KERNEL, Release);
    }
}

impl Open {
    pub const fn new() -> Self {
        Self {
            file: AtomicPtr::new(ptr::null_mut()),
            offset: Offset::new(),
            flags: AtomicU32::new(0),
            descriptors: AtomicU32::new(0),
        }
    }

    #[inline]
    pub fn flags(&self) -> c_int {
        self.flags.load(Relaxed) as c_int
    }
}

impl File {
    pub fn key(&self) -> Key {
        (self.key[0].load(Relaxed), self.key[1].load(Relaxed))
    }

    /// Of these bytes what the mapping has; null: nothing of it.
    #[inline]
    pub fn at(&self, offset_bytes: u64, len_bytes: u64, is_written: bool) -> *mut u8 {
        let start = match is_written {
            true => self.written.load(Acquire),
            false => match self.read.load(Acquire) {
                start if start.is_null() => self.written.load(Acquire),
                start => start,
            },
        };
        let end = offset_bytes.checked_add(len_bytes);
        if start.is_null() || end.is_none_or(|end| end > self.mapped_bytes.load(Relaxed)) {
            return ptr::null_mut();
        }
        start.wrapping_add(offset_bytes as usize)
    }

    /// Maps what a description with these flags needs. `Err`: it cannot be served. The caller has
    /// its turn.
    pub fn map(
        &self,
        _: &Quiet,
        fd: BorrowedFd<'_>,
        flags: c_int,
    ) -> Result<(), rustix::io::Errno> {
        let is_written = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let size_bytes = self.size_bytes.load(Relaxed);
        if self.users.load(Relaxed) == 0 {
            let mapped_bytes = MAPPED_BYTES.max(size_bytes.saturating_mul(2));
            self.mapped_bytes.store(mapped_bytes.next_multiple_of(1 << 21), Relaxed);
        }
        let has = |start: &AtomicPtr<u8>| !start.load(Relaxed).is_null();
        if has(&self.written) || !is_written && has(&self.read) {
            return Ok(());
        }
        let mapped_bytes = self.mapped_bytes.load(Relaxed);
        let start = if flags & libc::O_ACCMODE == libc::O_WRONLY {
            // A mapping wants to read, too. Closing that descriptor drops this process's locks on
            // the file: so not where it has the file open already.
            if self.users.load(Relaxed) > 0 {
                return Err(rustix::io::Errno::ACCESS);
            }
            let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
            let readable = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
            mapping::map(std::os::fd::AsFd::as_fd(&readable), mapped_bytes, true)?
        } else {
            mapping::map(fd, mapped_bytes, is_written)?
        };
        mapping::populate(fd, start, size_bytes);
        if is_written { &self.written } else { &self.read }.store(start, Release);
        Ok(())
    }

    /// Undoes all mappings; nobody is inside the gate.
    pub fn unmap(&self) {
        let len_bytes = self.mapped_bytes.load(Relaxed);
        for start in [&self.read, &self.written] {
            let start = start.swap(ptr::null_mut(), AcqRel);
            if !start.is_null() {
                // SAFETY: mapped by `map`; users of it are inside the gate, and nobody is.
                unsafe { mapping::unmap(start, len_bytes) };
            }
        }
    }
}
