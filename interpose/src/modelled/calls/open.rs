//! Calls that open files and streams.
//!
//! Streams (`fopen`, `fdopen`, `freopen`) read and write inside the C library, past this library:
//! the kernel serves them, and they are counted. They see the same bytes.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::Ordering::*;

use libc::{FILE, mode_t};
use rustix::fs::{AtFlags, CWD, Stat, statat};

use crate::modelled::report::PASSED;
use crate::modelled::serve::{lies_there, opened};
use crate::modelled::table;
use crate::next;

type Path = *const c_char;

/// Facts about the file of a name. The directory is that of `openat`.
unsafe fn stat_at(dir: c_int, path: Path) -> Option<Stat> {
    // SAFETY: the caller's, as `open` has it; a name of bytes that end with zero.
    unsafe {
        let name = CStr::from_ptr(path);
        match dir {
            libc::AT_FDCWD => statat(CWD, name, AtFlags::empty()).ok(),
            dir => statat(std::os::fd::BorrowedFd::borrow_raw(dir), name, AtFlags::empty()).ok(),
        }
    }
}

/// Runs a call that may empty the file of this name. If the file is served, no thread uses it
/// meanwhile.
unsafe fn emptying<T>(dir: c_int, path: Path, run: impl FnOnce() -> T) -> T {
    if !table::is_used() {
        return run();
    }
    // SAFETY: the caller's promise.
    let Some(stat) = (unsafe { stat_at(dir, path) }) else { return run() };
    let mut turned = table::turn();
    let Some(file) = turned.find(&stat) else {
        drop(turned);
        return run();
    };
    turned.change_named(file, || {
        let outcome = run();
        // SAFETY: as above.
        (outcome, unsafe { stat_at(dir, path) })
    })
}

unsafe fn open_by(dir: c_int, path: Path, flags: c_int, run: impl FnOnce() -> c_int) -> c_int {
    let fd = match flags & libc::O_TRUNC != 0 {
        // SAFETY: the caller's promise.
        true => unsafe { emptying(dir, path, run) },
        false => run(),
    };
    if fd >= 0 {
        // `opened` leaves the caller's `errno` unchanged.
        opened(fd, flags);
    }
    fd
}

macro_rules! opening {
    ($($name:ident($($arg:ident: $kind:ty),*) at $dir:expr, $path:ident, $flags:expr;)*) => {$(
        /// Takes the place of `open(2)`.
        ///
        /// # Safety
        /// The contract is that of the C function.
        pub unsafe fn $name($($arg: $kind),*) -> c_int {
            // SAFETY: the caller's promise; passed on.
            unsafe { open_by($dir, $path, $flags, || next::$name($($arg),*)) }
        }
    )*};
}

const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

opening! {
    open(path: Path, flags: c_int, mode: mode_t) at libc::AT_FDCWD, path, flags;
    openat(dir: c_int, path: Path, flags: c_int, mode: mode_t) at dir, path, flags;
    creat(path: Path, mode: mode_t) at libc::AT_FDCWD, path, CREAT;
}

macro_rules! making {
    ($($name:ident($($arg:ident: $kind:ty),*) $flags:expr;)*) => {$(
        /// Takes the place of `mkstemp(3)`.
        ///
        /// # Safety
        /// The contract is that of the C function.
        pub unsafe fn $name(template: *mut c_char $(, $arg: $kind)*) -> c_int {
            // SAFETY: passed on.
            let fd = unsafe { next::$name(template $(, $arg)*) };
            if fd >= 0 {
                opened(fd, libc::O_RDWR | $flags);
            }
            fd
        }
    )*};
}

making! {
    mkstemp() 0;
    mkostemp(flags: c_int) flags;
    mkstemps(suffix: c_int) 0;
    mkostemps(suffix: c_int, flags: c_int) flags;
}

unsafe fn stream_by(path: Path, mode: Path, run: impl FnOnce() -> *mut FILE) -> *mut FILE {
    // SAFETY: the caller's promise: a mode is text, a path too where there is one.
    let stream = unsafe {
        match !path.is_null() && !mode.is_null() && *mode == b'w' as c_char {
            true => emptying(libc::AT_FDCWD, path, run),
            false => run(),
        }
    };
    if !stream.is_null() {
        // SAFETY: a stream just opened.
        let fd = unsafe { next::fileno(stream) };
        if table::is_served(fd) {
            // The number was closed in a way that this library did not see, for example inside
            // `freopen`.
            table::turn().forget(fd);
        }
        if lies_there(fd) {
            PASSED.streams.fetch_add(1, Relaxed);
        }
    }
    stream
}

macro_rules! streaming {
    ($($name:ident($path:ident, $mode:ident $(, $stream:ident)?);)*) => {$(
        /// Takes the place of `fopen(3)`.
        ///
        /// # Safety
        /// The contract is that of the C function.
        pub unsafe fn $name(
            $path: Path, $mode: Path $(, $stream: *mut FILE)?
        ) -> *mut FILE {
            // SAFETY: the caller's promise; passed on.
            unsafe { stream_by($path, $mode, || next::$name($path, $mode $(, $stream)?)) }
        }
    )*};
}

streaming! {
    fopen(path, mode);
    freopen(path, mode, stream);
}

/// Takes the place of `fdopen(3)`: the descriptor is the stream's from then on, and no longer
/// served.
///
/// # Safety
/// The contract is that of the C function.
pub unsafe fn fdopen(fd: c_int, mode: Path) -> *mut FILE {
    if table::is_served(fd) {
        let mut turned = table::turn();
        turned.hand_over_of(fd);
        turned.forget(fd);
        PASSED.streams.fetch_add(1, Relaxed);
    }
    // SAFETY: passed on.
    unsafe { next::fdopen(fd, mode) }
}
