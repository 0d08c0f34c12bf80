//! Settings of a region, and which of them are refused.

use std::time::Duration;

use perdura_dirty::geometry::{BLOCK_BYTES, BUDGET_MIN_BYTES, BUFFERS, Geometry, REGION_MIN_BYTES};
use perdura_dirty::planted::Planted;
use perdura_dirty::policy::PolicyKind;
use perdura_dirty::{SetupError, TrackingKind};
use perdura_image::{Compression, OpenError};

/// Settings of a region.
#[derive(Debug, Clone)]
pub struct Config {
    /// Size of the region, bytes; rounded up to 64 KiB. An existing image may only grow.
    pub region_bytes: u64,
    /// Size it may grow to; fixed at creation. `None`: four times `region_bytes`.
    pub reserved_bytes: Option<u64>,
    /// Dirty bytes allowed.
    pub budget_bytes: u64,
    /// Bytes of a log segment, at creation. `None`: chosen.
    pub segment_bytes: Option<u64>,
    /// Log capacity as a multiple of the region, in percent: at least 125.
    pub log_percent: u64,
    /// Lanes (locks) of barrier mode, on which writers wait for each other: about 128 for each
    /// thread that writes all the time are enough, each takes about 100 KiB. A heap must be opened
    /// with as many as it was made with. `None`: by the size the image reserves
    /// ([`Geometry::lanes`]), and so always the same for one image.
    pub lanes: Option<u16>,
    /// How writes are noticed. The grain size follows from it and is part of the image.
    pub tracking: TrackingKind,
    /// Trap mode: forbid `munmap` and `mremap` of the region for the life of the process (`mseal`,
    /// Linux 6.10), for they would take the protection away. The memory of a dropped region then
    /// stays mapped, so it is for processes that open a region once.
    pub seal_mapping: bool,
    /// Victim policy.
    pub policy: PolicyKind,
    /// Whether it is noted that dirty data were written again: the heat of barrier mode, the
    /// re-protection of dirty pages in trap mode. Without it policies see the first write only. For
    /// measuring what that upkeep costs and brings (Viyojit, section 6.3).
    pub recency: bool,
    /// Time between checkpoints; `None`: only when space or a caller asks.
    pub checkpoint_every: Option<Duration>,
    /// The cleaner's epoch (Viyojit: 1 ms).
    pub epoch: Duration,
    /// Whether a thread cleans ahead and makes checkpoints. Without it writers do all work
    /// themselves, deterministically.
    pub thread: bool,
    /// Barrier mode: be open before memory is loaded. Whoever opens calls
    /// [`Region::load_next`](crate::Region::load_next) until it is done; what is touched before is
    /// loaded first. Damage is then met late: see [`Unreadable`](crate::Unreadable).
    pub defer_load: bool,
    /// Whether cleaning, checkpoints and compaction compress what they write. The emergency flush
    /// does not, and the budget assumes that nothing shrinks.
    pub compression: Compression,
    /// Seeds the `random` policy and the image's identity.
    pub seed: u64,
    /// A planted bug, for tests that must catch it.
    pub planted: Planted,
}

impl Config {
    /// Settings for a region of `region_bytes` with `budget_bytes`.
    pub fn new(region_bytes: u64, budget_bytes: u64) -> Self {
        Self {
            region_bytes,
            reserved_bytes: None,
            budget_bytes,
            segment_bytes: None,
            log_percent: 200,
            lanes: None,
            tracking: TrackingKind::default(),
            seal_mapping: false,
            policy: PolicyKind::default(),
            recency: true,
            checkpoint_every: Some(Duration::from_secs(1)),
            epoch: Duration::from_millis(1),
            thread: true,
            defer_load: false,
            compression: Compression::Off,
            seed: 0,
            planted: Planted::None,
        }
    }

    /// The geometry that an image made with these settings has.
    ///
    /// # Errors
    /// A size that no image can have.
    pub fn geometry(&self) -> Result<Geometry, OpenError> {
        let reserved_bytes = self.reserved_bytes.unwrap_or(self.region_bytes.saturating_mul(4));
        Ok(Geometry::new(
            reserved_bytes.max(self.region_bytes),
            self.tracking.grain_shift(),
            self.segment_bytes,
            BUFFERS,
        )?)
    }
}

/// Grains are part of the image: the mode that made it must be the mode that opens it.
pub(crate) fn check_grain(geometry: &Geometry, config: &Config) -> Result<(), OpenError> {
    let shift = config.tracking.grain_shift();
    if geometry.grain_shift == shift {
        return Ok(());
    }
    Err(OpenError::Grain { image_bytes: geometry.grain_bytes(), mode_bytes: 1 << shift })
}

pub(crate) fn checked(mut config: Config) -> Result<Config, OpenError> {
    config.region_bytes = config.region_bytes.next_multiple_of(BLOCK_BYTES);
    let refused = |name, value: u64, expected| {
        Err(SetupError::Setting { name, value: format!("{value} bytes"), expected }.into())
    };
    if config.region_bytes < REGION_MIN_BYTES {
        return refused("memory", config.region_bytes, "at least 256 KiB");
    }
    if config.budget_bytes < BUDGET_MIN_BYTES {
        return refused("budget", config.budget_bytes, "at least 128 KiB");
    }
    if matches!(config.tracking, TrackingKind::Trap(_)) && !config.thread {
        return Err(SetupError::Setting {
            name: "thread",
            value: "false".into(),
            expected: "true in trap mode: a store that traps cannot clean by itself",
        }
        .into());
    }
    if config.log_percent < 125 {
        return Err(SetupError::Setting {
            name: "log",
            value: format!("{} %", config.log_percent),
            expected: "at least 125 % of the region",
        }
        .into());
    }
    if let Some(lanes) = config.lanes.filter(|lanes| !(1..=1024).contains(lanes)) {
        return Err(SetupError::Setting {
            name: "lanes",
            value: lanes.to_string(),
            expected: "1 to 1024",
        }
        .into());
    }
    Ok(config)
}
