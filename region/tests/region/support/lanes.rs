//! A region whose blocks belong to a few lanes in turn, and writers that announce and wait.

use std::sync::Arc;

use perdura_media::{Device, SimClock};
use perdura_region::{BLOCK_BYTES, Config, LaneId, Region, RegionError};

pub const BLOCKS: u64 = 48;
pub const REGION_BYTES: u64 = BLOCKS * BLOCK_BYTES;
pub const LANES: u64 = 4;

pub fn lane_of(offset: u64) -> LaneId {
    LaneId((offset / BLOCK_BYTES % LANES) as u16)
}

pub fn owned(region: Region) -> Region {
    for block in 0..BLOCKS {
        region.assign_block(block, lane_of(block * BLOCK_BYTES));
    }
    region
}

pub fn open(device: &(impl Device + Clone + 'static), config: Config) -> Region {
    let clock = Arc::new(SimClock::new(1_000));
    owned(Region::open(Arc::new(device.clone()), clock, config).unwrap())
}

/// Attaches to a region's memory, as after `kill -9` with a holder.
pub fn attach(region: Region, device: &(impl Device + Clone + 'static), config: Config) -> Region {
    let (memory, ledger) = region.fds();
    let [memory, ledger] = [memory, ledger].map(|fd| fd.try_clone_to_owned().unwrap());
    drop(region);
    let (device, clock) = (Arc::new(device.clone()), Arc::new(SimClock::new(1_000)));
    owned(Region::attach(memory, ledger, device, clock, config).unwrap())
}

pub fn write(region: &Region, offset: u64, bytes: &[u8]) -> Result<(), RegionError> {
    let mut credit = 0;
    loop {
        let written = region.lock_with(lane_of(offset), credit).write(offset, bytes);
        match written {
            Ok(()) => return Ok(()),
            Err(need) => credit = region.satisfy(need)?,
        }
    }
}

pub fn read(region: &Region, offset: u64, len: usize) -> Vec<u8> {
    region.lock(lane_of(offset)).bytes(offset, len).to_vec()
}

pub fn memory(region: &Region) -> Vec<u8> {
    let block = |block| read(region, block * BLOCK_BYTES, BLOCK_BYTES as usize);
    (0..BLOCKS).map(block).collect::<Vec<_>>().concat()
}
