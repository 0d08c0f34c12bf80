//! The memory files of a region: making, adopting and mapping them.

use std::os::fd::OwnedFd;
use std::path::Path;

use perdura_dirty::geometry::Geometry;
use perdura_dirty::sys::{Mapping, SharedMemory};
use perdura_dirty::{Ledger, SetupError};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::config::Config;

/// Creates the memory file of a new region, in the place that the settings name. `region_bytes` of
/// it will be used.
pub(crate) fn new_memory(
    config: &Config,
    geometry: &Geometry,
    region_bytes: u64,
) -> Result<SharedMemory, SetupError> {
    let len_bytes = geometry.reserved_bytes;
    let memory = match &config.memory_dir {
        None => SharedMemory::create("perdura-region", len_bytes),
        Some(dir) => new_file(dir, len_bytes, region_bytes),
    };
    memory.map_err(|source| SetupError::Memory { what: "region", len_bytes, source })
}

/// Creates the ledger of a new region, in the place that the settings name.
pub(crate) fn new_ledger(
    config: &Config,
    geometry: Geometry,
    image_id: u64,
    region_bytes: u64,
) -> Result<Ledger, SetupError> {
    let Some(dir) = &config.memory_dir else {
        return Ledger::create(geometry, image_id, region_bytes);
    };
    let len_bytes = Ledger::len_bytes(&geometry);
    let memory = new_file(dir, len_bytes, len_bytes).map_err(|source| SetupError::Memory {
        what: "ledger",
        len_bytes,
        source,
    })?;
    Ledger::create_in(memory, geometry, image_id, region_bytes)
}

fn new_file(dir: &Path, len_bytes: u64, reserved_bytes: u64) -> Result<SharedMemory, Errno> {
    let dir = open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let memory = SharedMemory::create_in(dir, len_bytes)?;
    memory.reserve(reserved_bytes)?;
    Ok(memory)
}

/// Gives a region of `region_bytes` its space, if its memory is a file in a file system.
pub(crate) fn reserve(memory: &SharedMemory, region_bytes: u64) -> Result<(), SetupError> {
    memory.reserve(region_bytes).map_err(|source| SetupError::Memory {
        what: "region",
        len_bytes: region_bytes,
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
