//! Signals: the warning as a descriptor.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// From now on a limit on file sizes is an error of the write, said with the file's name, and not a
/// death. Programs that are started inherit it.
pub fn ignore_file_size_signal() {
    // SAFETY: no handler runs; only the signal's disposition changes.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Blocks SIGTERM, SIGINT and SIGPWR in this thread and those it starts, and returns a descriptor
/// that becomes readable when one arrives. Call before any thread is started.
pub fn warning_descriptor() -> io::Result<OwnedFd> {
    // SAFETY: `set` is initialised by sigemptyset before it is read; the calls take valid pointers
    // to it and change only this thread's mask.
    let fd = unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGPWR] {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        if libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor just made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
