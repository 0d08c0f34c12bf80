//! Loading an image before its region is used, or deferring that.

use std::sync::atomic::Ordering::*;

use perdura_dirty::sys::SharedMemory;
use perdura_dirty::{HugePages, Ledger, TrackingKind};
use perdura_image::{Loading, OpenError, Target};
use perdura_media::Device;

use crate::config::Config;
use crate::memory_files::map_region;

/// Loads all that `loading` has left, or returns it to be loaded while the region is in use.
pub(crate) fn load_or_defer(
    device: &dyn Device,
    config: &Config,
    ledger: &Ledger,
    memory: &SharedMemory,
    mut loading: Loading,
) -> Result<Option<Loading>, OpenError> {
    let defers = config.defer_load && matches!(config.tracking, TrackingKind::Barrier);
    if defers && !loading.is_complete() {
        loading.hottest_first(&config.heat);
        ledger.loading().store(1, Release);
        return Ok(Some(loading));
    }
    let map = map_region(memory)?;
    let huge_pages = HugePages::new(&map, ledger);
    // Trap mode needs small pages: it traps them one by one.
    let huge_pages = matches!(config.tracking, TrackingKind::Barrier).then_some(&huge_pages);
    let to = Target { device, ledger, map: &map, loaded: &|_| {}, huge_pages };
    loading.load_all(&to, load_threads())?;
    ledger.loading().store(0, Release);
    Ok(None)
}

/// Threads that load an image: while one reads from the device, another verifies and copies.
fn load_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).clamp(2, 4)
}
