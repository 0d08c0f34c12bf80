//! Shared code of the unit tests.

use std::sync::Arc;

use perdura_media::RealClock;
use perdura_media::sim::SimDevice;
use perdura_region::{Config, Region};

/// A region for a host, on a modelled device.
#[allow(clippy::unwrap_used)] // a test's own failure
pub(crate) fn region_on(device: &SimDevice) -> Region {
    let config = Config { budget_bytes: 2 << 20, ..crate::region_config(0) };
    Region::open(Arc::new(device.clone()), Arc::new(RealClock), config).unwrap()
}
