//! The drill: the emergency flush done for real, timed, after the budget was filled with scattered
//! records.
//!
//! Filling needs no scratch memory: clean grains that are marked in the ledger are written by the
//! flush, and no byte changes. The flush is the emergency flush itself, not a model of it.
//! Afterwards the region goes on.

use std::sync::atomic::Ordering::*;

use crate::flush::{FlushOptions, FlushReport, commit_all};
use crate::region::Region;
use perdura_dirty::geometry::{BLOCK_BYTES, WORD_GRAINS};
use perdura_dirty::{Kind, LaneId, NO_LOCATION, RegionError, SetupError, Tracked, count_live};

/// Bytes of a scattered record.
pub(crate) const RECORD_BYTES: u64 = 1024;

/// The outcome of a drill, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrillReport {
    /// Budget in force, bytes.
    pub budget_bytes: u64,
    /// Bytes on the budget's account when the flush began; fewer than the budget if the region is
    /// too small to fill it.
    pub used_bytes: u64,
    /// The result of the flush.
    pub flush: FlushReport,
    /// Time from the decision to flush until the commit was durable, nanoseconds.
    pub elapsed_ns: u64,
}

impl Region {
    /// Fills the budget with scattered records of 1 KiB, flushes for real, and goes on. Writers
    /// wait meanwhile. Without `fill`, only the data that happen to be dirty are flushed.
    ///
    pub fn drill(&self, fill: bool, threads: usize) -> Result<DrillReport, RegionError> {
        let (running, backed) = (self.running(), &self.running().backed);
        backed.memory.check()?;
        if backed.tracked.is_trapped() {
            // In trap mode, lanes do not stop code that just stores.
            return Err(RegionError::Trapped { what: "a drill while the region is in use" });
        }
        // The flush writes clean grains, too, so they must be in memory.
        self.load_all()?;
        let _changing = running.budget_change.lock();
        let mut cleaner = running.open_cleaner()?;
        cleaner.ensure_space(backed)?;
        if fill {
            backed.tracked.reclaim_credit();
            fill_budget(&backed.tracked);
        }
        let lanes: Vec<_> = (0..backed.tracked.lanes.count())
            .map(|lane| backed.tracked.lanes.lock(LaneId(lane)).lock())
            .collect();
        let used_bytes = backed.memory.ledger.budget_used().load(Acquire);
        let began_ns = backed.memory.clock.now_ns();
        backed.log.appender.lock().close_frame(&backed.memory.ledger, 0);
        cleaner.outlet.quiesce();
        let options = FlushOptions { threads, unix_ms: backed.memory.clock.unix_ms() };
        let flush = commit_all(
            &backed.memory.ledger,
            &backed.memory.map,
            &backed.log.layout,
            &*backed.log.device,
            options,
        );
        let elapsed_ns = backed.memory.clock.now_ns().saturating_sub(began_ns);
        let flush = flush.inspect_err(|error| {
            backed.memory.fail(&error.to_string());
        })?;
        let flush = flush.note(&backed.memory.ledger);
        cleaner.outlet.forget_written();
        let latched = |error: SetupError| RegionError::Latched { cause: error.to_string() };
        count_live(&backed.memory.ledger).map_err(latched)?;
        backed.rebuild_appender();
        // The flush used segments of the emergency reserve. They are freed before writers go on.
        let budget_bytes = backed.memory.ledger.budget_limit().load(Acquire);
        backed.memory.budget.begin_shrink(backed.coverable_bytes());
        drop(lanes);
        let restored =
            cleaner.checkpoint(backed, false).and_then(|()| cleaner.ensure_space(backed));
        drop(cleaner);
        restored.and_then(|()| self.reach_budget(budget_bytes)).inspect_err(|_| {
            backed.memory.budget.abandon_change();
        })?;
        Ok(DrillReport { budget_bytes, used_bytes, flush, elapsed_ns })
    }
}

/// Marks scattered records in the ledger until the budget is full or no clean grain is left.
/// Records that have been written before come first, because dirty data have been; untouched memory
/// follows if they are too few.
fn fill_budget(tracked: &Tracked) {
    for only_written in [true, false] {
        let records = tracked.memory.region_bytes() / RECORD_BYTES;
        // A stride that has no common factor with the number of records visits every record once,
        // far apart.
        let mut stride = (records as f64 * 0.618_033_988_75) as u64 | 1;
        while gcd(stride, records) != 1 {
            stride += 2;
        }
        let (mut record, mut refused) = (0, 0);
        for _ in 0..records {
            record = (record + stride) % records;
            if !enter_record(tracked, record * RECORD_BYTES, only_written) {
                refused += 1;
            }
            if refused > 64 {
                return;
            }
        }
    }
}

