//! All sources of one process, and one wait for all of them.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::error::WarningError;
use crate::signals::Signals;
use crate::source::{Warning, WarningSource};

/// The sources of warnings that a process heeds.
pub struct Warnings {
    sources: Vec<Box<dyn WarningSource>>,
}

impl std::fmt::Debug for Warnings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Warnings({} sources)", self.sources.len())
    }
}

impl Warnings {
    /// Heeds SIGTERM, SIGINT and SIGPWR. Call it first in `main`: see [`Signals::block`].
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn by_signals() -> Result<Self, WarningError> {
        Ok(Self::from(Box::new(Signals::block()?) as Box<dyn WarningSource>))
    }

    /// Heeds one more source.
    pub fn add(&mut self, source: Box<dyn WarningSource>) {
        self.sources.push(source);
    }

    /// The descriptors of all sources. One of them becomes readable when there may be a warning.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sources.iter().map(|source| source.descriptor())
    }

    /// Takes a warning off the sources, without waiting. A source that breaks is a warning, and is
    /// not asked again.
    pub fn take(&mut self) -> Option<Warning> {
        for index in 0..self.sources.len() {
            match self.sources[index].take() {
                Ok(None) => {}
                Ok(Some(warning)) => return Some(warning),
                Err(error) => {
                    drop(self.sources.swap_remove(index));
                    return Some(Warning { told_by: format!("a source that broke: {error}") });
                }
            }
        }
        None
    }

    /// Waits for the first warning of any source.
    pub fn wait(&mut self) -> Warning {
        loop {
            if let Some(warning) = self.take() {
                return warning;
            }
            let mut ready: Vec<PollFd<'_>> = self
                .sources
                .iter()
                .map(|source| PollFd::from_borrowed_fd(source.descriptor(), PollFlags::IN))
                .collect();
            match poll(&mut ready, None) {
                Ok(_) | Err(Errno::INTR) => {}
                // No source can be watched any more, which is a warning, as with a source that
                // breaks.
                Err(errno) => {
                    return Warning { told_by: format!("no warning can be waited for: {errno}") };
                }
            }
        }
    }
}

impl From<Box<dyn WarningSource>> for Warnings {
    fn from(source: Box<dyn WarningSource>) -> Self {
        Self { sources: vec![source] }
    }
}
