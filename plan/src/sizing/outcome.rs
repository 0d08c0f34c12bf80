//! The results of a replay.

use hdrhistogram::Histogram;
use perdura_media::BytesPerSecond;

use super::config::ReplayConfig;
use crate::trace::PAGE_BYTES;

const NS_PER_S: u64 = 1_000_000_000;
/// The longest stall that is told from longer ones: a day, in nanoseconds.
const STALL_MAX_NS: u64 = 86_400 * NS_PER_S;
const NS_PER_YEAR: f64 = 365.25 * 86_400.0 * 1e9;

/// The result of a replay with one budget. Every figure is modelled: the region's own decisions on
/// a modelled device.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The most bytes that might be dirty.
    pub budget_bytes: u64,
    /// The page writes of the trace.
    pub page_writes: u64,
    /// How many different pages were written.
    pub written_pages: u64,
    /// The time from the first record of the trace to the last, nanoseconds.
    pub trace_ns: u64,
    /// The time until the last write was through, nanoseconds: later than `trace_ns` if writers had
    /// to wait.
    pub run_ns: u64,
    /// The time until the device had written all that it was handed, nanoseconds: later than
    /// `run_ns` if it is behind.
    pub device_ns: u64,
    /// The bytes of the pages written.
    pub user_bytes: u64,
    /// The bytes of pages that became dirty, which are the writes to clean pages.
    pub dirtied_bytes: u64,
    /// The bytes written to the device, by cause.
    pub device: DeviceBytes,
    /// The bytes written to the device in the worst second of the clock.
    pub worst_second_bytes: u64,
    /// How many times the device was flushed.
    pub device_flushes: u64,
    /// How many checkpoints were committed, those that made space among them.
    pub checkpoints: u64,
    /// How many writes had to wait.
    pub stalls: u64,
    /// How long each of the writes that had to wait did so, nanoseconds.
    pub stall_ns: Histogram<u64>,
    /// The sum of all waits, nanoseconds.
    pub stalled_ns: u64,
    /// The longest wait, nanoseconds.
    pub stall_max_ns: u64,
    /// The most bytes that were in use at once: dirty, or on their way to the device.
    pub used_max_bytes: u64,
    /// How long the device takes to write a full budget, nanoseconds, all pages scattered.
    pub flush_ns: u64,
    /// Years until the device has taken what it is rated for; `None` if that was not given or
    /// nothing was written.
    pub endurance_years: Option<f64>,
    /// How many times cleaning found no space in the log.
    pub log_full: u64,
}

/// The bytes written to the device, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceBytes {
    /// The pages cleaned ahead of need, or for a writer that waited, in bytes.
    pub cleaning: u64,
    /// The pages that checkpoints wrote, in bytes.
    pub checkpoint: u64,
    /// The pages moved so that space came free, in bytes.
    pub compaction: u64,
    /// The headers, tables, checksums, ends of frames and commits, in bytes.
    pub metadata: u64,
}

impl DeviceBytes {
    /// The sum of all causes.
    pub fn total(&self) -> u64 {
        self.cleaning + self.checkpoint + self.compaction + self.metadata
    }
}

impl Outcome {
    /// Bytes on the device for each byte of the page writes: of a request for a part of a page the
    /// whole page counts.
    pub fn device_bytes_per_user_byte(&self) -> f64 {
        self.device.total() as f64 / self.user_bytes.max(1) as f64
    }

    /// Mean bytes a second, over the run or the time that the device needs for it, whichever is
    /// longer.
    pub fn mean_bytes_per_s(&self) -> f64 {
        let ns = self.run_ns.max(self.device_ns).max(1);
        self.device.total() as f64 * NS_PER_S as f64 / ns as f64
    }

    /// The share of the run's time that the writer waited, 0 to 1.
    pub fn stalled_share(&self) -> f64 {
        self.stalled_ns as f64 / self.run_ns.max(1) as f64
    }

