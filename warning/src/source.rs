//! The trait of a source of warnings.

use std::os::fd::BorrowedFd;

use crate::error::WarningError;
use crate::reading::Reading;

/// One way in which a process is told that power, or its own time, is about to end.
pub trait WarningSource: Send + Sync {
    /// A descriptor that becomes readable when the source may say something else than before. It
    /// stays the same for the life of the source.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// What the source says now, if that may differ from before, without waiting. The descriptor is
    /// not readable afterwards until there is something new. A source that has not been asked
    /// before answers nothing only if it is steady.
    ///
    /// # Errors
    /// The source is broken: nothing will be seen through it any more.
    fn take(&mut self) -> Result<Option<Reading>, WarningError>;
}
