//! Emptying the capacity memory of a region whose process is gone.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::*;

use perdura_dirty::geometry::BLOCK_BYTES;
use perdura_dirty::planted::Planted;
use perdura_dirty::sys::SharedMemory;
use perdura_dirty::{KindBits, Ledger, SetupError};
use perdura_image::OpenError;

use crate::memory_files::{adopt, map_region};

/// Adopts the memory of a region whose process is gone. Capacity blocks are emptied before anybody
/// can read them.
pub(crate) fn take_over(
    ledger: &Ledger,
    memory: OwnedFd,
    planted: Planted,
) -> Result<SharedMemory, OpenError> {
    let memory = adopt("region", memory)?;
    empty_capacity(ledger, &memory, planted)?;
    Ok(memory)
}

/// Empties each capacity block, then makes it persistent. In this order, a process that is killed
/// in between leaves the block to the next one.
fn empty_capacity(
    ledger: &Ledger,
    memory: &SharedMemory,
    planted: Planted,
) -> Result<(), OpenError> {
    let blocks = (ledger.region_bytes().load(Acquire) / BLOCK_BYTES) as usize;
    let refused = |source| SetupError::Memory {
        what: "capacity blocks of the region, which were to be emptied,",
        len_bytes: blocks as u64 * BLOCK_BYTES,
        source,
    };
    for (block, kind) in ledger.kinds()[..blocks].iter().enumerate() {
        let bits = kind.load(Acquire);
        if !KindBits::is_capacity(bits) {
            continue;
        }
        let offset = block as u64 * BLOCK_BYTES;
        if bits == KindBits::BoundCapacity.to_byte() {
            map_region(memory)?.unbind(offset, BLOCK_BYTES as usize).map_err(refused)?;
        }
        if !planted.is(Planted::KeepCapacity) {
            memory.punch(offset, BLOCK_BYTES).map_err(refused)?;
        }
        kind.store(KindBits::Persistent.to_byte(), Release);
    }
    Ok(())
}
