//! Settings of a region, and the checks that refuse some of them.

use std::path::PathBuf;
use std::time::Duration;

use perdura_dirty::geometry::{BLOCK_BYTES, BUDGET_MIN_BYTES, BUFFERS, Geometry, REGION_MIN_BYTES};
use perdura_dirty::planted::Planted;
use perdura_dirty::policy::PolicyKind;
use perdura_dirty::{SetupError, TrackingKind};
use perdura_image::{Compression, Key, OpenError};

/// Settings of a region.
#[derive(Debug, Clone)]
pub struct Config {
    /// Size of the region, bytes, which is rounded up to a multiple of 64 KiB. An existing image
    /// can only grow.
    pub region_bytes: u64,
    /// Largest size that the region may grow to, bytes, which is fixed when the image is made.
    /// `None` is four times `region_bytes`.
    pub reserved_bytes: Option<u64>,
    /// Most bytes that may be dirty.
    pub budget_bytes: u64,
    /// Bytes of a log segment, which are fixed when the image is made. `None` chooses by the size.
    pub segment_bytes: Option<u64>,
    /// Capacity of the log in percent of the region, at least 125.
    pub log_percent: u64,
    /// Lanes of barrier mode: locks on which writers wait for each other. About 128 for each thread
    /// that writes all the time are enough, and each takes about 100 KiB. A heap must be opened
    /// with as many lanes as it was made with. `None` chooses by the size that the image reserves
    /// ([`Geometry::lanes`]), and so always the same number for one image.
    pub lanes: Option<u16>,
    /// How writes are noticed. The size of grains follows from this mode, and is part of the image.
    pub tracking: TrackingKind,
    /// Trap mode: whether to forbid `munmap` and `mremap` of the region until the process ends
    /// (`mseal`, Linux 6.10), because they would remove the protection of pages. A dropped region's
    /// memory stays mapped then, so this is for processes that open a region once.
    pub seal_mapping: bool,
    /// The policy that chooses what is cleaned first.
    pub policy: PolicyKind,
    /// Whether repeated writes to dirty data are noted: as heat in barrier mode, by protecting
    /// dirty pages again in trap mode. Without that, policies see only the first write. It can be
    /// switched off to measure its cost and its use (Viyojit, section 6.3).
    pub recency: bool,
    /// Time between checkpoints. `None` makes them only when the log needs space or a caller asks.
    pub checkpoint_every: Option<Duration>,
    /// Time between two rounds of the cleaner while the region is in use (Viyojit: 1 ms).
    pub epoch: Duration,
    /// Whether a thread cleans in advance and makes checkpoints. Without a thread, writers do all
    /// the work themselves, deterministically.
    pub thread: bool,
    /// Barrier mode: whether the region opens before its memory is loaded. The caller then calls
    /// [`Region::load_next`](crate::Region::load_next) until everything is loaded; data that are
    /// touched before that are loaded first. Damage is found late in this case: see
    /// [`Unreadable`](crate::Unreadable).
    pub defer_load: bool,
    /// What [`Region::heat`](crate::Region::heat) was when an earlier run ended: deferred loading
    /// loads first what was hot. Empty: nothing is known.
    pub heat: Vec<u8>,
    /// Directory in whose file system the region's memory and ledger are made, as files without a
    /// name. `None`: they are memory files of the kernel.
    pub memory_dir: Option<PathBuf>,
    /// Whether cleaning, checkpoints and compaction compress data. The emergency flush does not,
    /// and the budget assumes that nothing shrinks.
    pub compression: Compression,
    /// The user's key with which the image is encrypted; `None`: it is not.
    pub key: Option<Key>,
    /// Seed of the policy `random` and of the image's identity.
    pub seed: u64,
    /// A planted bug, which a test must catch.
    pub planted: Planted,
}

impl Config {
    /// Default settings for a region of `region_bytes` with a budget of `budget_bytes`.
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
            heat: Vec::new(),
            memory_dir: None,
            compression: Compression::Off,
            key: None,
            seed: 0,
            planted: Planted::None,
        }
    }

    /// The geometry of an image that is made with these settings.
    ///
    /// # Errors
    /// No image can have this size.
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

/// Refuses a mode whose grain size is not the image's.
pub(crate) fn check_grain(geometry: &Geometry, config: &Config) -> Result<(), OpenError> {
    let shift = config.tracking.grain_shift();
    if geometry.grain_shift == shift {
        return Ok(());
    }
    Err(OpenError::Grain { image_bytes: geometry.grain_bytes(), mode_bytes: 1 << shift })
}

/// Refuses a size beyond what was reserved when the image was made.
pub(crate) fn check_size(geometry: &Geometry, region_bytes: u64) -> Result<(), OpenError> {
    if region_bytes <= geometry.reserved_bytes {
        return Ok(());
    }
    Err(OpenError::Size { asked_bytes: region_bytes, reserved_bytes: geometry.reserved_bytes })
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
