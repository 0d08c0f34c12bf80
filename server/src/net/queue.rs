//! An epoll: the whole event queue where the system refuses an io_uring, and beside an io_uring the
//! watcher of the listening sockets.
//!
//! An epoll keeps no file open: a socket that is closed is watched no more.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::config::ServeError;

/// An epoll, with room for the events of one wait.
pub(super) struct Queue {
    epoll: OwnedFd,
    ready: Vec<Event>,
}

impl Queue {
    pub fn new(events_max: usize) -> Result<Self, ServeError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed("epoll_create"))?;
        Ok(Self { epoll, ready: Vec::with_capacity(events_max) })
    }

    /// Begins to watch a descriptor; its events will have `data`.
    pub fn add(&self, fd: impl AsFd, data: u64, flags: EventFlags) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, EventData::new_u64(data), flags)
    }

    /// Changes the events that a watched descriptor is watched for.
    pub fn change(&self, fd: impl AsFd, data: u64, flags: EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.epoll, fd, EventData::new_u64(data), flags)
    }

    /// Tells once that a descriptor can be read; must be called again for the next time.
    pub fn watch_once(&self, fd: impl AsFd, data: u64) -> Result<(), Errno> {
        let flags = EventFlags::IN | EventFlags::ONESHOT;
        match self.change(&fd, data, flags) {
            Err(Errno::NOENT) => self.add(&fd, data, flags),
            done => done,
        }
    }

    /// Waits for events, at most `timeout_ns`.
    pub fn wait(&mut self, timeout_ns: u32) -> Result<&[Event], ServeError> {
        self.ready.clear();
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout_ns.into() };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.ready), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(&self.ready),
            Err(error) => Err(failed("epoll_wait")(error)),
        }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// The error of a call `op` that the system refused.
pub(super) fn failed(op: &'static str) -> impl Fn(Errno) -> ServeError {
    move |errno| ServeError::Events { op, source: errno.into() }
}
