//! Bugs that can be planted in paging, so that tests prove that they catch them.

/// A planted bug of paging.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PlantedPaging {
    /// No bug.
    #[default]
    None,
    /// Some dirty units leave DRAM without being written to the medium.
    ForgetDirtyVictim,
    /// A dirty unit that is reactivated counts as clean.
    ReactivateAsClean,
}
