//! Sockets on which clients connect: `unix:PATH` and `tcp:ADDRESS:PORT`.
//!
//! The file of a Unix socket is replaced only if nobody listens on it any more. The check and the
//! replacement happen under a lock on the folder, so of two servers that start at once, one wins
//! and the other is refused. The file is removed at the end if it is still this server's.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{FlockOperation, flock};

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Path of a Unix socket.
    Unix(PathBuf),
    /// IP address and port of a TCP socket.
    Tcp(SocketAddr),
}

/// Why an address cannot be parsed or listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The text has neither of the two forms.
    #[error("{0:?} is no address: use unix:PATH or tcp:ADDRESS:PORT, such as tcp:127.0.0.1:10809")]
    NotAnAddress(String),
    /// The address can be reached from other machines, which was not allowed.
    #[error(
        "tcp:{0} is not loopback, and NBD has no passwords: whoever reaches it may read and write; \
         allow it explicitly, or listen on a Unix socket"
    )]
    Open(SocketAddr),
    /// The path is longer than a socket's address can hold.
    #[error(
        "unix:{path}: a socket's path may have {PATH_BYTES_MAX} bytes, this one has {len_bytes}",
        path = path.display()
    )]
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// Its length in bytes.
        len_bytes: usize,
    },
    /// Another server listens on the path.
    #[error(
        "unix:{path}: a server is listening there already; stop it, or choose another path",
        path = .0.display()
    )]
    Live(PathBuf),
    /// The path has a file that is no socket.
    #[error(
        "unix:{path}: there is a file that is no socket; remove it, or choose another path",
        path = .0.display()
    )]
    NotASocket(PathBuf),
    /// The system refused to listen.
    #[error("{address}: {source}")]
    System {
        /// The address that was tried.
        address: Address,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl FromStr for Address {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        let none = || ListenError::NotAnAddress(text.to_owned());
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", place)) => {
                let place = place.replace("localhost:", "127.0.0.1:");
                place.parse().map(Self::Tcp).map_err(|_| none())
            }
            _ => Err(none()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(out, "unix:{}", path.display()),
            Self::Tcp(address) => write!(out, "tcp:{address}"),
        }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix { listener: UnixListener, path: PathBuf, file: FileId },
}

/// Device number and inode number of a file.
type FileId = (u64, u64);

impl Listener {
    /// Listens on the address. With `open`, a TCP address may be reachable from other machines.
    ///
    /// # Errors
    /// The address is taken, refused, or would be reachable without permission; nothing is changed
    /// then.
    pub fn bind(address: &Address, open: bool) -> Result<Self, ListenError> {
        let system = |source| ListenError::System { address: address.clone(), source };
        let socket = match address {
            Address::Tcp(place) if !place.ip().is_loopback() && !open => {
                return Err(ListenError::Open(*place));
            }
            Address::Tcp(place) => Socket::Tcp(TcpListener::bind(place).map_err(system)?),
            Address::Unix(path) => bind_unix(path)?,
        };
        let listener = Self { socket };
        // The standard library lets 128 connections wait; a thousand clients often come at once.
        rustix::net::listen(&listener, BACKLOG).map_err(|error| system(error.into()))?;
        listener.set_nonblocking().map_err(system)?;
        Ok(listener)
    }

    /// The address with the port that the system chose if 0 was asked for.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok().map(Address::Tcp),
            Socket::Unix { path, .. } => Some(Address::Unix(path.clone())),
        }
    }

    /// Accepts the next connection.
    pub(super) fn accept(&self) -> io::Result<OwnedFd> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(stream.into())
            }
            Socket::Unix { listener, .. } => Ok(listener.accept()?.0.into()),
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match &self.socket {
            Socket::Tcp(listener) => listener.set_nonblocking(true),
            Socket::Unix { listener, .. } => listener.set_nonblocking(true),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(listener) => listener.as_fd(),
            Socket::Unix { listener, .. } => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Socket::Unix { path, file, .. } = &self.socket {
            // If the folder is gone, the socket's file is gone with it.
            let Ok(_lock) = lock_folder(path) else { return };
            if file_id(path).is_ok_and(|found| found == *file) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

fn bind_unix(path: &Path) -> Result<Socket, ListenError> {
    let address = || Address::Unix(path.to_owned());
    let system = |source| ListenError::System { address: address(), source };
    let len_bytes = path.as_os_str().len();
    if len_bytes > PATH_BYTES_MAX {
        return Err(ListenError::PathTooLong { path: path.to_owned(), len_bytes });
    }
    let _lock = lock_folder(path).map_err(system)?;
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => return Err(ListenError::Live(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(system)?;
            }
            Err(error) => return Err(system(error)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(system(error)),
    }
    let listener = UnixListener::bind(path).map_err(system)?;
    let file = file_id(path).map_err(system)?;
    Ok(Socket::Unix { listener, path: path.to_owned(), file })
}

/// Locks the folder as long as the returned file is open.
fn lock_folder(path: &Path) -> io::Result<std::fs::File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = std::fs::File::open(folder.unwrap_or(Path::new(".")))?;
    flock(&folder, FlockOperation::LockExclusive)?;
    Ok(folder)
}

fn file_id(path: &Path) -> io::Result<FileId> {
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Connections that may wait to be accepted. The system may reduce it (`net.core.somaxconn`).
const BACKLOG: i32 = 4096;

/// Longest path of a Unix socket: `sun_path` has 108 bytes, the last of them 0.
const PATH_BYTES_MAX: usize = 107;
