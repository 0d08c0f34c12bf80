//! Quantities with their unit in the type, and the text in which people write them.
//!
//! One grammar for all: a decimal number, optional blanks, a unit (in any case of letters except where
//! case is the prefix: `mW` and `MW`). What is displayed can be parsed again.

mod duration;
mod number;
mod picoseconds;
mod quantities;
mod size;

pub use duration::{format_duration, parse_duration};
pub use picoseconds::Picoseconds;
pub use quantities::{Joules, Percent, Watts};
pub use size::{Bytes, BytesPerSecond};

/// A text that is not the quantity it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{value}\" is not a {quantity}: expected {expected}")]
pub struct ParseError {
    /// What was to be read: `size`, `duration`, …
    pub quantity: &'static str,
    /// The text as given.
    pub value: String,
    /// What would have been understood, with an example.
    pub expected: &'static str,
}
