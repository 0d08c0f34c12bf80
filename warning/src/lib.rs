//! Warnings that power, or the time of the process, is about to end.
//!
//! A [`WarningSource`] is one way to be told: [`Signals`], or a file that a UPS script writes. It
//! says a [`Reading`]: a state, what is left, and how far it can be believed. A process collects
//! its sources in [`Warnings`] and waits there; the most pessimistic counts. The room knows nothing
//! of memory or flushing: the server, the holder and embedding programs act.
//!
//! - A source is waited on through a descriptor, so one thread waits for all of them at once and
//!   shares nothing with the threads that write.
//! - A source that cannot be reached is never steady: see [`Confidence::Lost`]. One that breaks for
//!   good counts as the end: it would show no later warning, so to flush now is the safe answer.
//! - The sources that a user can name in `--warning` stand in one table, [`SOURCES`]. A new source
//!   is one file and one line in the table.

mod cloud;
mod command;
mod error;
mod file;
mod later;
mod logind;
mod named;
mod nut;
mod polled;
mod power_supply;
mod reading;
mod response;
mod signals;
mod source;
mod sys;
mod warnings;

pub use error::WarningError;
pub use file::StatusFile;
pub use later::open_within;
pub use named::{Named, SOURCES, open};
pub use reading::{Confidence, Left, Reading, State};
pub use response::{Demand, Response, SETTLE};
pub use signals::Signals;
pub use source::WarningSource;
pub use sys::{ignore_hangup, unblock_signals_of};
pub use warnings::Warnings;
