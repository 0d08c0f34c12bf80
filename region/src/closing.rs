//! Closing a region: writers are refused, and everything is flushed.

use std::time::Duration;

use perdura_dirty::{LaneId, RegionError};

use crate::flush::{FlushOptions, FlushReport, flush_all};
use crate::region::Region;

/// Time that a final flush waits for prepared writes.
const PREPARED_WAIT: Duration = Duration::from_millis(20);

impl Region {
    /// Refuses writers from now on and ends their waits, as [`Region::close`] does first. A thread
    /// that sees a warning can call this while another thread, which will close the region, still
    /// writes.
    pub fn refuse_writers(&self) {
        let backed = &self.running().backed;
        backed.memory.budget.close();
        if let Some(tracker) = backed.tracked.pages() {
            // A checkpoint that waits for prepared writes gives up.
            tracker.prepared.news.notify();
        }
    }

    /// Lets writers wait, or go on: for a battery that is nearly empty. Operations that have begun
    /// end. After the next checkpoint no byte changes, and everything is on the SSD, until they go
    /// on. A close ends the wait as it ends every other.
    pub fn hold_writers(&self, is_held: bool) {
        let backed = &self.running().backed;
        match backed.tracked.pages() {
            // Whoever stores cannot be told, so it waits.
            Some(tracker) => tracker.hold(is_held),
            None => backed.memory.budget.hold(is_held),
        }
    }

    /// Refuses writers for good, flushes everything, and commits that as final.
    ///
    /// A writer that holds a lane ends its operation first. A writer that waits for budget gets
    /// [`RegionError::Closed`], as does every later change. Lanes can be locked for reading when
    /// the flush is over. In trap mode every page is closed for good: a thread that stores waits
    /// until the process ends or the region is dropped.
    pub fn close(&self, threads: usize) -> Result<FlushReport, RegionError> {
        let (running, backed) = (self.running(), &self.running().backed);
        self.refuse_writers();
        let mut cleaner = running.any_cleaner();
        let mut lanes = Vec::new();
        match backed.tracked.pages() {
            None => {
                let all = &backed.tracked.lanes;
                lanes.extend((0..all.count()).map(|lane| all.lock(LaneId(lane)).lock()));
            }
            Some(tracker) => {
                // An emergency does not wait for a peer's bytes. A transfer that is still under way
                // is flushed as far as it came, and its system call gets EFAULT.
                tracker.prepared.begin_shut();
                tracker.prepared.is_empty_within(&*backed.memory.clock, PREPARED_WAIT);
                tracker.shut()?;
            }
        }
        backed.log.appender.lock().close_frame(&backed.memory.ledger, 0);
        cleaner.outlet.quiesce();
        let options = FlushOptions { threads, unix_ms: backed.memory.clock.unix_ms() };
        let report = flush_all(
            &backed.memory.ledger,
            &backed.memory.map,
            &backed.log.layout,
            &*backed.log.device,
            options,
        );
        // Lanes that are locked from here on find the region closed, and are good for reading only.
        for mut lane in lanes {
            lane.credit_bytes = 0;
        }
        // Waits until no zeros are on their way to free segments, and none will be: nothing else
        // writes to the device from here on.
        drop(running.prezeroing.lock());
        if let Err(RegionError::Latched { cause }) = &report {
            backed.memory.fail(cause);
        }
        report
    }
}
