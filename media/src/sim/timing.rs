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

/// A device of some timing, as a thing that is busy until a moment. Pure: times in, times out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    timing: Timing,
    /// When the last transfer accepted so far ends.
    busy_until_ns: u64,
}

impl Channel {
    /// An idle one.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        Self { timing, busy_until_ns: 0 }
    }

    /// When the last transfer accepted so far ends; 0: there was none.
    #[must_use]
    pub fn busy_until_ns(&self) -> u64 {
        self.busy_until_ns
    }

    /// Books a read at `now_ns`; returns when it completes.
    pub fn read(&mut self, now_ns: u64, len_bytes: u64) -> u64 {
        self.transfer(now_ns, len_bytes).saturating_add(self.timing.read_latency_ns)
    }

    /// Books a write at `now_ns`; returns when it completes.
    pub fn write(&mut self, now_ns: u64, len_bytes: u64) -> u64 {
        self.transfer(now_ns, len_bytes).saturating_add(self.timing.write_latency_ns)
    }

    /// When a flush that starts at `now_ns` is over.
    #[must_use]
    pub fn flush(&self, now_ns: u64) -> u64 {
        now_ns.max(self.busy_until_ns).saturating_add(self.timing.flush_latency_ns)
    }

    fn transfer(&mut self, now_ns: u64, len_bytes: u64) -> u64 {
        let time = self.timing.bandwidth.time_for(Bytes(len_bytes));
        let length_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.busy_until_ns = now_ns.max(self.busy_until_ns).saturating_add(length_ns);
        self.busy_until_ns
    }
}

/// A channel on a simulated clock.
#[derive(Clone)]
pub(super) struct Schedule {
    pub(super) clock: Arc<SimClock>,
    pub(super) channel: Channel,
}

impl Schedule {
    pub(super) fn read(&mut self, len_bytes: usize) -> u64 {
        self.channel.read(self.clock.now_ns(), len_bytes as u64)
    }

    pub(super) fn write(&mut self, len_bytes: usize) -> u64 {
        self.channel.write(self.clock.now_ns(), len_bytes as u64)
    }

    pub(super) fn flush(&self) -> u64 {
        self.channel.flush(self.clock.now_ns())
    }

    pub(super) fn bandwidth(&self) -> BytesPerSecond {
        self.channel.timing.bandwidth
    }

    /// Another speed from now on; what was accepted ends when it would have.
    pub(super) fn new(clock: Arc<SimClock>, timing: Timing, before: Option<&Self>) -> Self {
        let busy_until_ns = before.map_or(0, |before| before.channel.busy_until_ns);
        Self { clock, channel: Channel { timing, busy_until_ns } }
    }
}
