//! Descriptors that a peer has sent, which nobody may trust.
//!
//! To close one waits for the file's file system, and one in user space (FUSE) answers when it
//! likes. So what is neither memory nor a local socket is closed on a thread of its own, and a user
//! with too many such threads is sent away.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType, StatxFlags, fcntl_get_seals, statx};
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;

/// Most descriptors of one user that may be waiting to be closed.
const CLOSING_OF_ONE_MAX: usize = 64;

/// How many descriptors of each user are being closed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Closings(Arc<Mutex<BTreeMap<u32, usize>>>);

/// A descriptor that a peer of this user has sent.
#[derive(Debug)]
pub(crate) struct Foreign {
    /// `None` only at its end.
    fd: Option<OwnedFd>,
    user: u32,
    closings: Closings,
}

impl Closings {
    /// Takes descriptors that a peer has sent.
    pub(crate) fn take(&self, fds: Vec<OwnedFd>, user: u32) -> Vec<Foreign> {
        let foreign = |fd| Foreign { fd: Some(fd), user, closings: self.clone() };
        fds.into_iter().map(foreign).collect()
    }

    /// Whether descriptors of this user are closed as fast as they come.
    pub(crate) fn are_few(&self, user: u32) -> bool {
        self.lock().get(&user).is_none_or(|count| *count < CLOSING_OF_ONE_MAX)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, user: u32) {
        *self.lock().entry(user).or_default() += 1;
    }

    fn end(&self, user: u32) {
        let mut counts = self.lock();
        let left = counts.remove(&user).map_or(0, |count| count - 1);
        if left > 0 {
            counts.insert(user, left);
        }
    }
}

impl Foreign {
    /// What it is of, and how many names that file has, as far as the kernel knows by itself.
    pub(crate) fn look(&self) -> rustix::io::Result<(FileType, u32)> {
        look(self)
    }

    /// The descriptor of a socket, which is closed at once.
    pub(crate) fn into_socket(mut self) -> Option<OwnedFd> {
        let is_socket = matches!(self.look(), Ok((FileType::Socket, _)));
        self.fd.take_if(|_| is_socket)
    }
}

impl AsFd for Foreign {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.fd {
            Some(fd) => fd.as_fd(),
            None => unreachable!("it is there until its end"),
        }
    }
}

/// What a descriptor is of, and how many names that file has, as far as the kernel knows without
/// asking a file system that is far away.
fn look(fd: impl AsFd) -> rustix::io::Result<(FileType, u32)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(fd, "", flags, StatxFlags::TYPE | StatxFlags::NLINK)?;
    Ok((FileType::from_raw_mode(found.stx_mode.into()), found.stx_nlink))
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        let is_memory = fcntl_get_seals(&fd).is_ok();
        // To close a connection of the network may wait until all is sent.
        if is_memory || socket_domain(&fd) == Ok(AddressFamily::UNIX) {
            return;
        }
        let (user, closings) = (self.user, self.closings.clone());
        closings.begin(user);
        let close = move || {
            drop(fd);
            closings.end(user);
        };
        if std::thread::Builder::new().name("perdura-closes".into()).spawn(close).is_err() {
            // The system has dropped the closure, and so closed the descriptor here.
            self.closings.end(user);
        }
    }
}
