//! The end of an opened directory: it is flushed, its holder ends, and the caller gets a report,
//! once.
//!
//! - A flush that fails is an error. The memory stays as it is and the holder goes on keeping it,
//!   so the caller may repair the device and close again.
//! - Success is reported only when everything is on the SSD.
//! - A change that meets the closing is refused when the closing is over.
//! - A forked child closes nothing, because everything belongs to its parent.

use std::path::PathBuf;
use std::time::Duration;

use parking_lot::Mutex;
use perdura_media::{Clock, RealClock};
use perdura_region::holder::Holders;
use perdura_region::{Region, RegionError, directory};

use crate::error::CloseError;

/// The report of the final flush.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let options = perdura::Options::new().memory_bytes(16 << 20);
/// # let store = perdura::Store::open_with(dir.path().join("data"), &options)?;
/// store.set("key", "value")?;
/// let flushed = store.close()?;
/// assert!(flushed.is_in_time, "{} bytes took longer than the warning", flushed.dirty_bytes);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Flushed {
    /// Bytes that were dirty when the flush began.
    pub dirty_bytes: u64,
    /// Bytes written to the SSD for them.
    pub device_bytes: u64,
    /// Time from the call of `close` until the SSD has confirmed that everything is durable.
    pub elapsed: Duration,
    /// Whether that was within the warning.
    pub is_in_time: bool,
}

/// The state that a directory needs at its closing.
#[derive(Debug)]
pub(crate) struct Closing {
    dir: PathBuf,
    threads: usize,
    warning: Duration,
    /// The process that opened the directory.
    process: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Open(Holders),
    Closed(Flushed),
}

impl Closing {
    pub fn new(dir: PathBuf, holders: Holders, threads: usize, warning: Duration) -> Self {
        let state = Mutex::new(State::Open(holders));
        Self { dir, threads, warning, process: std::process::id(), state }
    }

    /// Threads of a flush.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Time from a warning to the end.
    pub fn warning(&self) -> Duration {
        self.warning
    }

    /// Whether this process was forked from the one that opened the directory.
    pub fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Stops writers for good, flushes, lets the holder go. A second call repeats the first one's
    /// report.
    pub fn close(&self, region: &Region) -> Result<Flushed, CloseError> {
        if self.is_forked() {
            return Err(CloseError::Forked { opened_by: self.process });
        }
        let began_ns = RealClock.now_ns();
        let mut state = self.state.lock();
        let holders = match &mut *state {
            State::Closed(flushed) => return Ok(*flushed),
            State::Open(holders) => holders,
        };
        let at_risk_bytes = region.used_bytes();
        let report = region
            .close(self.threads)
            .map_err(|source| CloseError::Flush { at_risk_bytes, source })?;
        let elapsed = Duration::from_nanos(RealClock.now_ns().saturating_sub(began_ns));
        let mut holders = std::mem::take(holders);
        let flushed = Flushed {
            dirty_bytes: report.dirty_bytes,
            device_bytes: report.device_bytes,
            elapsed,
            is_in_time: elapsed <= self.warning,
        };
        *state = State::Closed(flushed);
        holders.let_go().map_err(CloseError::HolderStays)?;
        directory::end(region, &self.dir);
        Ok(flushed)
    }

    /// Called when a change was refused. If another thread is closing, this returns when the
    /// closing has ended, so that a program that ends at the refused change does not cut the flush
    /// off.
    pub fn await_end(&self, refused: &RegionError) {
        if matches!(refused, RegionError::Closed) && !self.is_forked() {
            drop(self.state.lock());
        }
    }

    /// For `drop`, which can report to nobody but the log: the failure stays in the region, and the
    /// holder, if there is one, goes on keeping the memory.
    pub fn close_at_drop(&self, region: &Region) {
        if let Err(error) = self.close(region) {
            tracing::error!(%error, "dropped without a complete flush");
        }
    }
}
