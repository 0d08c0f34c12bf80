//! The one unsafe seam of this crate: system calls, raw buffers, the submission ring.
//!
//! Everything here is a thin leaf that returns the system's errno; which device error that means is
//! decided by the callers.

mod buffer;
pub(crate) mod file;
mod shared;
mod source;
pub(crate) mod ticks;
pub(crate) mod uring;
mod watched;
pub(crate) mod words;

pub use buffer::BlockBuf;
pub(crate) use shared::SharedBytes;
pub(crate) use source::Source;
pub(crate) use watched::Watched;
