//! Reads, writes and flushes of served files.
//!
//! Bytes within a file's length are copied from or to its mapping. Bytes beyond go through the
//! kernel, which alone makes a file longer; so do all requests at an offset that the kernel keeps.
//! All of them wait for the modelled medium.
//!
//! An offset is moved before the bytes are copied, so two threads never get the same bytes.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::slice;
use std::sync::atomic::Ordering::*;

use libc::iovec;
use perdura_media::recording::Kind;

use crate::modelled::medium::{Begun, Medium};
use crate::modelled::served::{File, Open};
use crate::modelled::setup;
use crate::modelled::table::{Entered, stat_of};
use crate::next;

/// Longest request: the kernel transfers no more at once.
const LEN_MAX: u64 = 0x7fff_f000;
const PARTS_MAX: usize = 1024;
const SYNCED: c_int = libc::O_SYNC | libc::O_DSYNC;

/// Bytes transferred, or an `errno`; an `errno` of 0 means that the C library has set it.
pub type Outcome = Result<usize, c_int>;

/// The kind, place and flags of a request.
#[derive(Clone, Copy)]
pub struct Asked {
    pub kind: Kind,
    /// Offset of the request; `None` for the description's own offset, which then moves.
    pub at: Option<i64>,
    /// `RWF_…` flags of the request.
    pub flags: c_int,
}

/// Reads or writes a list of parts.
///
/// # Safety
/// The parts are memory that may be written to (by a read) or read from (by a write).
pub unsafe fn transfer(entered: Entered, fd: c_int, parts: &[iovec], asked: Asked) -> Outcome {
    let Entered { open, file } = entered;
    let flags = open.flags();
    let mode = flags & libc::O_ACCMODE;
    let is_write = asked.kind == Kind::Write;
    if mode == if is_write { libc::O_RDONLY } else { libc::O_WRONLY } {
        return Err(libc::EBADF);
    }
    if asked.at.is_some_and(|at| at < 0) {
        return Err(libc::EINVAL);
    }
    if asked.flags & !(libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_HIPRI | libc::RWF_APPEND) != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let Some(len) = length(parts) else { return Err(libc::EINVAL) };
    let Some(medium) = setup::medium_made() else { return Err(libc::EIO) };
    let begun = medium.begin();
    let (base_bytes, is_appended) = (
        file.base_bytes.load(Relaxed),
        is_write && (flags & libc::O_APPEND != 0 || asked.flags & libc::RWF_APPEND != 0),
    );
    let transfer = Transfer { open, file, fd, parts, len, medium };
    // SAFETY: the caller's promise, in all of them.
    let (at, moved) = unsafe {
        match (asked.at, is_appended) {
            (at, true) => transfer.append(at, asked.flags),
            (Some(at), false) => transfer.at(at as u64, asked.kind).map(|moved| (at as u64, moved)),
            (None, false) => transfer.onwards(asked.kind),
        }
    }?;
    // The gate is left before the modelled wait.
    drop(entered);
    if moved > 0 {
        medium.end(begun, asked.kind, base_bytes, at, moved);
        let is_synced =
            flags & SYNCED != 0 || asked.flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
        if is_write && is_synced {
            wait_flushed(medium, medium.begin());
        }
    }
    Ok(moved)
}

/// Waits until the medium would have all earlier writes.
pub fn flush(entered: Entered) {
    drop(entered);
    if let Some(medium) = setup::medium_made() {
        wait_flushed(medium, medium.begin());
    }
}

fn wait_flushed(medium: &Medium, begun: Begun) {
    medium.end(begun, Kind::Flush, 0, 0, 0);
}

/// Moves the offset of a description that this library keeps. `None` if the kernel keeps it.
pub fn seek(
    entered: &Entered,
    fd: c_int,
    offset: i64,
    whence: c_int,
) -> Option<Result<i64, c_int>> {
    let Entered { open, .. } = entered;
    loop {
        let from = open.offset.get()?;
        let base = match whence {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => from as i64,
            libc::SEEK_END => match stat_of(fd) {
                Some(stat) => stat.st_size,
                None => return Some(Err(libc::EBADF)),
            },
            // The kernel looks for data and holes. Its own offset, which moves by that, is not used
            // by anyone. SAFETY: passed on.
            _ => match unsafe { next::lseek(fd, offset, whence) } {
                found if found < 0 => return Some(Err(0)),
                found => found - offset,
            },
        };
        let to = match base.checked_add(offset) {
            None => return Some(Err(libc::EOVERFLOW)),
            Some(to) if to < 0 => return Some(Err(libc::EINVAL)),
            Some(to) => to,
        };
        if open.offset.advance(from, to as u64) {
            return Some(Ok(to));
        }
    }
}

