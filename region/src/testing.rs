//! Shared code of the unit tests.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{LaneId, Region};

/// Writes through lane 0, and waits for room as often as needed.
pub(crate) fn write(region: &Region, offset: u64, bytes: &[u8]) {
    let mut credit = 0;
    loop {
        let mut lane = region.lock_with(LaneId(0), std::mem::take(&mut credit));
        let Err(need) = lane.write(offset, bytes) else { return };
        // The lane is released before the wait for room.
        drop(lane);
        credit = region.satisfy(need).unwrap();
    }
}

/// Counts down the steps of an operation to the one at which a test kills it. A fuse that is not
/// lit never ends.
#[derive(Default)]
pub(crate) struct Fuse(AtomicU64);

impl Fuse {
    /// Lights the fuse: `steps` more steps are made, and the one after them is not.
    pub(crate) fn light(&self, steps: u64) {
        self.0.store(steps + 1, Relaxed);
    }

    /// Returns false if the process would have been killed before this step.
    pub(crate) fn step(&self) -> bool {
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
