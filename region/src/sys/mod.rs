//! The unsafe seam: file-backed shared memory and raw copies. Nothing above this folder dereferences a
//! raw pointer except through the two types here.

mod aligned;
mod mapping;
mod prefetch;

pub use aligned::AlignedBytes;
pub use mapping::{Mapping, SharedMemory};
pub use prefetch::prefetch;