struct Transfer<'a> {
    open: &'static Open,
    file: &'static File,
    fd: c_int,
    parts: &'a [iovec],
    len: u64,
    medium: &'a Medium,
}

impl Transfer<'_> {
    /// Reads or writes at the caller's offset.
    ///
    /// # Safety
    /// The contract of [`transfer`] holds for all these functions.
    unsafe fn at(&self, at: u64, kind: Kind) -> Outcome {
        match kind {
            // SAFETY: the caller's promise.
            Kind::Write => unsafe { self.write_at(at) },
            // SAFETY: the caller's promise.
            _ => unsafe { self.read_at(at, self.present(at)) },
        }
    }

    /// Reads or writes at the description's offset, and moves it.
    unsafe fn onwards(&self, kind: Kind) -> Result<(u64, usize), c_int> {
        let offset = &self.open.offset;
        loop {
            // SAFETY: the caller's promise.
            let Some(at) = offset.get() else { return unsafe { self.in_kernel(kind, 0) } };
            let claimed = if kind == Kind::Read { self.present(at) } else { self.len };
            let end = at.saturating_add(claimed).min(i64::MAX as u64);
            if !offset.advance(at, end) {
                continue;
            }
            // SAFETY: the caller's promise.
            let outcome = unsafe {
                match kind {
                    Kind::Write => self.write_at(at),
                    _ => self.read_at(at, claimed),
                }
            };
            let moved = at + outcome.unwrap_or(0) as u64;
            if moved != end {
                // The part of the claimed range that was not transferred is given back, unless
                // another thread went on from its end.
                offset.advance(end, moved);
            }
            return outcome.map(|moved| (at, moved));
        }
    }

    /// Writes at the file's end, as the kernel sees it.
    unsafe fn append(&self, at: Option<i64>, flags: c_int) -> Result<(u64, usize), c_int> {
        let Some(at) = at else {
            // SAFETY: the caller's promise. If this library keeps the offset, the kernel's own
            // tells where the kernel wrote.
            let (at, moved) = unsafe { self.in_kernel(Kind::Write, flags & libc::RWF_APPEND) }?;
            // A write of no bytes moves no offset, neither the kernel's nor this library's.
            if moved > 0 {
                self.open.offset.set(at + moved as u64);
            }
            return Ok((at, moved));
        };
        self.count_in_kernel();
        let (parts, count) = (self.parts.as_ptr(), self.parts.len() as c_int);
        // SAFETY: the caller's promise.
        let moved =
            moved(unsafe { next::pwritev2(self.fd, parts, count, at, flags & libc::RWF_APPEND) })?;
        let size_bytes = stat_of(self.fd).map_or(0, |stat| stat.st_size as u64);
        self.file.size_bytes.fetch_max(size_bytes, AcqRel);
        Ok((size_bytes.saturating_sub(moved as u64), moved))
    }

    /// Reads or writes by the kernel, at the offset that the kernel keeps.
    unsafe fn in_kernel(&self, kind: Kind, flags: c_int) -> Result<(u64, usize), c_int> {
        self.count_in_kernel();
        let (parts, count) = (self.parts.as_ptr(), self.parts.len() as c_int);
        // SAFETY: the caller's promise.
        let moved = moved(unsafe {
            match kind {
                Kind::Write if flags != 0 => next::pwritev2(self.fd, parts, count, -1, flags),
                Kind::Write => next::writev(self.fd, parts, count),
                _ => next::readv(self.fd, parts, count),
            }
        })?;
        // SAFETY: only asks for the offset.
        let end = unsafe { next::lseek(self.fd, 0, libc::SEEK_CUR) }.max(0) as u64;
        // A write of no bytes makes no file longer, whatever its offset.
        if kind == Kind::Write && moved > 0 {
            self.file.size_bytes.fetch_max(end, AcqRel);
        }
        Ok((end.saturating_sub(moved as u64), moved))
    }

    /// Bytes that can be read. At the known end the kernel is asked, for another process may have
    /// written.
    #[inline]
    fn present(&self, at: u64) -> u64 {
        let size_bytes = &self.file.size_bytes;
        let mut end = size_bytes.load(Acquire);
        if at.saturating_add(self.len) > end
            && let Some(stat) = stat_of(self.fd)
        {
            end = stat.st_size as u64;
            size_bytes.store(end, Release);
        }
        end.saturating_sub(at).min(self.len)
    }

    #[inline]
    unsafe fn read_at(&self, at: u64, len: u64) -> Outcome {
        if len == 0 {
            return Ok(0);
        }
        let from = self.file.at(at, len, false);
        if from.is_null() {
            self.count_in_kernel();
            let (parts, count) = (self.parts.as_ptr(), self.parts.len() as c_int);
            // SAFETY: the caller's promise.
            return moved(unsafe { next::preadv(self.fd, parts, count, at as i64) });
        }
        let mut done = 0;
        for part in self.parts {
            let piece = part.iov_len.min(len as usize - done);
            // SAFETY: these bytes of the file are mapped and within its length, which nobody
            // shortens inside the gate; the part is the caller's memory, apart from the mapping,
            // which only this library knows.
            unsafe { ptr::copy_nonoverlapping(from.add(done), part.iov_base.cast(), piece) };
            done += piece;
        }
        Ok(done)
    }

    #[inline]
    unsafe fn write_at(&self, at: u64) -> Outcome {
        let end = at.saturating_add(self.len);
        let to = match end <= self.file.size_bytes.load(Acquire) {
            true => self.file.at(at, self.len, true),
            false => ptr::null_mut(),
        };
        if to.is_null() {
            // SAFETY: the caller's promise.
            return unsafe { self.write_in_kernel(at) };
        }
        let mut done = 0;
        for part in self.parts {
            let piece = part.iov_len.min(self.len as usize - done);
            // SAFETY: as in `read_at`; two threads that write the same bytes at once mix them, as
            // with any file.
            unsafe { ptr::copy_nonoverlapping(part.iov_base.cast(), to.add(done), piece) };
            done += piece;
        }
        Ok(done)
    }

    #[cold]
    unsafe fn write_in_kernel(&self, at: u64) -> Outcome {
        if self.len == 0 {
            return Ok(0);
        }
        self.count_in_kernel();
        let (parts, count) = (self.parts.as_ptr(), self.parts.len() as c_int);
        let Ok(at) = i64::try_from(at) else { return Err(libc::EFBIG) };
        // SAFETY: the caller's promise.
        let moved = moved(unsafe { next::pwritev(self.fd, parts, count, at) })?;
        self.file.size_bytes.fetch_max(at as u64 + moved as u64, AcqRel);
        Ok(moved)
    }

    fn count_in_kernel(&self) {
        self.medium.tally.in_kernel.fetch_add(1, Relaxed);
    }
}

fn moved(outcome: isize) -> Outcome {
    usize::try_from(outcome).map_err(|_| 0)
}

/// Bytes of all parts, at most as many as are transferred at once; `None` if the sum is too large
/// for a number.
fn length(parts: &[iovec]) -> Option<u64> {
    let sum = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len))?;
    (sum <= isize::MAX as usize).then_some((sum as u64).min(LEN_MAX))
}

/// The caller's list of parts; `None` if its length is not allowed.
///
/// # Safety
/// The list has `count` entries.
pub unsafe fn parts<'a>(parts: *const iovec, count: c_int) -> Option<&'a [iovec]> {
    match usize::try_from(count) {
        Ok(0) => Some(&[]),
        // SAFETY: the caller's promise.
        Ok(count) if count <= PARTS_MAX => Some(unsafe { slice::from_raw_parts(parts, count) }),
        _ => None,
    }
}

/// A list of one part.
#[inline]
pub fn part(buf: *const c_void, len: usize) -> [iovec; 1] {
    [iovec { iov_base: buf.cast_mut(), iov_len: len }]
}