    /// The share of the page writes that had to wait, 0 to 1.
    pub fn stalls_per_write(&self) -> f64 {
        self.stalls as f64 / self.page_writes.max(1) as f64
    }

    /// Within how many nanoseconds this share of all page writes was through, 0 to 1; those that
    /// did not wait took none.
    pub fn write_ns_at(&self, share: f64) -> u64 {
        let waited = self.stalls as f64 / self.page_writes.max(1) as f64;
        if share <= 1.0 - waited || self.stalls == 0 {
            return 0;
        }
        self.stall_ns.value_at_quantile((share - (1.0 - waited)) / waited)
    }
}

/// Why bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Cleaning,
    Checkpoint,
    Compaction,
}

/// The counters of a running replay.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    cleaning: u64,
    checkpoint: u64,
    compaction: u64,
    pub device_bytes: u64,
    /// The time at which the trace began, nanoseconds.
    pub start_ns: u64,
    second: u64,
    second_bytes: u64,
    worst_second_bytes: u64,
    pub device_flushes: u64,
    pub checkpoints: u64,
    pub used_max_bytes: u64,
    pub log_full: u64,
}

impl Tally {
    pub fn copied(&mut self, cause: Cause, bytes: u64) {
        *match cause {
            Cause::Cleaning => &mut self.cleaning,
            Cause::Checkpoint => &mut self.checkpoint,
            Cause::Compaction => &mut self.compaction,
        } += bytes;
    }

    /// Counts bytes that the device writes evenly from one time to another; such times rise.
    pub fn wrote(&mut self, from_ns: u64, to_ns: u64, bytes: u64) {
        self.device_bytes += bytes;
        let (from_ns, to_ns) = (from_ns - self.start_ns, to_ns - self.start_ns);
        let length_ns = to_ns.saturating_sub(from_ns).max(1);
        let within = |ns: u64| (u128::from(bytes) * u128::from(ns) / u128::from(length_ns)) as u64;
        let first = from_ns / NS_PER_S;
        let last = to_ns.saturating_sub(1).max(from_ns) / NS_PER_S;
        if first == last {
            return self.wrote_in(first, bytes);
        }
        let head = within((first + 1) * NS_PER_S - from_ns);
        let tail = within(to_ns - last * NS_PER_S);
        self.wrote_in(first, head);
        if last - first > 1 {
            // All whole seconds between are alike: one stands for them.
            self.wrote_in(first + 1, (bytes - head - tail) / (last - first - 1));
        }
        self.wrote_in(last, tail);
    }

    fn wrote_in(&mut self, second: u64, bytes: u64) {
        if second != self.second {
            (self.second, self.second_bytes) = (second, 0);
        }
        self.second_bytes += bytes;
        self.worst_second_bytes = self.worst_second_bytes.max(self.second_bytes);
    }

    /// `unwritten_bytes`: of pages copied to frames that were not handed to the device before the
    /// end.
    fn device(&self, unwritten: u64) -> DeviceBytes {
        let pages = self.cleaning + self.checkpoint + self.compaction;
        // What was last copied is cleaning's, or a checkpoint's that did not end.
        let mut left = unwritten;
        let mut less = |bytes: u64| {
            let taken = left.min(bytes);
            left -= taken;
            bytes - taken
        };
        let (cleaning, checkpoint, compaction) =
            (less(self.cleaning), less(self.checkpoint), less(self.compaction));
        let metadata = self.device_bytes.saturating_sub(pages.saturating_sub(unwritten));
        DeviceBytes { cleaning, checkpoint, compaction, metadata }
    }
}

/// The counters of the writer.
#[derive(Debug)]
pub(super) struct Writer {
    pub page_writes: u64,
    pub stalls: u64,
    pub stalled_ns: u64,
    pub stall_max_ns: u64,
    pub stall_ns: Histogram<u64>,
}

