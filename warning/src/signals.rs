//! Signals that are warnings: SIGTERM and SIGINT ask the process to end, SIGPWR says that power
//! fails.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::error::WarningError;
use crate::reading::{Reading, State};
use crate::source::WarningSource;
use crate::sys;

const SIGNALS: [(i32, &str); 3] =
    [(libc::SIGTERM, "SIGTERM"), (libc::SIGINT, "SIGINT"), (libc::SIGPWR, "SIGPWR")];

/// SIGTERM, SIGINT and SIGPWR, read from a descriptor instead of caught by a handler.
#[derive(Debug)]
pub struct Signals {
    descriptor: OwnedFd,
}

impl Signals {
    /// Blocks the signals in this thread and in all threads that it starts from now on, so that
    /// they do not end the process and wait to be taken here. Call it first in `main`: in a thread
    /// that was started before, a signal still ends the process.
    ///
    /// # Errors
    /// The system gives no descriptor.
    pub fn block() -> Result<Self, WarningError> {
        let descriptor = sys::block_and_watch(&SIGNALS.map(|(number, _)| number));
        Ok(Self { descriptor: descriptor.map_err(|error| WarningError::system("signals", error))? })
    }
}

impl WarningSource for Signals {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn take(&mut self) -> Result<Option<Reading>, WarningError> {
        let number = sys::next_signal(self.descriptor.as_fd())
            .map_err(|error| WarningError::system("read a signal", error))?;
        Ok(number.map(|number| {
            let name = SIGNALS.iter().find(|(known, _)| *known == number).map(|(_, name)| *name);
            let name = name.map_or_else(|| format!("signal {number}"), str::to_owned);
            Reading::new(State::Ending, name)
        }))
    }
}
