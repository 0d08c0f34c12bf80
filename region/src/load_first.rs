//! Loading an image before its region is in use, or leaving that for later.

use std::sync::atomic::Ordering::*;

use perdura_dirty::sys::SharedMemory;
use perdura_dirty::{HugePages, Ledger, TrackingKind};
use perdura_image::{Loading, OpenError, Target};
use perdura_media::Device;

use crate::config::Config;
use crate::memory_files::map_region;

/// Fills memory, or leaves that for later.
pub(crate) fn load_or_defer(
    device: &dyn Device,
    config: &Config,
    ledger: &Ledger,
    memory: &SharedMemory,
    loading: Loading,
) -> Result<Option<Loading>, OpenError> {
    let defers = config.defer_load && matches!(config.tracking, TrackingKind::Barrier);
    if defers && !loading.is_complete() {
        ledger.loading().store(1, Release);
        return Ok(Some(loading));
    }
    let map = map_region(memory)?;
    let huge_pages = HugePages::new(&map, ledger);
    // Where pages are trapped one by one they must be small.
    let huge_pages = matches!(config.tracking, TrackingKind::Barrier).then_some(&huge_pages);
    let to = Target { device, ledger, map: &map, loaded: &|_| {}, huge_pages };
    loading.load_all(&to, load_threads())?;
    ledger.loading().store(0, Release);
    Ok(None)
}

/// Threads that keep a device busy reading: while one reads, another verifies and copies.
fn load_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).clamp(2, 4)
}
