//! The parts of a region, made from its sizes and its ledger.

use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::thread::JoinHandle;

use crate::append::Appender;
use crate::config::Config;
use crate::core::Core;
use crate::error::OpenError;
use crate::geometry::Geometry;
use crate::ledger::{Ledger, NO_HOME, SEGMENT_FREE, SEGMENT_USED};
use crate::sys::SharedMemory;

/// Segments for the region, a whole drain, and the emergency reserve.
pub(crate) fn segments_wanted(geometry: &Geometry, config: &Config) -> Result<u32, OpenError> {
    let data = config.region_bytes / 100 * config.log_percent / geometry.segment_bytes + 1;
    let reserve = u64::from(geometry.reserve_segments(config.budget_bytes));
    let wanted = data + 2 * reserve + u64::from(geometry.buffers);
    if wanted > u64::from(geometry.segments_max) {
        return Err(OpenError::Setting {
            name: "budget",
            value: format!("{} bytes", config.budget_bytes),
            expected: "a log that fits the size reserved at creation; choose a larger reserve",
        });
    }
    Ok(wanted as u32)
}

pub(crate) fn new_memory(geometry: &Geometry) -> Result<SharedMemory, OpenError> {
    let len_bytes = geometry.reserved_bytes;
    SharedMemory::create("perdura-region", len_bytes).map_err(|source| OpenError::Memory {
        what: "region",
        len_bytes,
        source,
    })
}

/// Frames small enough that a few of them in flight leave most of a small budget to writers.
pub(crate) fn frame_bytes_max(geometry: &Geometry, budget_bytes: u64) -> u64 {
    (budget_bytes / 8).next_power_of_two().clamp(16 << 10, geometry.segment_bytes)
}

pub(crate) fn appender(ledger: &Ledger, budget_bytes: u64) -> Appender {
    let geometry = ledger.geometry();
    let segments = ledger.segments().load(Acquire) as u32;
    let free = (0..segments)
        .filter(|number| ledger.segment(*number).state().load(Acquire) == SEGMENT_FREE)
        .collect();
    Appender::new(
        (0..geometry.buffers).rev().collect(),
        free,
        geometry.reserve_segments(budget_bytes),
        frame_bytes_max(geometry, budget_bytes),
    )
}

/// Counts live bytes anew from the homes of all grains: a kill may have come between two counters.
pub(crate) fn count_live(ledger: &Ledger) {
    let segments = ledger.segments().load(Acquire) as u32;
    for number in 0..segments {
        ledger.segment(number).live_bytes().store(0, Relaxed);
    }
    let grain_bytes = ledger.geometry().grain_bytes();
    let grains = ledger.region_bytes().load(Acquire) / grain_bytes;
    for homes in
        ledger.homes()[..grains as usize].chunk_by(|a, b| a.load(Relaxed) == b.load(Relaxed))
    {
        let home = homes[0].load(Relaxed);
        if home != NO_HOME {
            let entry = ledger.segment(home - 1);
            entry.live_bytes().fetch_add(homes.len() as u64 * grain_bytes, Relaxed);
            entry.state().store(SEGMENT_USED, Relaxed);
        }
    }
    // A segment without live bytes may still be needed by the last commit: the next one frees it.
}

pub(crate) fn spawn_cleaner(
    core: &Arc<Core>,
    config: &Config,
) -> Result<JoinHandle<()>, OpenError> {
    let core = Arc::clone(core);
    let (epoch, every) = (config.epoch, config.checkpoint_every);
    std::thread::Builder::new()
        .name("perdura-cleaner".into())
        .spawn(move || core.run_cleaner(epoch, every))
        .map_err(|error| OpenError::Setting {
            name: "cleaner thread",
            value: error.to_string(),
            expected: "a machine that can start one more thread",
        })
}
