//! The only unsafe code of this crate: system calls, raw buffers, the submission ring.
//!
//! Each function is a thin wrapper that returns the system's errno, from which its caller makes a
//! device error.

mod buffer;
mod calls;
mod commands;
pub(crate) mod file;
mod reads;
mod shared;
mod source;
pub(crate) mod ticks;
pub(crate) mod uring;
mod watched;
pub(crate) mod words;

pub use buffer::BlockBuf;
pub use calls::{FileKind, FileSystem, OpenFile, WriteRing};
pub(crate) use commands::{
    NvmeCommand, ScsiAnswer, device_of, ipmi_receive, ipmi_send, nvme_admin, scsi_without_data,
};
pub use file::Kernel;
pub(crate) use shared::SharedBytes;
pub use source::Source;
pub(crate) use watched::Watched;
