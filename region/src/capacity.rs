//! Capacity memory that a region left behind.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::*;

use perdura_dirty::geometry::BLOCK_BYTES;
use perdura_dirty::planted::Planted;
use perdura_dirty::sys::SharedMemory;
use perdura_dirty::{KindBits, Ledger, SetupError};
use perdura_image::OpenError;

use crate::memory_files::{adopt, map_region};

/// The memory that a region left, for a new one: what was capacity is emptied before anybody can
/// read it.
pub(crate) fn take_over(
    ledger: &Ledger,
    memory: OwnedFd,
    planted: Planted,
) -> Result<SharedMemory, OpenError> {
    let memory = adopt("region", memory)?;
    empty_capacity(ledger, &memory, planted)?;
    Ok(memory)
}

/// Empties what a region that is gone had as capacity memory, and makes it persistent: first the
/// one, then the other, so that who is killed in between leaves it to the next.
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
