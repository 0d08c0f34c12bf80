//! What the unit tests of several files share.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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

/// Burns down at the steps of something that a kill may interrupt; unlit it never ends.
#[derive(Default)]
pub(crate) struct Fuse(AtomicU64);

impl Fuse {
    /// The step after so many more is not made.
    pub fn light(&self, steps: u64) {
        self.0.store(steps + 1, Relaxed);
    }

    /// False: the process would have been killed before this step.
    pub fn step(&self) -> bool {
        match self.0.load(Relaxed) {
            0 => true,
            1 => false,
            left => {
                self.0.store(left - 1, Relaxed);
                true
            }
        }
    }
}
