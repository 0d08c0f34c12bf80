//! Warnings that power, or the time of the process, is about to end.
//!
//! A [`WarningSource`] is one way to be told: [`Signals`], or a file that a UPS script creates. A
//! process collects its sources in [`Warnings`] and waits there. The room knows nothing of memory
//! or flushing: the server, the holder and embedding programs decide what to do with a
//! [`Warning`].
//!
//! - A source is waited on through a descriptor, so one thread waits for all of them at once and
//!   shares nothing with the threads that write.
//! - A source that breaks is a warning: it would show no later warning, so to flush now is the safe
//!   answer.
//! - The sources that a user can name in `--warning` stand in one table, [`SOURCES`]. A new source
//!   is one file and one line in the table.

mod error;
mod file;
mod named;
mod signals;
mod source;
mod sys;
mod warnings;

pub use error::WarningError;
pub use file::CreatedFile;
pub use named::{Named, SOURCES, open};
pub use signals::Signals;
pub use source::{Warning, WarningSource};
pub use warnings::Warnings;
