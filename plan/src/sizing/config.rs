//! The settings of a replay: the region that it stands for, and the device under the region.

use std::time::Duration;

use perdura_dirty::geometry::{BLOCK_BYTES, Geometry};
use perdura_dirty::geometry::{BUDGET_MIN_BYTES, BUFFERS, GRAIN_SHIFT_TRAP, REGION_MIN_BYTES};
use perdura_dirty::policy::PolicyKind;
use perdura_media::{BytesPerSecond, Timing};

use super::SizingError;

/// The effect of a write that has to wait on later writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Loop {
    /// Writes come at the times of the trace, or as soon as the one before them is through: after a
    /// stall the writer catches up. For traces of what clients ask for, whatever the server does.
    #[default]
    Open,
    /// Every stall delays all that follows it by as much: the writer asks for the next when it has
    /// thought about the last as long as in the trace.
    Closed,
}

/// Mistakes that are planted so that the tests have to find them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planted {
    /// No mistake.
    #[default]
    None,
    /// Budget comes back when a frame is handed to the device, not when it is durable.
    CleanAtCopy,
    /// Compaction moves nothing: victims are simply empty.
    NoCompaction,
}

/// Settings of a replay: those of the region (see `perdura_region::Config`), the device, the trace.
#[derive(Debug, Clone)]
pub struct ReplayConfig {
    /// The most bytes that may be dirty.
    pub budget_bytes: u64,
    /// Size of the memory that the pages lie in; at least as much as the trace writes to.
    pub region_bytes: u64,
    /// The size that the region may grow to, bytes. `None` is four times `region_bytes`, as in a
    /// region.
    pub reserved_bytes: Option<u64>,
    /// The bytes of a log segment. `None` chooses as a region does.
    pub segment_bytes: Option<u64>,
    /// The capacity of the log in percent of the region.
    pub log_percent: u64,
    /// The cleaning policy.
    pub policy: PolicyKind,
    /// Whether dirty pages are protected again to see which are written again (Viyojit, section
    /// 6.3).
    pub recency: bool,
    /// The part of the cleaner's time that protecting a page again takes, nanoseconds; it bounds
    /// how many pages are protected.
    pub protect_ns: u64,
    /// The time between checkpoints; `None` makes none.
    pub checkpoint_every: Option<Duration>,
    /// The time between two rounds of the cleaner.
    pub epoch: Duration,
    /// Rate and latencies of the device. Modelled: transfers follow one another, latencies overlap.
    pub device: Timing,
    /// The effect of a write that has to wait on later writes.
    pub pacing: Loop,
    /// The seed of the `random` policy.
    pub seed: u64,
    /// Bytes the device is rated to take in its life; `None`: no years are reckoned. See
    /// [`rated_by_drive_writes`].
    pub rated_bytes: Option<u64>,
    /// A mistake for the tests to find.
    pub planted: Planted,
}

/// The bytes that a device may take in its life, from its capacity, its rating in drive writes a
/// day, and the years of its warranty.
pub fn rated_by_drive_writes(capacity_bytes: u64, writes_per_day: f64, years: f64) -> u64 {
    (capacity_bytes as f64 * writes_per_day * years * 365.25) as u64
}

/// A device of 1 GB/s whose writes take 50 us and whose flushes take 100 us.
fn device() -> Timing {
    Timing {
        bandwidth: BytesPerSecond(1_000_000_000),
        read_latency_ns: 80_000,
        write_latency_ns: 50_000,
        flush_latency_ns: 100_000,
    }
}

impl ReplayConfig {
    /// A region of that size and budget with a region's defaults, on a device of 1 GB/s;
    /// checkpoints every second.
    pub fn new(region_bytes: u64, budget_bytes: u64) -> Self {
        Self {
            budget_bytes,
            region_bytes,
            reserved_bytes: None,
            segment_bytes: None,
            log_percent: 200,
            policy: PolicyKind::default(),
            recency: true,
            protect_ns: 1_000,
            checkpoint_every: Some(Duration::from_secs(1)),
            epoch: Duration::from_millis(1),
            device: device(),
            pacing: Loop::default(),
            seed: 0,
            rated_bytes: None,
            planted: Planted::None,
        }
    }

    /// The sizes that a region of these settings has.
    pub(super) fn geometry(&self) -> Result<(u64, Geometry), SizingError> {
        let refused = |name, value, expected| Err(SizingError::Setting { name, value, expected });
        if self.budget_bytes < BUDGET_MIN_BYTES {
            return refused("budget", self.budget_bytes, "at least 128 KiB, as a region's");
        }
        if self.log_percent < 125 {
            return refused("log", self.log_percent, "at least 125 % of the region");
        }
        if self.epoch.is_zero() {
            return refused("epoch", 0, "more than 0");
        }
        if self.device.bandwidth.0 == 0 {
            return refused("device rate", 0, "more than 0 bytes a second");
        }
        let region_bytes = self.region_bytes.max(REGION_MIN_BYTES).next_multiple_of(BLOCK_BYTES);
        let reserved = self.reserved_bytes.unwrap_or(region_bytes.saturating_mul(4));
        let reserved = reserved.max(region_bytes);
        let geometry = Geometry::new(reserved, GRAIN_SHIFT_TRAP, self.segment_bytes, BUFFERS);
        let geometry = geometry
            .map_err(|source| SizingError::Geometry { region_bytes, source: source.into() })?;
        if geometry.reserve_segments(self.budget_bytes) > geometry.segments_max / 2 {
            return refused(
                "budget",
                self.budget_bytes,
                "one whose flush fits the log of such a region: about its size at most",
            );
        }
        Ok((region_bytes, geometry))
    }
}
