//! The battery of the simulated machine, by figures that were not taken from the product.
//!
//! A battery is a number of bytes that can still be written when the power goes. The product is
//! told this number and no other, and derives the budget from it by its promise. So a flush that
//! costs more than the product believes is cut off.

use std::time::Duration;

use perdura_region::{BudgetWish, Geometry, Terms, promise};

/// With this rate a battery of so many bytes is a warning of as many nanoseconds.
const RATE_BYTES_PER_S: u64 = 1_000_000_000;
/// The part of the warning for work that does not grow with the budget: any value will do.
const RESERVE: Duration = Duration::from_millis(1);
/// Dirty bytes beyond those asked for, so that the smallest budget can be promised, too.
const EXTRA_DIRTY_BYTES: u64 = 64 << 10;

/// Bytes of an isolated grain in a frame: the grain, and its entry in the table.
const ISOLATED_GRAIN_BYTES: u64 = 64 + 8;
/// Bytes of a page, each of which has a checksum of 8 bytes.
const PAGE_BYTES: u64 = 4096;
/// Frames that a killed process may have left half done, and that count in no budget.
const HALF_DONE_FRAMES: u64 = 5;
/// Frames that a flush has on their way.
const FLUSH_FRAMES: u64 = 20;
/// Bytes of the grains of one bitmap word, which may be moved beyond the limit of such frames.
const WORD_BYTES: u64 = 4096;

/// The bytes that can be written on battery.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Battery {
    /// For a flush of the dirty bytes.
    pub flush_bytes: u64,
    /// For frames that a killed process left half done.
    pub redo_bytes: u64,
}

impl Battery {
    /// A battery for a little more than `dirty_bytes`, of which no two grains touch each other. The
    /// longest frame of the simulated log is a segment.
    pub fn for_dirty(dirty_bytes: u64, segment_bytes: u64) -> Self {
        let dirty_bytes = dirty_bytes + EXTRA_DIRTY_BYTES;
        let body = dirty_bytes / 64 * ISOLATED_GRAIN_BYTES;
        // Bytes of a frame besides grains and their entries: its header, the checksums of its
        // pages, and what rounding up to a page adds at most.
        let frame_more = 64 + segment_bytes / PAGE_BYTES * 8 + PAGE_BYTES;
        // One frame more, because the last one of a thread is not full.
        let frames = body.div_ceil(segment_bytes - frame_more) + 1;
        let frame = (dirty_bytes / 8).next_power_of_two().clamp(16 << 10, segment_bytes);
        Self {
            flush_bytes: body + frames * frame_more,
            redo_bytes: HALF_DONE_FRAMES * frame + WORD_BYTES,
        }
    }

    /// Bytes that a killed flush or drill leaves half done, beside the frames of every process.
    /// They are in no budget: the reserve of a real warning pays for them.
    pub fn killed_flush_bytes(segment_bytes: u64) -> u64 {
        FLUSH_FRAMES * segment_bytes
    }

    /// The budget that the product promises for this battery.
    ///
    /// # Panics
    /// The product promises none.
    pub fn budget_bytes(&self, geometry: &Geometry, region_bytes: u64) -> u64 {
        let bytes = self.flush_bytes + self.redo_bytes;
        let warning = RESERVE + Duration::from_nanos(bytes);
        let rate_bytes_per_s = RATE_BYTES_PER_S;
        let terms = Terms { warning, reserve: RESERVE, rate_bytes_per_s, region_bytes };
        match promise(geometry, &terms, BudgetWish::Derived) {
            Ok(promise) => promise.budget_bytes,
            Err(error) => panic!("a battery for {bytes} bytes: {error}"),
        }
    }
}

/// Bytes of a final commit: two slots with two copies each, of which each has a header of 128 B and
/// 16 B for each segment that the log may have, in whole pages.
pub(crate) fn final_commit_bytes(geometry: &Geometry) -> u64 {
    let slot_bytes = 128 + u64::from(geometry.segments_max) * 16;
    4 * slot_bytes.next_multiple_of(4096)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_media::{LoneClock, SimDevice};
    use perdura_region::{BUDGET_MIN_BYTES, Config, LaneId, Region};

    use super::*;

    #[test]
    fn a_full_budget_of_isolated_grains_is_flushed_on_the_battery_it_was_promised_for() {
        const SEGMENT_BYTES: u64 = 64 << 10;
        let region_bytes = 16 << 20;
        for dirty_bytes in [128 << 10, 500 << 10, 2 << 20, 5 << 20] {
            let config = |budget_bytes| Config {
                segment_bytes: Some(SEGMENT_BYTES),
                lanes: Some(1),
                thread: false,
                checkpoint_every: None,
                ..Config::new(region_bytes, budget_bytes)
            };
            let battery = Battery::for_dirty(dirty_bytes, SEGMENT_BYTES);
            let geometry = config(BUDGET_MIN_BYTES).geometry().unwrap();
            let budget_bytes = battery.budget_bytes(&geometry, region_bytes);
            let device = SimDevice::new(0, 1);
            let clock = Arc::new(LoneClock::new(1_000));
            let region = Region::open(Arc::new(device.clone()), clock, config(budget_bytes));
            let region = region.unwrap();
            let announced = (0..region_bytes)
                .step_by(128)
                .take_while(|offset| region.lock(LaneId(0)).announce(*offset, 1).is_ok())
                .count() as u64;
            assert!(announced * 64 + 4096 >= budget_bytes, "{announced} grains, {budget_bytes} B");
            device.set_energy_bytes(Some(battery.flush_bytes + final_commit_bytes(&geometry)));
            let report = region.close(1).unwrap();
            assert_eq!(report.dirty_bytes, announced * 64);
        }
    }
}
