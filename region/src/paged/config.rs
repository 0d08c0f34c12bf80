//! Settings of paged memory, and the sizes that follow from them.

use super::error::PagedError;
use super::planted::PlantedPaging;
use super::residents::Unit;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Most pages that come and go together: a huge page.
const FAULT_PAGES_MAX: u32 = 512;

/// Settings of paged memory. Begin with [`PagedConfig::new`].
#[derive(Debug, Clone)]
pub struct PagedConfig {
    /// Bytes of the whole memory: a multiple of the bytes that come and go together.
    pub len_bytes: u64,
    /// Most bytes that may be in DRAM; rounded down to such a multiple.
    pub resident_bytes: u64,
    /// Pages that come and go together, a power of two up to 512. With more pages a sequential
    /// program traps less, and a random one moves bytes that it does not need.
    pub fault_pages: u32,
    /// Percent of the resident bytes that are inactive: a touch of an inactive unit is seen, and
    /// keeps the unit in DRAM. With 0, units leave in the order in which they came.
    pub inactive_percent: u32,
    /// Most accesses of the medium that are kept for a replay. Each takes 24 bytes; 0 keeps none.
    pub steps_max: usize,
    /// A planted bug, which a test must catch.
    pub planted: PlantedPaging,
}

/// Sizes of a paged memory in units.
pub(super) struct Units {
    pub all: Unit,
    pub resident: Unit,
    pub inactive_max: Unit,
}

impl PagedConfig {
    /// Settings for `len_bytes`, of which `resident_bytes` may be in DRAM. Pages come and go one by
    /// one, and a quarter of the resident ones are inactive.
    pub fn new(len_bytes: u64, resident_bytes: u64) -> Self {
        Self {
            len_bytes,
            resident_bytes,
            fault_pages: 1,
            inactive_percent: 25,
            steps_max: 0,
            planted: PlantedPaging::None,
        }
    }

    pub(super) fn unit_bytes(&self) -> u64 {
        u64::from(self.fault_pages) * PAGE_BYTES
    }

    pub(super) fn check(&self, medium_bytes: u64) -> Result<Units, PagedError> {
        let setting = |name, value: u64, expected| PagedError::Setting { name, value, expected };
        if !self.fault_pages.is_power_of_two() || self.fault_pages > FAULT_PAGES_MAX {
            let pages = u64::from(self.fault_pages);
            return Err(setting("fault_pages", pages, "a power of two from 1 to 512"));
        }
        if self.inactive_percent > 90 {
            let percent = u64::from(self.inactive_percent);
            return Err(setting("inactive_percent", percent, "0 to 90"));
        }
        let unit_bytes = self.unit_bytes();
        let all = self.len_bytes / unit_bytes;
        if all == 0 || !self.len_bytes.is_multiple_of(unit_bytes) || all >= u64::from(Unit::MAX) {
            let expected = "a multiple of fault_pages x 4096 bytes, fewer than 2^32 of them";
            return Err(setting("len_bytes", self.len_bytes, expected));
        }
        let resident = (self.resident_bytes / unit_bytes).min(all) as Unit;
        if resident == 0 {
            let expected = "fault_pages x 4096 bytes at least";
            return Err(setting("resident_bytes", self.resident_bytes, expected));
        }
        if medium_bytes < self.len_bytes {
            return Err(PagedError::SmallMedium { medium_bytes, len_bytes: self.len_bytes });
        }
        let inactive = u64::from(resident) * u64::from(self.inactive_percent) / 100;
        let inactive_max = (inactive as Unit).min(resident - 1);
        Ok(Units { all: all as Unit, resident, inactive_max })
    }
}