/// Marks a record in the ledger. Returns false if the budget has no room for it.
fn enter_record(tracked: &Tracked, offset: u64, only_written: bool) -> bool {
    let shift = tracked.memory.ledger.geometry().grain_shift;
    let grain = offset >> shift;
    if only_written && tracked.memory.ledger.locations().of(grain) == NO_LOCATION {
        return true;
    }
    let word = (grain / WORD_GRAINS) as usize;
    let mask = perdura_dirty::extent::mask(grain % WORD_GRAINS, (RECORD_BYTES >> shift).max(1));
    let _lane = tracked.lanes.lock_owner_of(offset);
    if tracked.memory.ledger.kind(offset / BLOCK_BYTES) == Kind::Capacity {
        return true;
    }
    let parity = tracked.memory.parity();
    let bits = &tracked.memory.ledger.bitmap(parity)[word];
    // Data of an epoch that did not close are on the account already.
    let owed = tracked.memory.ledger.bitmap(parity ^ 1)[word].load(Acquire);
    let new = mask & !(bits.load(Acquire) | owed);
    if new == 0 {
        return true;
    }
    if !tracked.memory.budget.try_take(&tracked.memory.ledger, u64::from(new.count_ones()) << shift)
    {
        return false;
    }
    bits.fetch_or(new, AcqRel);
    tracked.memory.summary(parity).mark(word);
    if !only_written {
        // Untouched memory gets its page now, because no real dirty data lie in a missing page.
        let _ = tracked.memory.map.octets(offset, 1)[0].load(Relaxed);
    }
    true
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_media::{SimClock, SimDevice};

    use super::*;
    use crate::Config;

    #[test]
    fn a_drill_after_a_checkpoint_that_ended_half_way_pays_back_what_it_took() {
        let config = Config {
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            ..Config::new(1 << 20, 1 << 20)
        };
        let clock = Arc::new(SimClock::new(1_000));
        let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock, config).unwrap();
        region.lock(LaneId(0)).write(0, &[1; 8192]).unwrap();
        // The state that a checkpoint leaves when the log has no space for it.
        let backed = &region.running().backed;
        backed.memory.ledger.closing().store(1, Release);
        backed.memory.ledger.epoch().fetch_add(1, AcqRel);
        region.drill(true, 1).unwrap();
        backed.tracked.reclaim_credit();
        assert_eq!(region.used_bytes(), 0);
    }

    #[test]
    fn a_drill_pays_back_frames_half_done_and_dirty_grains_and_its_region_goes_on() {
        let config = Config {
            segment_bytes: Some(64 << 10),
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            ..Config::new(1 << 20, 1 << 20)
        };
        let (device, clock) = (Arc::new(SimDevice::new(0, 1)), Arc::new(SimClock::new(1_000)));
        let region = Region::open(device.clone(), clock.clone(), config.clone()).unwrap();
        let write = |at: u64, byte: u8| region.lock(LaneId(0)).write(at, &[byte; 8192]).unwrap();
        write(0, 1);
        let backed = &region.running().backed;
        let mut cleaner = region.running().any_cleaner();
        let mut round = cleaner.begin_round(backed, 8192);
        cleaner.run_round(backed, &mut round).unwrap();
        assert_eq!((round.copied_bytes, cleaner.outlet.in_flight_bytes), (8192, 8192));
        drop(cleaner);
        write(64 << 10, 2);
        let report = region.drill(false, 1).unwrap();
        assert_eq!(report.flush.dirty_bytes, 8192);
        assert!((8192..16_384).contains(&report.flush.redone_bytes), "{report:?}");
        assert!(report.used_bytes >= 2 * 8192);
        backed.tracked.reclaim_credit();
        assert_eq!(region.used_bytes(), 0);
        // The next frames go beside those of the drill, and a cut of power leaves the last commit.
        write(128 << 10, 3);
        region.checkpoint().unwrap();
        write(0, 9);
        let after_the_cut = Arc::new(device.power_cycle(1));
        drop(region);
        let region = Region::open(after_the_cut, clock, config).unwrap();
        let lane = region.lock(LaneId(0));
        for (at, byte) in [(0, 1), (64 << 10, 2), (128 << 10, 3)] {
            assert_eq!(lane.bytes(at, 8192), [byte; 8192], "at {at}");
        }
    }

    #[test]
    fn a_drill_of_untouched_memory_flushes_a_full_budget() {
        const BUDGET_BYTES: u64 = 256 << 10;
        let config = Config {
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            ..Config::new(1 << 20, BUDGET_BYTES)
        };
        let clock = Arc::new(SimClock::new(1_000));
        let region = Region::open(Arc::new(SimDevice::new(0, 1)), clock, config).unwrap();
        let report = region.drill(true, 1).unwrap();
        // What does not fit is less than a record for each refusal that ends the filling.
        let filled = BUDGET_BYTES - 64 * RECORD_BYTES..=BUDGET_BYTES;
        assert!(filled.contains(&report.used_bytes), "{report:?}");
        assert_eq!(report.flush.dirty_bytes, report.used_bytes);
    }

    #[test]
    fn a_drill_of_memory_that_is_not_loaded_yet_loses_none_of_it() {
        let config = || Config {
            segment_bytes: Some(64 << 10),
            lanes: Some(1),
            thread: false,
            checkpoint_every: None,
            defer_load: true,
            ..Config::new(1 << 20, 1 << 20)
        };
        let clock = || Arc::new(SimClock::new(1_000));
        let device = SimDevice::new(0, 1);
        let region = Region::open(Arc::new(device.clone()), clock(), config()).unwrap();
        for block in 0..16 {
            let written = region.lock(LaneId(0)).write(block * BLOCK_BYTES, &[7; 4096]);
            written.unwrap();
        }
        region.close(1).unwrap();
        drop(region);
        let region = Region::open(Arc::new(device.clone()), clock(), config()).unwrap();
        region.drill(true, 1).unwrap();
        let after_the_cut = device.power_cycle(1);
        drop(region);
        let region = Region::open(Arc::new(after_the_cut), clock(), config()).unwrap();
        for block in 0..16 {
            let lane = region.lock(LaneId(0));
            assert_eq!(lane.bytes(block * BLOCK_BYTES, 4096), [7; 4096], "block {block}");
        }
    }
}
