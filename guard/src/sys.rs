//! What the system says of a peer and of descriptors that a peer has sent.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, OFlags, SealFlags, fcntl_get_seals, fcntl_getfl};
use rustix::net::{SocketFlags, accept_with, sockopt};
use rustix::process::{Pid, Signal, kill_process};

use crate::error::HoldError;
use crate::foreign::Foreign;

/// The flag of a thread that is ending, in `/proc/PID/stat`.
const PF_EXITING: u64 = 4;

/// Time between two looks whether a process has ended.
const END_LOOK_EVERY: Duration = Duration::from_millis(1);

/// A process. Its number alone may be another one's later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its id; 0 if the system does not say.
    pub pid: i32,
    /// When it started, in clock ticks since the boot; 0: none of this number runs.
    pub started: u64,
}

impl Process {
    /// The process that has this number now.
    pub(crate) fn of(pid: i32) -> Self {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name of the program is in brackets, and may have any words.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let fields: Vec<_> = fields.split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        let (flags, threads, started) = (number(6), number(17), number(19));
        // One that is ending, or has ended and its parent has not looked, runs no program any more.
        let is_ending = flags.is_some_and(|flags| flags & PF_EXITING != 0);
        let runs = !is_ending || threads.is_some_and(|threads| threads > 1);
        Self { pid, started: started.filter(|_| runs).unwrap_or(0) }
    }

    /// Whether it runs still: whether it could change memory.
    pub(crate) fn is_there(self) -> bool {
        self.started != 0 && Self::of(self.pid) == self
    }

    /// Waits until it has ended, at most so long. Returns whether it has.
    pub(crate) fn has_ended_within(self, at_most: Duration) -> bool {
        let began = Instant::now();
        while self.is_there() {
            if began.elapsed() >= at_most {
                return false;
            }
            std::thread::sleep(END_LOOK_EVERY);
        }
        true
    }

    /// Kills it, as a server that hangs: as long as it runs it could change the memory that is
    /// about to be flushed. Returns whether the signal was sent.
    pub(crate) fn end(self) -> bool {
        tracing::error!(pid = self.pid, "the server does not stop; ending it to flush without it");
        let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.is_there()) else { return false };
        match kill_process(pid, Signal::KILL) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, "it cannot be ended");
                false
            }
        }
    }
}

/// The process at the other end of a connection, as the system knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// User id.
    pub user: u32,
    pub process: Process,
}

impl Peer {
    pub(crate) fn of(socket: impl AsFd) -> Option<Self> {
        let peer = sockopt::socket_peercred(socket).ok()?;
        let process = Process::of(peer.pid.as_raw_nonzero().get());
        Some(Self { user: peer.uid.as_raw(), process })
    }

    /// Whether this peer may use what belongs to `owner`.
    pub(crate) fn may_use(&self, owner: u32) -> bool {
        self.user == owner || self.user == 0
    }
}

/// Drops something on a thread of its own, or here, if there is no thread.
pub(crate) fn drop_beside(it: impl Send + 'static) {
    // A thread that is not started drops what it was given.
    let _ = std::thread::Builder::new().name("perdura-frees".into()).spawn(move || drop(it));
}

/// The user of this process.
pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Accepts a connection, if one waits.
pub(crate) fn accept(listener: &OwnedFd) -> Option<OwnedFd> {
    accept_with(listener, SocketFlags::CLOEXEC).ok()
}

/// Checks descriptors from a peer. A file that its owner could cut short would end this process at
/// its next access: only the user of this process is trusted with that. A file that cannot be
/// written would keep no flush.
pub(crate) fn check_handed_over(
    memory: &Foreign,
    ledger: &Foreign,
    image: &Foreign,
    owner: u32,
) -> Result<(), HoldError> {
    let foreign = |what, why| HoldError::Foreign { what, why };
    for (what, fd) in [("memory", memory), ("ledger", ledger)] {
        let sealed = fcntl_get_seals(fd).unwrap_or(SealFlags::empty());
        // A file of a file system (`--memory-dir`) cannot be sealed.
        let is_sealed = sealed.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
        if !is_sealed && owner != own_user() {
            let why = "is no memory file of a sealed length; files (--memory-dir) are held for the \
                       guard's own user only";
            return Err(foreign(what, why));
        }
    }
    if !matches!(image.look(), Ok((FileType::RegularFile | FileType::BlockDevice, _))) {
        return Err(foreign("image", "is neither a file nor a block device"));
    }
    match fcntl_getfl(image) {
        Ok(flags) if flags & OFlags::RWMODE == OFlags::RDWR => Ok(()),
        _ => Err(foreign("image", "is not open for reading and writing")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test's own failure
mod tests {
    use std::fs::File;

    use perdura_dirty::sys::SharedMemory;

    use super::*;
    use crate::foreign::Closings;

    /// Why descriptors are refused, if they are.
    fn refused(memory: impl AsFd, ledger: impl AsFd, image: impl AsFd, owner: u32) -> String {
        let fds = [memory.as_fd(), ledger.as_fd(), image.as_fd()];
        let fds = fds.map(|fd| fd.try_clone_to_owned().unwrap());
        let fds = Closings::default().take(fds.into(), owner);
        let checked = check_handed_over(&fds[0], &fds[1], &fds[2], owner);
        checked.err().map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn files_that_their_owner_could_cut_short_are_taken_of_the_own_user_only() {
        let dir = tempfile::tempdir().unwrap();
        let sealed = SharedMemory::create("test", 4096).unwrap();
        let file = tempfile::tempfile().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, "").unwrap();
        let image = File::options().read(true).write(true).open(&path).unwrap();
        let (own, other) = (own_user(), own_user() + 1);
        assert_eq!(refused(sealed.fd(), sealed.fd(), &image, other), "");
        assert_eq!(refused(&file, &file, &image, own), "");
        let why = refused(&file, sealed.fd(), &image, other);
        assert!(why.contains("memory") && why.contains("sealed length"), "{why}");
        let why = refused(sealed.fd(), &file, &image, other);
        assert!(why.contains("ledger") && why.contains("sealed length"), "{why}");
    }

    #[test]
    fn a_process_is_ended_and_none_that_has_its_number_later() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::of(child.id() as i32);
        assert!(process.is_there() && process.started > 0);
        let later = Process { started: process.started + 1, ..process };
        assert!(!later.is_there() && !later.end() && child.try_wait().unwrap().is_none());
        assert!(process.end() && !child.wait().unwrap().success());
        assert!(!process.is_there() && !process.end());
        assert!(!Process::of(0).is_there() && !Process::of(0).end());
    }

    #[test]
    fn an_image_that_could_keep_no_flush_is_refused() {
        let sealed = SharedMemory::create("test", 4096).unwrap();
        let refuse =
            |image: &dyn AsFd| refused(sealed.fd(), sealed.fd(), image.as_fd(), own_user());
        let (pipe, _other) = std::io::pipe().unwrap();
        assert!(refuse(&pipe).contains("neither a file nor a block device"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, "").unwrap();
        let read_only = File::open(&path).unwrap();
        assert!(refuse(&read_only).contains("not open for reading and writing"));
    }
}
