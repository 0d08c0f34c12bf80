//! Real drives: which of them lie behind a directory, what their power state is, and how to let
//! them sleep.
//!
//! Everything is read from the kernel's own files, below roots that a test may choose. What the
//! kernel refuses or does not have is said as that; nothing is guessed. A drive that sleeps is not
//! woken by a question: one that the kernel has suspended is not asked, and the questions to others
//! are those for which no medium has to turn.

mod ata;
mod drive;
mod error;
mod find;
mod mounts;
mod nvme;
mod power;
mod roots;
#[cfg(test)]
mod tests;

pub use drive::{Bus, Drive, Requests, VIRTUAL};
pub use error::DriveError;
pub use find::{Behind, drives_behind};
pub use nvme::{NvmeState, NvmeStates};
pub use power::{Asleep, AtaMode, DrivePower, PowerReading, PowerState};
pub use roots::Roots;
pub(crate) use roots::{names as kernel_names, number as kernel_number, text as kernel_text};
