//! Settings of paged memory, and what follows from them.

use super::error::PagedError;
use super::planted::PlantedPaging;
use super::residents::Unit;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Pages that come and go together, at most: a huge page.
const FAULT_PAGES_MAX: u32 = 512;

/// Settings. [`PagedConfig::new`] is what to start from.
#[derive(Debug, Clone)]
pub struct PagedConfig {
    /// All of the memory: a multiple of the pages that come together.
    pub len_bytes: u64,
    /// What may be in DRAM, rounded down to such a multiple.
    pub resident_bytes: u64,
    /// Pages that come and go together, a power of two up to 512. More of them read ahead: a
    /// sequential program traps less, a random one moves bytes that it does not want.
    pub fault_pages: u32,
    /// Percent of the resident bytes that are inactive: in DRAM but not in the page table, so that
    /// a touch is seen and saves the unit from going. 0: first in, first out.
    pub inactive_percent: u32,
    /// Accesses of the medium that are kept for a replay; 24 bytes each. 0: none.
    pub steps_max: usize,
    /// A planted bug, for tests that must catch it.
    pub planted: PlantedPaging,
}

/// Sizes in units.
pub(super) struct Units {
    pub all: Unit,
    pub resident: Unit,
    pub inactive_max: Unit,
}

impl PagedConfig {
    /// `resident_bytes` of `len_bytes` in DRAM, page by page, a quarter of them inactive.
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
