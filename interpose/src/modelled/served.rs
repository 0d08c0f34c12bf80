//! A served file with its mappings and its length, and an open file description with its offset.
//!
//! Neither is ever freed, only used again: a call that has just looked one up may still read it,
//! and notices then that it was replaced ([`crate::modelled::table::enter`]).

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use rustix::fs::{Mode, OFlags};

use crate::modelled::sys::gate::{Gate, Quiet};
use crate::modelled::sys::mapping;

/// Length of a file's mapping, so that the file can grow. A larger file gets twice its size.
const MAPPED_BYTES: u64 = 16 << 30;

/// Device and inode number, by which the kernel tells files apart.
pub type Key = (u64, u64);

/// A file that is served. A thread uses its mappings only inside its gate.
#[derive(Default)]
pub struct File {
    pub gate: Gate,
    /// At most the file's length, unless another process shortens the file.
    pub size_bytes: AtomicU64,
    mapped_bytes: AtomicU64,
    read: AtomicPtr<u8>,
    written: AtomicPtr<u8>,
    /// First address of the file on the medium.
    pub base_bytes: AtomicU64,
    /// Number of descriptions of the file. Changed only with the table's turn.
    pub users: AtomicU32,
    pub key: [AtomicU64; 2],
}

/// An open file description, which `dup` shares.
pub struct Open {
    pub file: AtomicPtr<File>,
    pub offset: Offset,
    /// Flags given to `open` and `F_SETFL`.
    pub flags: AtomicU32,
    /// Number of descriptors of this description. Changed only with the table's turn.
    pub descriptors: AtomicU32,
}

/// Offset of a description's next read or write. It is kept here or, once others may use the
/// description, by the kernel.
pub struct Offset(AtomicU64);

const IN_KERNEL: u64 = 1 << 63;
/// Marks an offset that is being handed to the kernel.
const LEAVING: u64 = 1 << 62;

impl Offset {
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The offset; `None` if the kernel keeps it.
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

    /// Moves the offset from `from` to `to`; false if it is not at `from`.
    #[inline]
    pub fn advance(&self, from: u64, to: u64) -> bool {
        self.0.compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    /// Sets the offset, unless the kernel keeps it.
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

    /// Gives the offset to the kernel for good. Signals are blocked, for a handler might wait for
    /// it.
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

    /// Address of these bytes in the mapping; null if not all of them are mapped.
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

    /// Makes the mapping that a description with these flags needs. After an error the file cannot
    /// be served. The caller has the table's turn.
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
            // A mapping needs a readable descriptor. Closing that one drops this process's locks on
            // the file, so it is not opened if the process has the file open already.
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

    /// Undoes all mappings. No thread may be inside the gate.
    pub fn unmap(&self) {
        let len_bytes = self.mapped_bytes.load(Relaxed);
        for start in [&self.read, &self.written] {
            let start = start.swap(ptr::null_mut(), AcqRel);
            if !start.is_null() {
                // SAFETY: mapped by `map`; users of it are inside the gate, which is empty.
                unsafe { mapping::unmap(start, len_bytes) };
            }
        }
    }
}
