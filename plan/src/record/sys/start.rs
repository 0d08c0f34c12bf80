//! Starts a program that is traced from its first instruction on.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::ptrace::Tracee;

/// Starts a program, which stands at its first instruction. The calling thread is its tracer.
pub fn start_traced(mut command: Command) -> std::io::Result<Tracee> {
    let ((hears, tells), (waits, opens)) = (pipe()?, pipe()?);
    let (tells_raw, waits_raw, opens_raw) =
        (tells.as_raw_fd(), waits.as_raw_fd(), opens.as_raw_fd());
    // SAFETY: between fork and exec it only calls what may be called there; the two descriptors are
    // open in the child.
    unsafe { command.pre_exec(move || say_and_wait(tells_raw, waits_raw, opens_raw)) };
    // `spawn` returns only after the exec, which is not to happen before the child is traced: so
    // another thread spawns.
    let spawning = std::thread::Builder::new().name("start".to_owned()).spawn(move || {
        let spawned = command.spawn();
        // Until here the child's ends had to be open; now reading must end if there is no child.
        drop((tells, waits));
        spawned.map(drop)
    })?;
    let mut pid = [0; 4];
    let heard = File::from(hears).read_exact(&mut pid);
    let seized = heard.and_then(|()| Ok(Tracee::seize_before_exec(i32::from_ne_bytes(pid))?));
    let mut opens = File::from(opens);
    let opened = if seized.is_ok() { opens.write_all(&[1]) } else { Ok(()) };
    // Not opened, the child's waiting ends with an error, and so does the start.
    drop(opens);
    // Without an exec `spawn` says why, once it has seen the child end: so that end is no stop yet,
    // and is not taken here.
    let ended = || std::io::Error::other("the program ended before it began");
    let tracee = seized.and_then(|mut tracee| match tracee.wait_for_exec()? {
        true => tracee.stop_at_the_end().map(|()| tracee).map_err(Into::into),
        false => Err(ended()),
    });
    let spawned = spawning.join().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
    opened.and(spawned).and(tracee)
}

fn say_and_wait(tells: i32, waits: i32, opens: i32) -> std::io::Result<()> {
    // The child has a copy of the end that opens; with it, waiting would not end when we are gone.
    // SAFETY: the descriptor is the child's own copy, which nobody else knows.
    unsafe { libc::close(opens) };
    as_if_started_by_hand();
    // SAFETY: takes nothing, gives a number.
    let pid = unsafe { libc::getpid() }.to_ne_bytes();
    // SAFETY: `pid` outlives the call.
    if unsafe { libc::write(tells, pid.as_ptr().cast(), pid.len()) } != pid.len() as isize {
        return Err(std::io::Error::last_os_error());
    }
    let mut word = 0_u8;
    loop {
        // SAFETY: `word` has room for a byte and outlives the call.
        match unsafe { libc::read(waits, (&raw mut word).cast(), 1) } {
            1 => return Ok(()),
            0 => return Err(std::io::Error::from_raw_os_error(libc::EPERM)),
            _ => {
                let error = std::io::Error::last_os_error();
                if error.kind() != std::io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Undoes what a command-line program does with signals for itself, and a started program would
/// inherit.
fn as_if_started_by_hand() {
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is filled before it is read; only this process's own state changes.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
        libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
    }
}

fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: both are new and nobody else's.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}
