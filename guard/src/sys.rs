//! What the system says of a peer and of descriptors that a peer has sent.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, OFlags, SealFlags, fcntl_get_seals, fcntl_getfl, fstat};
use rustix::net::{SocketFlags, accept_with, sockopt};
use rustix::process::{Pid, Signal, kill_process};

use crate::error::HoldError;

/// The process at the other end of a connection, as the system knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    /// User id.
    pub user: u32,
    /// Process id; 0 if the system does not say.
    pub pid: i32,
}

impl Peer {
    pub(crate) fn of(socket: impl AsFd) -> Option<Self> {
        let peer = sockopt::socket_peercred(socket).ok()?;
        Some(Self { user: peer.uid.as_raw(), pid: peer.pid.as_raw_nonzero().get() })
    }

    /// Whether this peer may use what belongs to `owner`.
    pub(crate) fn may_use(&self, owner: u32) -> bool {
        self.user == owner || self.user == 0
    }
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
    memory: BorrowedFd<'_>,
    ledger: BorrowedFd<'_>,
    image: BorrowedFd<'_>,
    owner: u32,
) -> Result<(), HoldError> {
    let foreign = |what, why| HoldError::Foreign { what, why };
    for (what, fd) in [("memory", memory), ("ledger", ledger)] {
        let sealed = fcntl_get_seals(fd).unwrap_or(SealFlags::empty());
        // A file of a file system (`--memory-dir`) cannot be sealed.
        let is_sealed = sealed.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL);
        if !is_sealed && owner != own_user() {
            return Err(foreign(what, "is no memory file of a sealed length"));
        }
    }
    let mode = fstat(image).map(|stat| FileType::from_raw_mode(stat.st_mode));
    if !matches!(mode, Ok(FileType::RegularFile | FileType::BlockDevice)) {
        return Err(foreign("image", "is neither a file nor a block device"));
    }
    match fcntl_getfl(image) {
        Ok(flags) if flags & OFlags::RWMODE == OFlags::RDWR => Ok(()),
        _ => Err(foreign("image", "is not open for reading and writing")),
    }
}

/// Kills a server that hangs: as long as it runs it could change the memory that is about to be
/// flushed. Returns whether the signal was sent.
pub(crate) fn end_server(pid: i32) -> bool {
    tracing::error!(pid, "the server does not stop; ending it to flush without it");
    let Some(pid) = Pid::from_raw(pid) else { return false };
    match kill_process(pid, Signal::KILL) {
        Ok(()) => true,
        Err(error) => {
            tracing::error!(%error, "it cannot be ended");
            false
        }
    }
}
