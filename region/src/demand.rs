//! The cleaner's work for faults that wait (trap mode): it frees budget, captures pages of a
//! closing epoch, and makes room in the table of mappings. It goes on with that while it waits for
//! prepared writes.

use std::sync::atomic::Ordering::*;

use crate::clean::Cleaner;
use perdura_dirty::geometry::WORD_GRAINS;
use perdura_dirty::{Counters, PageTracker, RegionError};
use perdura_image::{Backed, Pump, Refusal};

impl Cleaner {
    /// Frees budget if faults wait for it, in the middle of a checkpoint or a compaction: without
    /// beginning another.
    pub(crate) fn serve_faults_in_place(&mut self, backed: &Backed) -> Result<(), RegionError> {
        match asked_bytes(backed) {
            Some(bytes) => self.make_room_in_place(backed, bytes).map(drop),
            None => Ok(()),
        }
    }

    /// Captures the pages of the closing epoch that faults wait for, before the drain reaches them.
    pub(crate) fn serve_urgent(
        &mut self,
        backed: &Backed,
        closing: u64,
    ) -> Result<(), RegionError> {
        let Some(tracker) = backed.tracked.pages() else { return Ok(()) };
        let mut wanted = [0u64; 32];
        let mut count = 0;
        tracker.take_urgent(|page| {
            wanted[count] = page;
            count += 1;
        });
        for page in &wanted[..count] {
            let (word, bit) = ((page / WORD_GRAINS) as usize, 1 << (page % WORD_GRAINS));
            loop {
                match capture(backed, tracker, closing, word, bit) {
                    None => break,
                    Some(Refusal::NoBuffer) => self.outlet.pump(backed, Pump::One).map(drop)?,
                    Some(Refusal::NoSegment) => return Err(backed.log.full()),
                }
            }
        }
        Ok(())
    }

    /// Lets no prepared write begin, and waits for those under way. Faults are served meanwhile,
    /// because a prepared write may wait for a thread that faults. Ends with an error if the region
    /// is closed: the final flush needs the cleaner, and waits for no peer's bytes.
    pub(crate) fn shut_prepared(&mut self, backed: &Backed) -> Result<(), RegionError> {
        let Some(tracker) = backed.tracked.pages() else { return Ok(()) };
        tracker.prepared.begin_shut();
        loop {
            let seen = tracker.prepared.news.version();
            if tracker.prepared.is_empty() {
                return Ok(());
            }
            let is_open = backed.memory.check_open();
            if let Err(error) = is_open.and_then(|()| self.serve_faults_in_place(backed)) {
                tracker.prepared.reopen();
                tracker.unblocked.notify();
                return Err(error);
            }
            tracker.prepared.news.wait(&*backed.memory.clock, seen);
        }
    }
}

/// The bytes of budget that a fault asked for, if they are not free. Also makes room in the table
/// of mappings if a fault asked for that.
pub(crate) fn asked_bytes(backed: &Backed) -> Option<u64> {
    let tracker = backed.tracked.pages()?;
    tracker.relieve();
    let ledger = &backed.memory.ledger;
    let room = ledger.geometry().grain_bytes();
    let limit = backed.memory.budget.effective_limit(ledger);
    let is_full = ledger.budget_used().load(Acquire) + room > limit;
    (tracker.take_room_asked() && is_full).then_some(room)
}

fn capture(
    backed: &Backed,
    tracker: &PageTracker,
    closing: u64,
    word: usize,
    bit: u64,
) -> Option<Refusal> {
    let owed = backed.memory.ledger.bitmap(closing)[word].load(Acquire) & bit;
    if owed == 0 {
        return None;
    }
    let closed = tracker.close(word, owed);
    assert_eq!(closed, owed, "an owed page is locked");
    let (done, refusal) = backed.append_bits(&mut backed.log.appender.lock(), closing, word, owed);
    tracker.release(word, owed, 0);
    let bytes = u64::from(done.count_ones()) << backed.memory.ledger.geometry().grain_shift;
    Counters::add(&backed.memory.stats.captured_bytes, bytes);
    refusal
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use perdura_dirty::Blocked;
    use perdura_media::{RealClock, SimDevice};

    use super::*;
    use crate::{BLOCK_BYTES, Config, Region, TrackingKind, TrapKind};

    #[test]
    fn a_page_that_a_fault_waits_for_is_captured_before_the_drain() {
        let config = Config {
            tracking: TrackingKind::Trap(TrapKind::Auto),
            checkpoint_every: None,
            ..Config::new(64 * BLOCK_BYTES, 32 * BLOCK_BYTES)
        };
        let device = Arc::new(SimDevice::new(0, 1));
        let region = Region::open(device, Arc::new(RealClock), config).unwrap();
        let page_bytes = region.geometry().grain_bytes();
        for page in [3, 5, 64] {
            region.trapped().unwrap().write(page * page_bytes, &[1; 8]);
        }
        let backed = &region.running().backed;
        let (ledger, tracker) = (&backed.memory.ledger, backed.tracked.pages().unwrap());
        let closing = backed.memory.parity();
        let owed = || [0, 1].map(|word| ledger.bitmap(closing)[word].load(Acquire));
        let captured = || region.stats().captured_bytes / page_bytes;
        // Until this is released the region's thread does nothing.
        let mut cleaner = region.running().any_cleaner();
        let flip = || {
            ledger.closing().store(1, Release);
            ledger.epoch().fetch_add(1, AcqRel);
        };
        tracker.cut(flip).unwrap();
        let before = (owed(), captured());
        // Page 4 is not owed.
        [4, 5, 64].into_iter().for_each(|page| tracker.ask(page, Blocked::Owed));
        cleaner.serve_urgent(backed, closing).unwrap();
        let served = (owed(), captured());
        cleaner.finish_closing_epoch(backed, 0).unwrap();
        // A panic while the cleaner is held would end the process.
        drop(cleaner);
        assert_eq!(before, ([1 << 3 | 1 << 5, 1], 0));
        assert_eq!(served, ([1 << 3, 0], 2));
        assert_eq!((owed(), captured()), ([0, 0], 2), "the drain captures nothing");
    }
}
