//! The sockets of those who hold memory: a holder's in its region's directory, and a guard's.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
    socketpair, sockopt,
};

use super::error::{Failed, LinkError, failed};

/// Name of the holder's socket in the region's directory.
pub const SOCKET_NAME: &str = "holder.sock";

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;
/// A connection that is not accepted within this time counts as refused.
const CONNECTS_WITHIN: Duration = Duration::from_secs(10);

/// Both ends of a new link.
///
/// # Errors
/// The system has no descriptor left.
pub fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Makes a socket at `path`, in place of one that a dead process left, and listens there. `mode`
/// says who may connect.
///
/// # Errors
/// The path cannot be used, or something else than a socket has it, which stays.
pub fn listen_at(path: &Path, mode: rustix::fs::Mode) -> Result<OwnedFd, LinkError> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        let source = io::Error::other("this is no socket, so it stays; give another path");
        return Err(failed(format!("listen at {}", path.display()))(source).into());
    }
    remove(path)?;
    let (address, _dir) = address(path)?;
    let socket = open()?;
    bind(&socket, &address).map_err(failed(format!("bind {}", path.display())))?;
    rustix::fs::chmod(path, mode).map_err(failed(format!("chmod {}", path.display())))?;
    listen(&socket, BACKLOG).map_err(failed("listen"))?;
    Ok(socket)
}

/// Whether a process listens at `path`.
///
/// # Errors
/// The path cannot be used.
pub fn is_listening(path: &Path) -> Result<bool, LinkError> {
    connect_to(path).map(|found| found.is_some())
}

/// Connects to the socket at `path`; `None` if nobody listens there.
///
/// # Errors
/// The path cannot be used, or whoever listens accepts no connection.
pub fn connect_to(path: &Path) -> Result<Option<OwnedFd>, LinkError> {
    let (address, _dir) = match address(path) {
        Ok(address) => address,
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let socket = open()?;
    // A connection behind a full queue would otherwise wait without end.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(CONNECTS_WITHIN))
        .map_err(failed("socket timeout"))?;
    match connect(&socket, &address) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::AGAIN) => {
            Err(LinkError::Answer(format!("it accepts no connection within {CONNECTS_WITHIN:?}")))
        }
        // The socket's file is missing, or its process is gone.
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(None),
        Err(errno) => Err(failed(format!("connect to {}", path.display()))(errno).into()),
    }
}

/// Removes a socket's name, if it is there.
///
/// # Errors
/// The name is there and cannot be removed.
pub fn remove(path: &Path) -> Result<(), LinkError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(failed(format!("remove {}", path.display()))(error).into())
        }
        _ => Ok(()),
    }
}

/// A socket that keeps message boundaries.
fn open() -> Result<OwnedFd, Failed> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(failed("socket"))
}

/// The address of a socket, valid while the returned descriptor is open. Long paths do not fit a
/// socket address, so the directory is opened and named through `/proc`.
fn address(path: &Path) -> Result<(SocketAddrUnix, OwnedFd), Failed> {
    let refused = |source: io::Error| failed(format!("socket {}", path.display()))(source);
    let name = path.file_name().ok_or_else(|| refused(io::ErrorKind::InvalidInput.into()))?;
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let fd = rustix::fs::open(dir, flags, rustix::fs::Mode::empty())
        .map_err(failed(format!("open {}", dir.display())))?;
    let through = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd())).join(name);
    let address = SocketAddrUnix::new(through).map_err(|errno| refused(errno.into()))?;
    Ok((address, fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_socket_stays_and_a_socket_that_was_left_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SOCKET_NAME);
        let mode = rustix::fs::Mode::RWXU;
        std::fs::write(&path, "data").unwrap();
        let refused = listen_at(&path, mode).unwrap_err().to_string();
        assert!(refused.contains("this is no socket"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
        std::fs::remove_file(&path).unwrap();
        drop(listen_at(&path, mode).unwrap());
        assert!(path.exists() && !is_listening(&path).unwrap());
        let _listener = listen_at(&path, mode).unwrap();
        assert!(is_listening(&path).unwrap());
    }

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
