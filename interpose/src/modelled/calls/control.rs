//! Calls that close and duplicate descriptors, change lengths, and map files.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::Ordering::*;

use libc::off_t;
use rustix::fs::{AtFlags, CWD, statat};

use super::set_errno;
use crate::modelled::report::PASSED;
use crate::modelled::table::{self, is_served};
use crate::next;

/// Takes the place of `close(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn close(fd: c_int) -> c_int {
    if is_served(fd) {
        // The table forgets the number first: another thread may get it at once.
        table::turn().forget(fd);
    }
    // SAFETY: passed on.
    unsafe { next::close(fd) }
}

/// Takes the place of `close_range(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn close_range(first: u32, last: u32, flags: c_int) -> c_int {
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        forget_range(first, last);
    }
    // SAFETY: passed on.
    unsafe { next::close_range(first, last, flags) }
}

fn forget_range(first: u32, last: u32) {
    if !table::is_used() {
        return;
    }
    let mut turned = table::turn();
    for fd in turned.served_in(first, last) {
        turned.forget(fd);
    }
}

/// Takes the place of `dup(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn dup(fd: c_int) -> c_int {
    // SAFETY: passed on.
    doubled(fd, || unsafe { next::dup(fd) })
}

fn doubled(fd: c_int, double: impl FnOnce() -> c_int) -> c_int {
    if !is_served(fd) {
        return double();
    }
    let mut turned = table::turn();
    let to = double();
    if to >= 0 {
        turned.duplicate(fd, to);
    }
    to
}

/// Takes the place of `dup2(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn dup2(fd: c_int, to: c_int) -> c_int {
    // SAFETY: passed on.
    doubled_to(fd, to, || unsafe { next::dup2(fd, to) })
}

/// Takes the place of `dup3(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    // SAFETY: passed on.
    doubled_to(fd, to, || unsafe { next::dup3(fd, to, flags) })
}

fn doubled_to(fd: c_int, to: c_int, double: impl FnOnce() -> c_int) -> c_int {
    if !is_served(fd) && !is_served(to) {
        return double();
    }
    let mut turned = table::turn();
    let outcome = double();
    if outcome >= 0 && fd != to {
        turned.duplicate(fd, to);
    }
    outcome
}

/// Takes the place of `fcntl(2)`. Locks are on the file itself, so the kernel keeps them.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn fcntl(fd: c_int, command: c_int, word: usize) -> c_int {
    // SAFETY: passed on.
    let passed_on = || unsafe { next::fcntl(fd, command, word) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => doubled(fd, passed_on),
        libc::F_SETFL if is_served(fd) => {
            let turned = table::turn();
            let outcome = passed_on();
            if let Some(open) = turned.open(fd).filter(|_| outcome == 0) {
                let (kept, set) = (libc::O_ACCMODE | SYNCED, word as c_int & !libc::O_ACCMODE);
                open.flags.store((open.flags() & kept | set) as u32, Relaxed);
            }
            outcome
        }
        _ => passed_on(),
    }
}

/// Flags that `F_SETFL` does not change.
const SYNCED: c_int = libc::O_SYNC | libc::O_DSYNC;

/// Takes the place of `ftruncate(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn ftruncate(fd: c_int, len: off_t) -> c_int {
    // SAFETY: passed on.
    changed(fd, || unsafe { next::ftruncate(fd, len) })
}

/// Takes the place of `fallocate(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    // SAFETY: passed on.
    changed(fd, || unsafe { next::fallocate(fd, mode, at, len) })
}

/// Takes the place of `posix_fallocate(3)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn posix_fallocate(fd: c_int, at: off_t, len: off_t) -> c_int {
    // SAFETY: passed on.
    changed(fd, || unsafe { next::posix_fallocate(fd, at, len) })
}

fn changed(fd: c_int, change: impl FnOnce() -> c_int) -> c_int {
    match table::is_used() {
        true => table::turn().change_of(fd, change),
        false => change(),
    }
}

/// Takes the place of `truncate(2)`.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn truncate(path: *const c_char, len: off_t) -> c_int {
    // SAFETY: passed on.
    let passed_on = || unsafe { next::truncate(path, len) };
    if !table::is_used() || path.is_null() {
        return passed_on();
    }
    let named = || {
        // SAFETY: the caller's: bytes that end with zero.
        let name = unsafe { CStr::from_ptr(path) };
        statat(CWD, name, AtFlags::empty()).ok()
    };
    let Some(stat) = named() else { return passed_on() };
    let mut turned = table::turn();
    match turned.find(&stat) {
        None => passed_on(),
        Some(file) => turned.change_named(file, || (passed_on(), named())),
    }
}

/// Takes the place of `mmap(2)`. A mapping of a served file is the same memory, without the
/// medium's time.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn mmap(
    at: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if is_served(fd) {
        PASSED.mappings.fetch_add(1, Relaxed);
    }
    // SAFETY: passed on.
    unsafe { next::mmap(at, len, protection, flags, fd, offset) }
}

/// Takes the place of `copy_file_range(2)`. It is refused for served files; programs then read and
/// write.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: usize,
    flags: u32,
) -> isize {
    // SAFETY: passed on.
    refused(from, to, libc::EXDEV, || unsafe {
        next::copy_file_range(from, from_at, to, to_at, len, flags)
    })
}

/// Takes the place of `sendfile(2)`. It is refused for served files; programs then read and write.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn sendfile(to: c_int, from: c_int, at: *mut off_t, len: usize) -> isize {
    // SAFETY: passed on.
    refused(from, to, libc::EINVAL, || unsafe { next::sendfile(to, from, at, len) })
}

/// Takes the place of `splice(2)`. It is refused for served files; programs then read and write.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn splice(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: usize,
    flags: u32,
) -> isize {
    // SAFETY: passed on.
    refused(from, to, libc::EINVAL, || unsafe {
        next::splice(from, from_at, to, to_at, len, flags)
    })
}

fn refused(from: c_int, to: c_int, errno: c_int, passed_on: impl FnOnce() -> isize) -> isize {
    if is_served(from) || is_served(to) {
        set_errno(errno);
        return -1;
    }
    passed_on()
}
