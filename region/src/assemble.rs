//! The parts of a region, made from its sizes and its ledger.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::thread::JoinHandle;

use perdura_media::Device;

use crate::append::Appender;
use crate::config::Config;
use crate::core::Core;
use crate::error::OpenError;
use perdura_dirty::error::RegionError;
use perdura_dirty::geometry::Geometry;
use perdura_dirty::ledger::{Ledger, SegmentState};
use perdura_dirty::sys::SharedMemory;

impl Core {
    /// Makes the log large enough for this region and budget, and sizes reserve and frames for the
    /// budget.
    pub fn fit_log(&self, region_bytes: u64, budget_bytes: u64) -> Result<(), RegionError> {
        let geometry = self.ledger.geometry();
        let before = self.ledger.segments().load(Acquire) as u32;
        let wanted = geometry.segments_wanted(self.log_percent, region_bytes, budget_bytes);
        let mut appender = self.appender.lock();
        if wanted > before {
            let refused =
                |error: perdura_media::DeviceError| RegionError::Space { cause: error.to_string() };
            self.device.grow(self.layout.segment_at(wanted)).map_err(refused)?;
            self.device.flush().map_err(|error| self.latch(&error))?;
            self.ledger.segments().store(u64::from(wanted), Release);
            (before..wanted).for_each(|number| appender.add_new(number));
        }
        appender.set_budget(
            geometry.reserve_segments(budget_bytes),
            geometry.frame_bytes_max(budget_bytes),
        );
        self.note_space(&appender);
        Ok(())
    }

    /// Sizes the emergency reserve for a budget, without enlarging the log.
    pub fn size_reserve_for(&self, budget_bytes: u64) {
        let geometry = self.ledger.geometry();
        let mut appender = self.appender.lock();
        appender.set_budget(
            geometry.reserve_segments(budget_bytes),
            geometry.frame_bytes_max(budget_bytes),
        );
        self.note_space(&appender);
    }

    /// Largest budget whose emergency flush fits the segments that are free now.
    pub fn coverable_bytes(&self) -> u64 {
        let free = self.appender.lock().free_segments.len() as u32;
        let geometry = self.ledger.geometry();
        let (mut fits, mut beyond) = (0, u64::from(free) * geometry.segment_bytes + 1);
        while beyond - fits > 4096 {
            let middle = fits + (beyond - fits) / 2;
            if geometry.reserve_segments(middle) <= free { fits = middle } else { beyond = middle }
        }
        fits
    }

    /// Makes the appender anew from the ledger, after a flush has used free segments behind its
    /// back.
    pub fn rebuild_appender(&self) {
        let mut current = self.appender.lock();
        let prefers_written = current.prefers_written();
        *current = appender(&self.ledger, self.ledger.budget_limit().load(Acquire));
        if prefers_written {
            current.prefer_written(&self.ledger);
        }
        self.note_space(&current);
    }
}

/// A commit that names the new segments must not outlive their space.
pub(crate) fn grow_durably(device: &dyn Device, capacity_bytes: u64) -> Result<(), OpenError> {
    if capacity_bytes > device.capacity_bytes() {
        device.grow(capacity_bytes)?;
        device.flush()?;
    }
    Ok(())
}

pub(crate) fn new_memory(geometry: &Geometry) -> Result<SharedMemory, OpenError> {
    let len_bytes = geometry.reserved_bytes;
    SharedMemory::create("perdura-region", len_bytes).map_err(|source| OpenError::Memory {
        what: "region",
        len_bytes,
        source,
    })
}

pub(crate) fn appender(ledger: &Ledger, budget_bytes: u64) -> Appender {
    let geometry = ledger.geometry();
    let segments = ledger.segments().load(Acquire) as u32;
    let mut free: Vec<u32> = (0..segments)
        .filter(|number| ledger.segment(*number).state() == SegmentState::Free)
        .collect();
    // Cleaning begins with space that was never written, which is slower to write, and leaves the
    // rest to the emergency flush, which begins with space that was.
    free.sort_by_key(|number| ledger.segment(*number).was_written());
    let free = VecDeque::from(free);
    Appender::new(
        (0..geometry.buffers).rev().collect(),
        free,
        geometry.reserve_segments(budget_bytes),
        geometry.frame_bytes_max(budget_bytes),
    )
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
