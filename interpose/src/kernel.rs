//! System calls that do not go through the functions that this library replaces.

use std::ffi::{c_char, c_int, c_long};
use std::mem::MaybeUninit;

/// Linux's command that chooses the signal of a descriptor's events.
const F_SETSIG: c_int = 10;

/// What the kernel says of an open file.
#[derive(Clone, Copy)]
pub struct Found {
    pub identity: (u64, u64),
    pub len: u64,
    pub is_file: bool,
}

/// Looks at an open file; `None`: the descriptor is closed.
pub fn look(fd: c_int) -> Option<Found> {
    // SAFETY: the kernel fills in the structure.
    found_by(|found| unsafe { libc::syscall(libc::SYS_fstat, fd, found) })
}

/// Looks at the file of a path; `None`: there is none.
pub fn look_at(path: *const c_char) -> Option<Found> {
    let at = libc::AT_FDCWD;
    // SAFETY: the kernel reads the path, and fills in the structure.
    found_by(|found| unsafe { libc::syscall(libc::SYS_newfstatat, at, path, found, 0) })
}

fn found_by(look: impl FnOnce(*mut libc::stat) -> c_long) -> Option<Found> {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    if look(found.as_mut_ptr()) != 0 {
        return None;
    }
    // SAFETY: all zeros is a valid value, and the kernel has filled it in.
    let found = unsafe { found.assume_init() };
    Some(Found {
        identity: (found.st_dev, found.st_ino),
        len: u64::try_from(found.st_size).unwrap_or(0),
        is_file: found.st_mode & libc::S_IFMT == libc::S_IFREG,
    })
}

/// Reads the name of an open file; returns its length.
pub fn name_of(fd: c_int, out: &mut [u8; 4096]) -> Option<usize> {
    let path = link_of(fd);
    // SAFETY: a path that ends with a zero byte, and a buffer of this length.
    let got = unsafe {
        let at = libc::AT_FDCWD;
        libc::syscall(libc::SYS_readlinkat, at, path.as_ptr(), out.as_mut_ptr(), out.len())
    };
    usize::try_from(got).ok().filter(|got| *got < out.len())
}

/// The path of a descriptor in `/proc`, with a zero byte at its end. Without an allocation, for a
/// signal handler may ask.
fn link_of(fd: c_int) -> [u8; 32] {
    let mut path = [0; 32];
    let start = b"/proc/self/fd/";
    path[..start.len()].copy_from_slice(start);
    let mut number = fd.max(0);
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    for place in (start.len()..start.len() + digits).rev() {
        path[place] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    path
}

/// Opens the file of a descriptor again, for locks of its own.
pub fn open_again(fd: c_int) -> Result<c_int, c_int> {
    let (path, flags) = (link_of(fd), libc::O_RDWR | libc::O_CLOEXEC);
    // SAFETY: a path that ends with a zero byte.
    outcome(unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) })
        .map(|fd| fd as c_int)
}

/// Locks the byte at `place` of a file against all other descriptions of it, and waits for that; or
/// lets it go.
pub fn lock(fd: c_int, place: u64, is_locked: bool) -> Result<(), c_int> {
    // SAFETY: all zeros is a valid lock, which the call reads.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = if is_locked { libc::F_WRLCK } else { libc::F_UNLCK } as i16;
        lock.l_whence = libc::SEEK_SET as i16;
        lock.l_start = (place & i64::MAX as u64) as i64;
        lock.l_len = 1;
        loop {
            let command = libc::F_OFD_SETLKW;
            match outcome(libc::syscall(libc::SYS_fcntl, fd, command, &raw const lock)) {
                Err(libc::EINTR) => {}
                done => return done.map(drop),
            }
        }
    }
}

/// Blocks all signals of this thread but those of its own faults. Returns which were blocked
/// before.
pub fn block_signals() -> u64 {
    let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];
    let blocked = faults.iter().fold(u64::MAX, |all, signal| all & !(1 << (signal - 1)));
    set_signals(blocked)
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Lets this thread be cancelled, or not. Returns the state before, which is 0 where it may be.
pub fn set_cancel(may_be: bool) -> c_int {
    let mut before = 0;
    // SAFETY: 0 and 1 are the two states (`PTHREAD_CANCEL_ENABLE`, `PTHREAD_CANCEL_DISABLE`).
    unsafe { pthread_setcancelstate(c_int::from(!may_be), &raw mut before) };
    before
}

