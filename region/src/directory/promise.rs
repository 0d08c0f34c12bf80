//! The promise for a region in a directory: limited by the device's rate and by the disk's room.

use perdura_dirty::geometry::BUDGET_MIN_BYTES;
use perdura_dirty::promise::{BudgetWish, Promise, Terms, default_reserve, promise};
use perdura_media::{Device, FileDevice};

use super::error::DirectoryError;
use super::find::IMAGE_NAME;
use super::settings::Settings;
use crate::region::Region;
use crate::room;

/// The disk's limits on the log, and so on the budget.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// Largest budget whose emergency flush fits the log that the disk has room for, bytes.
    pub(super) budget_bytes_max: u64,
    /// Bytes by which the image may grow.
    free_bytes: u64,
}

impl Room {
    pub(super) fn of(
        settings: &Settings,
        region: &Region,
        image: &FileDevice,
    ) -> Result<Self, DirectoryError> {
        let free_bytes = room::growth_bytes(image).map_err(|source| DirectoryError::File {
            path: settings.dir.join(IMAGE_NAME),
            source,
        })?;
        let room_bytes = image.capacity_bytes().saturating_add(free_bytes);
        let log_percent = settings.config.log_percent;
        let found =
            room::largest_budget(region.geometry(), log_percent, region.len_bytes(), room_bytes);
        // On a full disk the log stays as it is: the smallest budget needs hardly any of it.
        Ok(Self { budget_bytes_max: found.unwrap_or(BUDGET_MIN_BYTES), free_bytes })
    }

    /// Whether a promise could allow more if the disk had more room.
    pub(super) fn limits(&self, made: &Promise) -> bool {
        !made.covers_whole_region && made.budget_bytes == self.budget_bytes_max
    }
}

/// The terms and the promise for the proven rate. A derived budget that the disk has no room for
/// becomes the largest one that fits; a budget that the user chose is refused.
pub(super) fn make_promise(
    settings: &Settings,
    region: &Region,
    rate_bytes_per_s: u64,
    room: Room,
) -> Result<(Terms, Promise), DirectoryError> {
    let terms = Terms {
        warning: settings.warning,
        reserve: settings.reserve.unwrap_or_else(|| default_reserve(settings.warning)),
        rate_bytes_per_s,
        region_bytes: region.len_bytes(),
    };
    let made = promise(region.geometry(), &terms, settings.wish)?;
    if made.budget_bytes <= room.budget_bytes_max {
        return Ok((terms, made));
    }
    if settings.wish != BudgetWish::Derived {
        return Err(DirectoryError::Room {
            dir: settings.dir.clone(),
            budget_bytes: made.budget_bytes,
            largest_bytes: room.budget_bytes_max,
            free_bytes: room.free_bytes,
        });
    }
    let fits = BudgetWish::Bytes(room.budget_bytes_max);
    Ok((terms, promise(region.geometry(), &terms, fits)?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_disk_limits_a_promise_that_takes_all_that_fits_and_is_less_than_the_region() {
        let room = Room { budget_bytes_max: 1 << 20, free_bytes: 0 };
        let made = |budget_bytes, region_bytes| Promise {
            budget_bytes,
            flush_time: Duration::from_secs(1),
            covers_whole_region: budget_bytes >= region_bytes,
        };
        assert!(room.limits(&made(1 << 20, (1 << 20) + 1)));
        assert!(!room.limits(&made(1 << 20, 1 << 20)), "all of the region may be dirty");
        assert!(!room.limits(&made((1 << 20) - 1, 1 << 30)), "the warning limits it");
    }
}
