//! Modelled time: transfers follow one another at the bandwidth, latencies overlap.

use std::sync::Arc;

use crate::clock::{Clock, SimClock};
use crate::units::{Bytes, BytesPerSecond};

/// The modelled speed of a simulated device. Results are modelled, not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Bandwidth that reads and writes share.
    pub bandwidth: BytesPerSecond,
    /// Latency of each read, nanoseconds.
    pub read_latency_ns: u64,
    /// Latency of each write, nanoseconds; writes in flight together share it.
    pub write_latency_ns: u64,
    /// Latency of each flush, nanoseconds.
    pub flush_latency_ns: u64,
}

/// A device with a timing, as a channel that is busy until an instant. It is pure: times in, times
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    timing: Timing,
    /// Instant at which the last accepted transfer ends.
    busy_until_ns: u64,
}

impl Channel {
    /// An idle channel.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        Self { timing, busy_until_ns: 0 }
    }

    /// Instant at which the last accepted transfer ends; 0 if there was none.
    #[must_use]
    pub fn busy_until_ns(&self) -> u64 {
        self.busy_until_ns
    }

    /// Books a read at `now_ns`; returns the instant at which it completes.
    pub fn read(&mut self, now_ns: u64, len_bytes: u64) -> u64 {
        self.transfer(now_ns, len_bytes).saturating_add(self.timing.read_latency_ns)
    }

    /// Books a write at `now_ns`; returns the instant at which it completes.
    pub fn write(&mut self, now_ns: u64, len_bytes: u64) -> u64 {
        self.transfer(now_ns, len_bytes).saturating_add(self.timing.write_latency_ns)
    }

    /// Instant at which a flush that starts at `now_ns` ends.
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

    /// Changes the speed from now on; transfers that were accepted end as booked before.
    pub(super) fn new(clock: Arc<SimClock>, timing: Timing, before: Option<&Self>) -> Self {
        let busy_until_ns = before.map_or(0, |before| before.channel.busy_until_ns);
        Self { clock, channel: Channel { timing, busy_until_ns } }
    }
}
