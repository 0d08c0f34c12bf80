//! Streams of served files (`fopen`, `fdopen`): the C library reads and writes a stream inside
//! itself, so such a stream is made of functions of this library (`fopencookie`).
//!
//! A stream that was opened before any process mapped its file stays the C library's own, and so
//! do the standard streams unless their files are served when the program starts.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering::*};

use libc::{FILE, off_t, size_t, ssize_t};

use crate::calls;
use crate::hosted::served;
use crate::kernel::set_errno;
use crate::next;

/// Streams that are told apart at once. Another one stays the C library's own.
const STREAMS: usize = 256;

/// A stream, and its file's descriptor. Without a lock, for a fork may come at any moment.
struct Slot {
    stream: AtomicPtr<FILE>,
    fd: AtomicI32,
}

static SLOTS: [Slot; STREAMS] =
    [const { Slot { stream: AtomicPtr::new(ptr::null_mut()), fd: AtomicI32::new(-1) } }; STREAMS];
/// Slots that are in use.
static USED: AtomicUsize = AtomicUsize::new(0);

/// The functions of a stream, as `fopencookie(3)` takes them. The cookie that each is given is the
/// number of the stream's slot.
#[repr(C)]
struct Functions {
    read: unsafe extern "C-unwind" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C-unwind" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C-unwind" fn(*mut c_void, *mut off_t, c_int) -> c_int,
    close: unsafe extern "C-unwind" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

fn fd_at(cookie: *mut c_void) -> c_int {
    SLOTS.get(cookie as usize).map_or(-1, |slot| slot.fd.load(Acquire))
}

unsafe extern "C-unwind" fn read(cookie: *mut c_void, to: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: the C library's own buffer.
    unsafe { calls::read(fd_at(cookie), to.cast(), len) }
}

unsafe extern "C-unwind" fn write(
    cookie: *mut c_void,
    from: *const c_char,
    len: size_t,
) -> ssize_t {
    // SAFETY: the C library's own buffer. A failure is 0 here.
    unsafe { calls::write(fd_at(cookie), from.cast(), len).max(0) }
}

unsafe extern "C-unwind" fn seek(cookie: *mut c_void, offset: *mut off_t, whence: c_int) -> c_int {
    // SAFETY: the C library's own number.
    unsafe {
        let found = calls::lseek(fd_at(cookie), *offset, whence);
        if found < 0 {
            return -1;
        }
        *offset = found;
        0
    }
}

unsafe extern "C-unwind" fn close(cookie: *mut c_void) -> c_int {
    let fd = fd_at(cookie);
    free(cookie as usize);
    // SAFETY: the stream's own descriptor.
    unsafe { calls::close(fd) }
}

fn free(slot: usize) {
    SLOTS[slot].stream.store(ptr::null_mut(), Release);
    SLOTS[slot].fd.store(-1, Release);
    USED.fetch_sub(1, Release);
}

/// Makes a stream of a descriptor. `None`: there are too many. Null: the mode is refused.
///
/// # Safety
/// `mode` is text.
unsafe fn of(fd: c_int, mode: *const c_char) -> Option<*mut FILE> {
    let is_taken = |slot: &Slot| slot.fd.compare_exchange(-1, fd, AcqRel, Relaxed).is_err();
    let at = SLOTS.iter().position(|slot| !is_taken(slot))?;
    USED.fetch_add(1, Release);
    // SAFETY: the functions take the number of a slot.
    let stream =
        unsafe { fopencookie(at as *mut c_void, mode, Functions { read, write, seek, close }) };
    match stream.is_null() {
        true => free(at),
        false => SLOTS[at].stream.store(stream, Release),
    }
    Some(stream)
}

/// Serves a stream that was opened just now, if its file is served.
///
/// # Safety
/// The stream is the caller's own, and `mode` that with which it was opened.
pub unsafe fn opened(stream: *mut FILE, mode: *const c_char) -> *mut FILE {
    if stream.is_null() {
        return stream;
    }
    // SAFETY: the caller's promise. The copy of the descriptor has its mode and offset.
    unsafe {
        let fd = next::fileno(stream);
        if !served::is_served(fd) {
            return stream;
        }
        let command = match next::fcntl(fd, libc::F_GETFD, 0) & libc::FD_CLOEXEC {
            0 => libc::F_DUPFD,
            _ => libc::F_DUPFD_CLOEXEC,
        };
        let copy = calls::fcntl(fd, command, 0);
        if copy < 0 {
            return stream;
        }
        match of(copy, mode) {
            Some(own) if !own.is_null() => {
                libc::fclose(stream);
                own
            }
            _ => {
                calls::close(copy);
                stream
            }
        }
    }
}

/// Serves the standard streams of a program whose shell gave it served files for them.
pub fn serve_standard() {
    // SAFETY: the C library's own variables, which a program may set, before its `main`; the modes
    // are those of the descriptors. What was there is not closed: nothing is in it.
    unsafe {
        let streams =
            [&raw mut stdin, &raw mut stdout, &raw mut stderr].map(|stream| stream.cast());
        for (fd, variable) in (0..).zip(streams) {
            let variable: *mut *mut FILE = variable;
            if !served::is_served(fd) {
                continue;
            }
            let flags = next::fcntl(fd, libc::F_GETFL, 0);
            let mode = match (flags & libc::O_ACCMODE, flags & libc::O_APPEND) {
                (libc::O_RDONLY, _) => c"r",
                (libc::O_WRONLY, 0) => c"w",
                (libc::O_WRONLY, _) => c"a",
                (_, 0) => c"r+",
                _ => c"a+",
            };
            let Some(own) = of(fd, mode.as_ptr()).filter(|own| !own.is_null()) else { continue };
            if fd == libc::STDERR_FILENO {
                libc::setvbuf(own, ptr::null_mut(), libc::_IONBF, 0);
            }
            *variable = own;
        }
    }
}

/// Makes a stream of a descriptor, as `fdopen(3)` does. `None`: its file is not served.
///
/// # Safety
/// `mode` is text.
pub unsafe fn of_descriptor(fd: c_int, mode: *const c_char) -> Option<*mut FILE> {
    if !served::is_served(fd) {
        return None;
    }
    // SAFETY: the caller's promise; the checks that the manual page has.
    unsafe {
        let flags = next::fcntl(fd, libc::F_GETFL, 0);
        let (first, is_both) = (*mode as u8, !libc::strchr(mode, c_int::from(b'+')).is_null());
        let is_allowed = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => first == b'r' && !is_both,
            libc::O_WRONLY => first != b'r' && !is_both,
            _ => true,
        };
        if !is_allowed {
            set_errno(libc::EINVAL);
            return Some(ptr::null_mut());
        }
        let stream = of(fd, mode)?;
        if first == b'a' && !stream.is_null() {
            next::fcntl(fd, libc::F_SETFL, (flags | libc::O_APPEND) as usize);
        }
        Some(stream)
    }
}

/// The descriptor of a stream of this library.
pub fn descriptor(stream: *mut FILE) -> Option<c_int> {
    if USED.load(Acquire) == 0 {
        return None;
    }
    let slot = SLOTS.iter().find(|slot| slot.stream.load(Acquire) == stream)?;
    Some(slot.fd.load(Acquire))
}
