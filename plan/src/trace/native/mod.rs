//! `ptrace`, the binary format of this project, in which recordings of live programs are written.

mod layout;
mod reader;
mod writer;

pub(crate) use reader::Native;
pub use writer::{TraceWriter, WriteError};

/// Whether a trace starts as a `ptrace` file does.
pub(crate) fn looks(head: &[u8]) -> bool {
    head.starts_with(&layout::MAGIC)
}
