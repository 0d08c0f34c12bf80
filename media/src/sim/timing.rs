//! Modelled time: transfers follow one another at the bandwidth, latencies overlap.

use std::sync::Arc;

use crate::clock::{Clock, SimClock};
use crate::units::{Bytes, BytesPerSecond};

/// How fast a simulated device is said to be. Numbers got with it are modelled, not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Shared by reads and writes.
    pub bandwidth: BytesPerSecond,
    /// Added to each read, nanoseconds.
    pub read_latency_ns: u64,
    /// Added to each write, nanoseconds; writes in flight together share it.
    pub write_latency_ns: u64,
    /// Added to each flush, nanoseconds.
    pub flush_latency_ns: u64,
}

#[derive(Clone)]
pub(super) struct Schedule {
    pub(super) clock: Arc<SimClock>,
    pub(super) timing: Timing,
    /// When the last transfer accepted so far ends.
    pub(super) busy_until_ns: u64,
}

impl Schedule {
    /// Books a transfer; returns when it completes.
    pub(super) fn transfer(&mut self, len_bytes: usize, latency_ns: u64) -> u64 {
        let start_ns = self.clock.now_ns().max(self.busy_until_ns);
        let time = self.timing.bandwidth.time_for(Bytes(len_bytes as u64));
        let length_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.busy_until_ns = start_ns.saturating_add(length_ns);
        self.busy_until_ns.saturating_add(latency_ns)
    }

    /// When a flush that starts now is over.
    pub(super) fn flush(&self) -> u64 {
        let start_ns = self.clock.now_ns().max(self.busy_until_ns);
        start_ns.saturating_add(self.timing.flush_latency_ns)
    }
}
