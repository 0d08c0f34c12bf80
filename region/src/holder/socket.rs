//! The holder's socket in its region's directory, and who may speak to the holder there.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
    socketpair, sockopt,
};

use super::error::{Failed, failed};

/// Name of the holder's socket in the region's directory.
pub const SOCKET_NAME: &str = "holder.sock";

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;
/// A visitor that connects and says nothing must not keep the holder from its other work.
const VISITOR_SPEAKS_WITHIN: Duration = Duration::from_millis(500);

/// Both ends of a new link.
pub(super) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Makes the directory's socket, in place of one that a dead holder left: whoever starts a holder
/// has the image's lock.
pub(super) fn listen_in(dir: &Path) -> Result<OwnedFd, Failed> {
    let path = dir.join(SOCKET_NAME);
    remove(&path)?;
    let (address, _dir) = address(dir)?;
    let socket = open()?;
    bind(&socket, &address).map_err(failed(format!("bind {}", path.display())))?;
    rustix::fs::chmod(&path, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .map_err(failed(format!("chmod {}", path.display())))?;
    listen(&socket, BACKLOG).map_err(failed("listen"))?;
    Ok(socket)
}

/// Removes a socket's name, if it is there.
pub(super) fn remove(path: &Path) -> Result<(), Failed> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed(format!("remove {}", path.display()))(error))
        }
        _ => Ok(()),
    }
}

/// Accepts a visitor if its user may speak to a holder: the holder's own user, or root.
pub(super) fn admit(listener: &OwnedFd) -> Option<OwnedFd> {
    let visitor = accept_with(listener, SocketFlags::CLOEXEC).ok()?;
    let allowed = sockopt::socket_peercred(&visitor)
        .is_ok_and(|peer| peer.uid == rustix::process::geteuid() || peer.uid.is_root());
    let _ =
        sockopt::set_socket_timeout(&visitor, sockopt::Timeout::Recv, Some(VISITOR_SPEAKS_WITHIN));
    allowed.then_some(visitor)
}

/// Lets a visitor that became the server be silent as long as it likes.
pub(super) fn never_time_out(visitor: &OwnedFd) {
    let _ = sockopt::set_socket_timeout(visitor, sockopt::Timeout::Recv, None);
}

/// Process id of the other end of a connection; 0 if the system does not say.
pub(super) fn peer_pid(socket: &OwnedFd) -> i32 {
    sockopt::socket_peercred(socket).map_or(0, |peer| peer.pid.as_raw_nonzero().get())
}

/// A socket that keeps message boundaries.
pub(super) fn open() -> Result<OwnedFd, Failed> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(failed("socket"))
}

/// The address of a directory's socket, valid while the returned descriptor is open. Long paths do
/// not fit a socket address, so the directory is opened and named through `/proc`.
pub(super) fn address(dir: &Path) -> Result<(SocketAddrUnix, OwnedFd), Failed> {
    let fd = rustix::fs::open(
        dir,
        rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .map_err(failed(format!("open {}", dir.display())))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET_NAME}", fd.as_raw_fd()));
    let address = SocketAddrUnix::new(path).map_err(failed("socket address"))?;
    Ok((address, fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_cannot_be_removed_is_an_error_and_one_that_is_not_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SOCKET_NAME);
        remove(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
        std::fs::create_dir(&path).unwrap();
        assert!(remove(&path).is_err());
    }
}
