//! The calls for signals that need `unsafe`.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Length of the kernel's record of a signal, which begins with the signal's number.
const RECORD_BYTES: usize = size_of::<libc::signalfd_siginfo>();
const _: () = assert!(RECORD_BYTES == 128);

/// Blocks `signals` in this thread and returns a descriptor that becomes readable when one arrives.
pub fn block_and_watch(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: `set` is initialised by sigemptyset before it is read; the calls take valid pointers
    // to it and change only this thread's mask.
    let fd = unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        let refused = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        if refused != 0 {
            return Err(io::Error::from_raw_os_error(refused));
        }
        libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor just made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lets SIGHUP pass by, in this process and in the programs that it starts from now on.
///
/// Who sends it to all processes of a service wants files to be read again. If it ended a program
/// and its holder together, acknowledged writes would be lost.
pub fn ignore_hangup() {
    // SAFETY: no handler is installed, so no code runs when the signal comes; the number is valid.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}

/// Lets a program that is started begin without blocked signals, and be killed if the thread that
/// starts it ends.
pub fn unblock_signals_of(command: &mut Command) {
    let prepare = || {
        // SAFETY: as in `block_and_watch`. Between fork and exec only these calls are made, which
        // may be made there.
        unsafe {
            let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        }
        Ok(())
    };
    // SAFETY: `prepare` allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// Takes the number of the next signal that waits, if there is one.
pub fn next_signal(watched: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let mut record = [0_u8; RECORD_BYTES];
    match rustix::io::read(watched, &mut record) {
        Ok(_) => {
            let [a, b, c, d, ..] = record;
            Ok(Some(i32::from_ne_bytes([a, b, c, d])))
        }
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
