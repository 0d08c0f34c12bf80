//! The end of a region: writers are refused, everything is flushed.

use std::time::Duration;

use perdura_dirty::{LaneId, RegionError};

use crate::flush::{FlushOptions, FlushReport, flush_all};
use crate::region::Region;

/// How long a final flush waits for prepared writes.
const PREPARED_WAIT: Duration = Duration::from_millis(20);

impl Region {
    /// Refuses writers from now on and ends their waits, as [`Region::close`] does first: for a
    /// thread that sees the warning while another one, which would close the region, writes.
    pub fn refuse_writers(&self) {
        self.running().backed.memory.budget.close();
    }

    /// Stops intake for good, flushes everything, commits it as final.
    ///
    /// A writer that holds a lane ends its operation first; one that waits for budget gets
    /// [`RegionError::Closed`], and so does whoever tries to change anything later. Lanes may still
    /// be locked to read, once the flush is over. In trap mode every page is closed for good: a
    /// thread that stores waits until the process ends or the region is dropped.
    pub fn close(&self, threads: usize) -> Result<FlushReport, RegionError> {
        let (running, backed) = (self.running(), &self.running().backed);
        backed.memory.budget.close();
        let mut cleaner = running.any_cleaner();
        let mut lanes = Vec::new();
        match backed.tracked.pages() {
            None => {
                let all = &backed.tracked.lanes;
                lanes.extend((0..all.count()).map(|lane| all.lock(LaneId(lane)).lock()));
            }
            Some(tracker) => {
                // An emergency does not wait for a peer's bytes: what is still being transferred
                // then is flushed as it is, and a system call that goes on gets EFAULT.
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
        // Whoever gets a lane from here on finds the region closed and can only read.
        for mut lane in lanes {
            lane.credit_bytes = 0;
        }
        // No zeros are on their way any more, and none will be: who goes on from here has the
        // device to himself.
        drop(running.prezeroing.lock());
        if let Err(RegionError::Latched { cause }) = &report {
            backed.memory.fail(cause);
        }
        report
    }
}
