//! What the unit tests of several files share.

use crate::{LaneId, Region};

/// Writes through the first lane, waiting for room as often as need be.
pub(crate) fn write(region: &Region, offset: u64, bytes: &[u8]) {
    let mut credit = 0;
    loop {
        let mut lane = region.lock_with(LaneId(0), std::mem::take(&mut credit));
        let Err(need) = lane.write(offset, bytes) else { return };
        // No lane is held where room is waited for.
        drop(lane);
        credit = region.satisfy(need).unwrap();
    }
}
