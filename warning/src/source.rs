//! The trait of a source of warnings.

use std::fmt;
use std::os::fd::BorrowedFd;

use crate::error::WarningError;

/// One way in which a process is told that power, or its own time, is about to end.
pub trait WarningSource: Send + Sync {
    /// A descriptor that becomes readable when there may be a warning. It stays the same for the
    /// life of the source.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Takes a warning off the source, without waiting. The descriptor is not readable afterwards
    /// until there is something new. `None`: the descriptor was readable for another reason.
    ///
    /// # Errors
    /// The source is broken: no warning will be seen through it any more.
    fn take(&mut self) -> Result<Option<Warning>, WarningError>;
}

/// Power, or the time of this process, is about to end: the warning time runs from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The cause of the warning in words, such as `SIGTERM`, or `/run/ups/on-battery was created`.
    pub told_by: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told_by)
    }
}
