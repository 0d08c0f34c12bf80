//! The memory files of a region: making, adopting and mapping them.

use std::os::fd::OwnedFd;

use perdura_dirty::SetupError;
use perdura_dirty::geometry::Geometry;
use perdura_dirty::sys::{Mapping, SharedMemory};

/// Creates the memory file of a new region.
pub(crate) fn new_memory(geometry: &Geometry) -> Result<SharedMemory, SetupError> {
    let len_bytes = geometry.reserved_bytes;
    SharedMemory::create("perdura-region", len_bytes).map_err(|source| SetupError::Memory {
        what: "region",
        len_bytes,
        source,
    })
}

/// Adopts the descriptor of a memory file from another process; `what` names it in errors.
pub(crate) fn adopt(what: &'static str, fd: OwnedFd) -> Result<SharedMemory, SetupError> {
    SharedMemory::from_fd(fd).map_err(|source| SetupError::Memory { what, len_bytes: 0, source })
}

/// Maps the whole of a region's memory file.
pub(crate) fn map_region(memory: &SharedMemory) -> Result<Mapping, SetupError> {
    let len_bytes = memory.len_bytes();
    memory.map().map_err(|source| SetupError::Memory { what: "region", len_bytes, source })
}
