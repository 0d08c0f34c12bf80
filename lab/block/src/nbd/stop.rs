//! The one signal that tells a server and its connections to stop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use rustix::event::{EventfdFlags, eventfd};

/// Tells a server to stop. A signal that was given cannot be taken back.
#[derive(Debug)]
pub struct Stop {
    set: AtomicBool,
    event: OwnedFd,
}

impl Stop {
    /// A signal that was not given yet.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { set: AtomicBool::new(false), event })
    }

    /// Gives the signal.
    ///
    /// # Errors
    /// The system's error. Adding 1 to an event counter has no known reason to fail.
    pub fn set(&self) -> io::Result<()> {
        self.set.store(true, SeqCst);
        rustix::io::write(&self.event, &1u64.to_ne_bytes())?;
        Ok(())
    }

    /// Whether the signal was given.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.set.load(SeqCst)
    }
}

impl AsFd for Stop {
    /// The descriptor becomes readable when the signal is given, and stays so.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
