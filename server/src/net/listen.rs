//! The listening sockets: bound when the server starts, and accepted from by the loop.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::config::{BACKLOG, ServerConfig, StartError};
use crate::conn::Stream;
use crate::session::Peer;

/// Sockets that are bound and listening. The file of a Unix socket is removed at the drop.
#[derive(Debug, Default)]
pub struct Listener {
    pub(super) sockets: Vec<Socket>,
}

#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpListener),
    /// Connections there speak TLS.
    Tls(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Checks the configuration, then binds everything it names.
    ///
    /// # Errors
    /// An address would be open to everyone (nothing is bound then), or the system refuses one.
    pub fn bind(config: &ServerConfig) -> Result<Self, StartError> {
        config.check()?;
        let mut sockets = Vec::new();
        open(&config.bind, &config.bind_if_there, Socket::Tcp, &mut sockets)?;
        open(&config.tls_bind, &config.tls_bind_if_there, Socket::Tls, &mut sockets)?;
        if let Some(path) = &config.unix_socket {
            let socket = bind_unix(path, config.unix_socket_mode)
                .map_err(|source| StartError::BindUnix { path: path.clone(), source })?;
            sockets.push(Socket::Unix(socket, path.clone()));
        }
        Ok(Self { sockets })
    }

    /// The first TCP address, with the port that the system chose where port 0 was asked for.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.sockets.iter().find_map(|socket| match socket {
            Socket::Tcp(tcp) => tcp.local_addr().ok(),
            Socket::Tls(_) | Socket::Unix(..) => None,
        })
    }

    /// The same of the addresses that speak TLS.
    pub fn local_tls_addr(&self) -> Option<SocketAddr> {
        self.sockets.iter().find_map(|socket| match socket {
            Socket::Tls(tcp) => tcp.local_addr().ok(),
            Socket::Tcp(_) | Socket::Unix(..) => None,
        })
    }
}

/// Opens sockets at addresses, and at those of others that the machine has.
fn open(
    addresses: &[SocketAddr],
    if_there: &[SocketAddr],
    kind: fn(TcpListener) -> Socket,
    sockets: &mut Vec<Socket>,
) -> Result<(), StartError> {
    for addr in addresses.iter().chain(if_there) {
        match bind(*addr) {
            Ok(socket) => sockets.push(kind(socket)),
            Err(error) if is_missing(&error) && if_there.contains(addr) => {}
            Err(source) => return Err(StartError::Bind { addr: *addr, source }),
        }
    }
    Ok(())
}

/// Opens a socket that listens on one address. An IPv6 socket does not take IPv4 connections, so
/// that both wildcard addresses can be used at once.
fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
    let family = if addr.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if addr.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &addr)?;
    ready(&socket)?;
    Ok(TcpListener::from(socket))
}

/// Opens a Unix socket at a path, in place of one that a killed server left there.
fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let name = rustix::net::SocketAddrUnix::new(path)?;
    let bind = || -> io::Result<OwnedFd> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType};
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&socket, &name)?;
        Ok(socket)
    };
    let socket = match bind() {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_deserted(path) => {
            std::fs::remove_file(path)?;
            bind()?
        }
        bound => bound?,
    };
    // Before it listens, so that nobody else can have connected.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    ready(&socket)?;
    Ok(UnixListener::from(socket))
}

/// Whether the path is a socket at which nobody listens, as far as this process may look.
fn is_deserted(path: &Path) -> bool {
    // A connection to any other file is refused in the same way.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    is_socket && try_connection(path) == Err(rustix::io::Errno::CONNREFUSED)
}

/// Connects to a Unix socket without waiting for room in its queue.
fn try_connection(path: &Path) -> rustix::io::Result<()> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let visitor = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&visitor, &SocketAddrUnix::new(path)?)
}

/// Whether the error says that the machine lacks the address or its family.
fn is_missing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|e| [Errno::ADDRNOTAVAIL, Errno::AFNOSUPPORT].contains(&e))
}

/// Makes the queue of waiting connections longer than the standard library does, because a thousand
/// clients often connect at once, and a client that finds the queue full tries again only after a
/// second. The system may limit the length (`net.core.somaxconn`).
fn ready(socket: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::listen(socket, BACKLOG)?)
}

impl Socket {
    /// Whether connections speak TLS.
    pub fn is_sealed(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Accepts the next connection and sets it up for the loop.
    pub fn accept(&self, tcp_keepalive_s: u64) -> io::Result<(Stream, Peer)> {
        match self {
            Self::Tcp(listener) | Self::Tls(listener) => {
                let (stream, addr) = listener.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                if tcp_keepalive_s > 0 {
                    keep_alive(&stream, tcp_keepalive_s)?;
                }
                let local = stream.local_addr()?;
                Ok((Stream::Tcp(stream), Peer::Tcp { addr, local }))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok((Stream::Unix(stream), Peer::Unix))
            }
        }
    }
}

/// Probes a silent peer three times, a third of the interval apart, as Redis does.
fn keep_alive(stream: &impl AsFd, interval_s: u64) -> io::Result<()> {
    use rustix::net::sockopt;
    let seconds = std::time::Duration::from_secs;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, seconds(interval_s))?;
    sockopt::set_tcp_keepintvl(stream, seconds((interval_s / 3).max(1)))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    Ok(())
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) | Self::Tls(socket) => socket.as_fd(),
            Self::Unix(socket, _) => socket.as_fd(),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // An error does not matter: nothing uses the file any more.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deserted_unix_socket_is_replaced_and_anything_else_at_its_path_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("perdura.sock");
        // The end of a killed process closes its sockets and leaves their files.
        drop(UnixListener::bind(&path).unwrap());
        let listening = bind_unix(&path, 0o600).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let taken = bind_unix(&path, 0o600).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        let _client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        drop(listening);

        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a file").unwrap();
        let taken = bind_unix(&path, 0o600).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(std::fs::read(&path).unwrap(), b"a file");
    }
}