impl Writer {
    pub fn new() -> Self {
        Self { page_writes: 0, stalls: 0, stalled_ns: 0, stall_max_ns: 0, stall_ns: histogram() }
    }

    pub fn stalled(&mut self, ns: u64) {
        self.stalls += 1;
        self.stalled_ns += ns;
        self.stall_max_ns = self.stall_max_ns.max(ns);
        self.stall_ns.saturating_record(ns);
    }
}

/// A histogram with three digits, from a nanosecond to a day.
pub(super) fn histogram() -> Histogram<u64> {
    let Ok(histogram) = Histogram::new_with_bounds(1, STALL_MAX_NS, 3) else {
        unreachable!("bounds and digits that a histogram can have")
    };
    histogram
}

/// All counts of a replay, from which its outcome is made.
pub(super) struct Ending<'e> {
    pub config: &'e ReplayConfig,
    pub tally: &'e Tally,
    pub writer: &'e Writer,
    pub unwritten_bytes: u64,
    pub dirtied_bytes: u64,
    pub written_pages: u64,
    pub trace_ns: u64,
    pub run_ns: u64,
    pub device_ns: u64,
    pub flush_bytes: u64,
}

impl Ending<'_> {
    pub fn outcome(&self) -> Outcome {
        let Self { config, tally, writer, .. } = self;
        let device = tally.device(self.unwritten_bytes);
        let BytesPerSecond(rate) = config.device.bandwidth;
        let flush = config.device.write_latency_ns + config.device.flush_latency_ns;
        let flush_ns =
            u128::from(self.flush_bytes) * u128::from(NS_PER_S) / u128::from(rate.max(1));
        let per_ns = device.total() as f64 / self.run_ns.max(self.device_ns).max(1) as f64;
        let rated = config.rated_bytes.filter(|_| device.total() > 0);
        Outcome {
            budget_bytes: config.budget_bytes,
            page_writes: writer.page_writes,
            written_pages: self.written_pages,
            trace_ns: self.trace_ns,
            run_ns: self.run_ns,
            device_ns: self.device_ns,
            user_bytes: writer.page_writes * PAGE_BYTES,
            dirtied_bytes: self.dirtied_bytes,
            device,
            worst_second_bytes: tally.worst_second_bytes,
            device_flushes: tally.device_flushes,
            checkpoints: tally.checkpoints,
            stalls: writer.stalls,
            stall_ns: writer.stall_ns.clone(),
            stalled_ns: writer.stalled_ns,
            stall_max_ns: writer.stall_max_ns,
            used_max_bytes: tally.used_max_bytes,
            flush_ns: u64::try_from(flush_ns).unwrap_or(u64::MAX).saturating_add(flush),
            endurance_years: rated.map(|rated| rated as f64 / per_ns / NS_PER_YEAR),
            log_full: tally.log_full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_in_the_seconds_in_which_the_device_writes_them() {
        let worst = |writes: &[(u64, u64, u64)]| {
            let mut tally = Tally { start_ns: 5, ..Tally::default() };
            for (from, to, bytes) in writes {
                let ns = |tenths: u64| 5 + tenths * NS_PER_S / 10;
                tally.wrote(ns(*from), ns(*to), *bytes);
            }
            let all: u64 = writes.iter().map(|(_, _, bytes)| bytes).sum();
            assert_eq!(tally.device_bytes, all);
            tally.worst_second_bytes
        };
        assert_eq!(worst(&[(0, 5, 100), (5, 10, 30), (10, 12, 129)]), 130);
        assert_eq!(worst(&[(5, 15, 100)]), 50);
        // Half a second, eight whole ones, half a second.
        assert_eq!(worst(&[(5, 95, 900)]), 100);
        assert_eq!(worst(&[(5, 25, 200), (25, 26, 400)]), 450);
        assert_eq!(worst(&[(7, 7, 10)]), 10);
    }
}
