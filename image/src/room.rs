//! The size of the log, and enlarging it.

use std::sync::atomic::Ordering::*;

use perdura_dirty::RegionError;
use perdura_media::{Device, DeviceError};

use crate::append::Appender;
use crate::backed::Backed;
use crate::error::OpenError;
use crate::log::appender;

impl Backed {
    /// Enlarges the log for a region and a budget, and sets the reserve and the size of frames for
    /// the budget.
    ///
    /// # Errors
    /// The device has no room for a larger log; nothing changed.
    pub fn fit_log(&self, region_bytes: u64, budget_bytes: u64) -> Result<(), RegionError> {
        let ledger = &self.memory.ledger;
        let geometry = ledger.geometry();
        let before = ledger.segments().load(Acquire) as u32;
        let sized_for = self.log.sized_for(budget_bytes);
        let wanted = geometry.segments_wanted(self.log.percent, region_bytes, sized_for);
        let mut appender = self.log.appender.lock();
        if wanted > before {
            let refused = |error: DeviceError| RegionError::Space { cause: error.to_string() };
            self.log.device.grow(self.log.layout.segment_at(wanted)).map_err(refused)?;
            self.log.device.flush().map_err(|error| self.memory.latch(&error))?;
            ledger.segments().store(u64::from(wanted), Release);
            (before..wanted).for_each(|number| appender.add_new(number));
        }
        self.size_reserve(&mut appender, budget_bytes);
        self.note_space(&appender);
        Ok(())
    }

    /// Sets the emergency reserve and the size of frames for a budget, without enlarging the log.
    pub fn size_reserve_for(&self, budget_bytes: u64) {
        let mut appender = self.log.appender.lock();
        self.size_reserve(&mut appender, budget_bytes);
        self.note_space(&appender);
    }

    fn size_reserve(&self, appender: &mut Appender, budget_bytes: u64) {
        let geometry = self.memory.ledger.geometry();
        appender.set_budget(
            geometry.reserve_segments(self.log.sized_for(budget_bytes)),
            geometry.frame_bytes_max(budget_bytes),
        );
    }

    /// The largest budget whose emergency flush fits the segments that are free now, bytes.
    pub fn coverable_bytes(&self) -> u64 {
        let free = self.log.appender.lock().free_segments.len() as u32;
        self.memory.ledger.geometry().coverable_bytes(free)
    }

    /// Makes the appender anew from the ledger, after a flush has used free segments without it.
    pub fn rebuild_appender(&self) {
        let ledger = &self.memory.ledger;
        let mut current = self.log.appender.lock();
        let prefers_written = current.prefers_written();
        let budget_bytes = ledger.budget_limit().load(Acquire);
        *current = appender(ledger, budget_bytes);
        self.size_reserve(&mut current, budget_bytes);
        if prefers_written {
            current.prefer_written(ledger);
        }
        self.note_space(&current);
    }
}

/// Enlarges a device, durably on return, because a commit that names the new segments must not
/// outlive their space.
///
/// # Errors
/// The device has no room.
pub fn grow_durably(device: &dyn Device, capacity_bytes: u64) -> Result<(), OpenError> {
    if capacity_bytes > device.capacity_bytes() {
        device.grow(capacity_bytes)?;
        device.flush()?;
    }
    Ok(())
}