/// Blocks these signals of this thread and no others. Returns which were blocked before.
pub fn set_signals(blocked: u64) -> u64 {
    let (mut before, command) = (0u64, libc::SIG_SETMASK);
    // SAFETY: sets of the kernel's size.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, command, &raw const blocked, &raw mut before, 8)
    };
    before
}

/// Maps memory.
///
/// # Safety
/// With `MAP_FIXED`, whatever lies there may go.
pub unsafe fn map(
    at: usize,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: u64,
) -> Result<usize, c_int> {
    // SAFETY: the caller's promise.
    let mapped = unsafe { libc::syscall(libc::SYS_mmap, at, len, protection, flags, fd, offset) };
    if mapped == -1 { Err(errno()) } else { Ok(mapped as usize) }
}

/// Unmaps memory.
///
/// # Safety
/// Nobody uses it any more.
pub unsafe fn unmap(at: usize, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_munmap, at, len) };
}

/// Moves a descriptor's offset; returns where it is then.
pub fn seek(fd: c_int, offset: i64, whence: c_int) -> Result<u64, c_int> {
    // SAFETY: the call takes numbers.
    outcome(unsafe { libc::syscall(libc::SYS_lseek, fd, offset, whence) })
}

/// Sets a file's length.
pub fn set_len(fd: c_int, len: u64) -> Result<u64, c_int> {
    // SAFETY: the call takes numbers.
    outcome(unsafe { libc::syscall(libc::SYS_ftruncate, fd, len) })
}

/// The flags with which a file was opened.
pub fn flags_of(fd: c_int) -> c_int {
    // SAFETY: the call takes numbers.
    unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) as c_int }
}

/// Lets the kernel kill this process when the other end of a pipe is closed.
pub fn end_with(pipe: c_int) -> Result<(), c_int> {
    // SAFETY: the calls take numbers.
    unsafe {
        let pid = libc::syscall(libc::SYS_getpid);
        for (command, word) in [
            (libc::F_SETOWN, pid),
            (F_SETSIG, c_long::from(libc::SIGKILL)),
            (libc::F_SETFL, c_long::from(libc::O_ASYNC)),
        ] {
            outcome(libc::syscall(libc::SYS_fcntl, pipe, command, word))?;
        }
    }
    Ok(())
}

/// Moves a descriptor to a number that programs do not use, and closes the old one.
pub fn hide(fd: c_int) -> Result<c_int, c_int> {
    let moved = duplicate(fd, 700);
    if moved < 0 {
        return Err(errno());
    }
    close(fd);
    Ok(moved)
}

/// Writes to a descriptor; a failure is not reported.
pub fn write(fd: c_int, bytes: &[u8]) {
    // SAFETY: the bytes are there for the time of the call.
    unsafe { libc::syscall(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
}

/// Waits for a byte, or for the other end of a pipe to be closed.
pub fn await_byte(fd: c_int) {
    let mut byte = 0_u8;
    // SAFETY: a byte on this stack.
    while unsafe { libc::syscall(libc::SYS_read, fd, &raw mut byte, 1) } < 0
        && errno() == libc::EINTR
    {}
}

/// Duplicates a descriptor, with a number from `least` on.
pub fn duplicate(fd: c_int, least: c_int) -> c_int {
    // SAFETY: the call takes numbers.
    unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, least) as c_int }
}

/// Closes a descriptor.
pub fn close(fd: c_int) {
    // SAFETY: the call takes a number.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// Opens a userfaultfd that also serves faults inside system calls.
pub fn userfaultfd() -> Result<c_int, c_int> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: the call takes flags.
    outcome(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) }).map(|fd| fd as c_int)
}

pub fn errno() -> c_int {
    // SAFETY: `errno` is this thread's own.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(value: c_int) {
    // SAFETY: `errno` is this thread's own.
    unsafe { *libc::__errno_location() = value };
}

fn outcome(value: c_long) -> Result<u64, c_int> {
    u64::try_from(value).map_err(|_| errno())
}
