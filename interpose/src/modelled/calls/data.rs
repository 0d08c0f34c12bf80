//! Calls that read, write, flush and seek.

use std::ffi::{c_int, c_void};

use libc::{iovec, off_t};
use perdura_media::recording::Kind;

use super::{answer, set_errno};
use crate::modelled::request::{self, Asked, flush, part, parts, transfer};
use crate::modelled::table::enter;
use crate::next;

const fn asked(kind: Kind, at: Option<i64>) -> Asked {
    Asked { kind, at, flags: 0 }
}

/// Takes the place of `read(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn read(fd: c_int, buf: *mut c_void, len: usize) -> isize {
    // SAFETY: the caller's promise, here and below.
    unsafe {
        match enter(fd) {
            Some(entered) => {
                answer(transfer(entered, fd, &part(buf, len), asked(Kind::Read, None)))
            }
            None => next::read(fd, buf, len),
        }
    }
}

/// Takes the place of `write(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn write(fd: c_int, buf: *const c_void, len: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        match enter(fd) {
            Some(entered) => {
                answer(transfer(entered, fd, &part(buf, len), asked(Kind::Write, None)))
            }
            None => next::write(fd, buf, len),
        }
    }
}

/// Takes the place of `pread(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn pread(fd: c_int, buf: *mut c_void, len: usize, at: off_t) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        match enter(fd) {
            Some(entered) => {
                answer(transfer(entered, fd, &part(buf, len), asked(Kind::Read, Some(at))))
            }
            None => next::pread(fd, buf, len, at),
        }
    }
}

/// Takes the place of `pwrite(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn pwrite(fd: c_int, buf: *const c_void, len: usize, at: off_t) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        match enter(fd) {
            Some(entered) => {
                answer(transfer(entered, fd, &part(buf, len), asked(Kind::Write, Some(at))))
            }
            None => next::pwrite(fd, buf, len, at),
        }
    }
}

/// Reads or writes by a list of parts.
unsafe fn listed(
    fd: c_int,
    list: *const iovec,
    count: c_int,
    asked: Asked,
    passed_on: impl FnOnce() -> isize,
) -> isize {
    let Some(entered) = enter(fd) else { return passed_on() };
    // SAFETY: the caller's promise.
    unsafe {
        match parts(list, count) {
            Some(parts) => answer(transfer(entered, fd, parts, asked)),
            None => answer(Err(libc::EINVAL)),
        }
    }
}

/// Takes the place of `readv(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn readv(fd: c_int, list: *const iovec, count: c_int) -> isize {
    // SAFETY: the caller's promise.
    unsafe { listed(fd, list, count, asked(Kind::Read, None), || next::readv(fd, list, count)) }
}

/// Takes the place of `writev(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn writev(fd: c_int, list: *const iovec, count: c_int) -> isize {
    // SAFETY: the caller's promise.
    unsafe { listed(fd, list, count, asked(Kind::Write, None), || next::writev(fd, list, count)) }
}

/// Takes the place of `preadv(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn preadv(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> isize {
    let passed_on = || {
        // SAFETY: the caller's promise.
        unsafe { next::preadv(fd, list, count, at) }
    };
    // SAFETY: the caller's promise.
    unsafe { listed(fd, list, count, asked(Kind::Read, Some(at)), passed_on) }
}

/// Takes the place of `pwritev(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn pwritev(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> isize {
    let passed_on = || {
        // SAFETY: the caller's promise.
        unsafe { next::pwritev(fd, list, count, at) }
    };
    // SAFETY: the caller's promise.
    unsafe { listed(fd, list, count, asked(Kind::Write, Some(at)), passed_on) }
}

/// Takes the place of `preadv2(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn preadv2(
    fd: c_int,
    list: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> isize {
    let asked = Asked { kind: Kind::Read, at: (at != -1).then_some(at), flags };
    // SAFETY: the caller's promise.
    unsafe { listed(fd, list, count, asked, || next::preadv2(fd, list, count, at, flags)) }
}

/// Takes the place of `pwritev2(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn pwritev2(
    fd: c_int,
    list: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> isize {
    let asked = Asked { kind: Kind::Write, at: (at != -1).then_some(at), flags };
    // SAFETY: the caller's promise.
    unsafe { listed(fd, list, count, asked, || next::pwritev2(fd, list, count, at, flags)) }
}

/// Takes the place of `lseek(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    if let Some(entered) = enter(fd)
        && let Some(outcome) = request::seek(&entered, fd, offset, whence)
    {
        return outcome.unwrap_or_else(|errno| {
            set_errno(errno);
            -1
        });
    }
    // SAFETY: passed on.
    unsafe { next::lseek(fd, offset, whence) }
}

fn flushed(fd: c_int, passed_on: impl FnOnce() -> c_int) -> c_int {
    match enter(fd) {
        Some(entered) => {
            flush(entered);
            0
        }
        None => passed_on(),
    }
}

/// Takes the place of `fsync(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn fsync(fd: c_int) -> c_int {
    // SAFETY: passed on.
    flushed(fd, || unsafe { next::fsync(fd) })
}

/// Takes the place of `fdatasync(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: passed on.
    flushed(fd, || unsafe { next::fdatasync(fd) })
}

/// Takes the place of `sync_file_range(2)`. Only a call that waits for the file also waits for the
/// medium.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn sync_file_range(fd: c_int, at: off_t, len: off_t, flags: u32) -> c_int {
    let waits = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    match flags & waits != 0 {
        // SAFETY: passed on.
        true => flushed(fd, || unsafe { next::sync_file_range(fd, at, len, flags) }),
        // SAFETY: passed on.
        false => unsafe { next::sync_file_range(fd, at, len, flags) },
    }
}
